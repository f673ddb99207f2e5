package validate

import (
	"fmt"
	"slices"
	"strings"

	"penstock/routing/hamt"
	"penstock/routing/resource"
)

// meshOf returns the mesh of a Kuma policy; "" for any other object.
func meshOf(m *member) string {
	if m == nil || m.Kind != "MeshTCPRoute" && m.Kind != "MeshHTTPRoute" {
		return ""
	}
	if form := m.Labels[resource.LabelFormat]; form != resource.FormatKuma && form != resource.FormatKumaKubernetes {
		return ""
	}
	return m.Labels[resource.LabelMesh]
}

// updatePolicies updates the indices of policies by Kuma mesh and by SMI root.
func (e *setEdit) updatePolicies(k resource.Key, old, next *member) {
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
	move(&e.splits, e.before.splits, splitRoot(old), splitRoot(next))
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

// first returns the first object of a group by its treeKey; nil if the group is empty.
func (s *Set) first(group hamt.Map[struct{}]) *member {
	first := ""
	for key := range group.All() {
		if first == "" || key < first {
			first = key
		}
	}
	return s.member(userKey(first))
}

// checkMesh refuses policies of more than one mesh: a Kuma policy does not act
// on the services of another mesh, and Penstock is one mesh. One change may
// replace a mesh with another.
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
			c.fault(
				&m.Object, `labels["`+resource.LabelMesh+`"]`,
				fmt.Sprintf("differs from the mesh %s of %s: Penstock supports only one mesh", other, withPlace(first)),
				mesh,
			)
			return
		}
	}
}

// firstOfMeshes returns the first policy of each mesh if there are several meshes.
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

// withPlace names an object, and where it was read if that is known.
func withPlace(m *member) string {
	if m.File == "" {
		return m.Subject()
	}
	return m.Subject() + " " + place(&m.Object)
}
