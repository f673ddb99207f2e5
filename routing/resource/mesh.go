package resource

import (
	"fmt"
	"slices"
	"strings"

	"penstock/routing/hamt"
)

// Labels of policies that came in another format.
const (
	LabelFormat = "penstock/format" // the format that a resource came in
	LabelMesh   = "kuma.io/mesh"    // the mesh that it was for
)

// Values of LabelFormat.
const (
	FormatKuma           = "kuma"            // its universal form
	FormatKumaKubernetes = "kuma-kubernetes" // its form in Kubernetes
	FormatSMI            = "smi"
)

// meshOf is the mesh of a policy of Kuma's; "": it is none.
func meshOf(m *member) string {
	if m == nil || m.Kind != "MeshTCPRoute" && m.Kind != "MeshHTTPRoute" {
		return ""
	}
	if form := m.Labels[LabelFormat]; form != FormatKuma && form != FormatKumaKubernetes {
		return ""
	}
	return m.Labels[LabelMesh]
}

// updateForeign adds and removes a policy where those of other formats are
// looked at together.
func (e *setEdit) updateForeign(k Key, old, next *member) {
	move := func(edit **hamt.GroupsEdit[struct{}], before hamt.Groups[struct{}], was, is string) {
		if was == is {
			return
		}
		if *edit == nil {
			*edit = before.Edit()
		}
		if was != "" {
			(*edit).Delete(was, treeKey(k))
		}
		if is != "" {
			(*edit).Set(is, treeKey(k), struct{}{})
		}
	}
	move(&e.meshes, e.before.meshes, meshOf(old), meshOf(next))
	move(&e.splits, e.before.splits, rootOf(old), rootOf(next))
}

func (e *setEdit) meshesAfter() hamt.Groups[struct{}] {
	if e.meshes == nil {
		return e.before.meshes
	}
	return e.meshes.Groups()
}

func (e *setEdit) splitsAfter() hamt.Groups[struct{}] {
	if e.splits == nil {
		return e.before.splits
	}
	return e.splits.Groups()
}

// first gives the first object of a group, by name; nil: it has none.
func (s *Set) first(group hamt.Map[struct{}]) *member {
	first := ""
	for key := range group.All() {
		if first == "" || key < first {
			first = key
		}
	}
	return s.member(userKey(first))
}

// checkMesh refuses policies of several meshes: Kuma's do not act on one
// another's services, and Penstock is one mesh. One mesh may become another in
// one change.
func (c *checker) checkMesh(m *member) {
	mesh := meshOf(m)
	if mesh == "" {
		return
	}
	if c.meshes == nil {
		c.meshes = c.set.firstOfMeshes()
	}
	for _, first := range c.meshes {
		if other := meshOf(first); other != mesh {
			c.fault(&m.Object, `labels["`+LabelMesh+`"]`, fmt.Sprintf("differs from the mesh %s of %s, and Penstock is one mesh", other, withPlace(first)), mesh)
			return
		}
	}
}

// firstOfMeshes gives the first policy of each mesh, where there are several.
func (s *Set) firstOfMeshes() []*member {
	n, firsts := 0, []*member{}
	for range s.meshes.All() {
		n++
	}
	if n < 2 {
		return firsts
	}
	for _, group := range s.meshes.All() {
		firsts = append(firsts, s.first(group))
	}
	slices.SortFunc(firsts, func(a, b *member) int { return strings.Compare(meshOf(a), meshOf(b)) })
	return firsts
}

// withPlace names an object, with where it stands if that is known.
func withPlace(m *member) string {
	if m.File == "" {
		return m.Subject()
	}
	return m.Subject() + " " + place(&m.Object)
}
