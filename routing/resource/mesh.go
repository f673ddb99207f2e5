package resource

import (
	"fmt"
	"slices"
	"strings"
)

// Labels of policies that came in Kuma's format.
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
	if m == nil || m.Kind != "MeshTCPRoute" {
		return ""
	}
	if form := m.Labels[LabelFormat]; form != FormatKuma && form != FormatKumaKubernetes {
		return ""
	}
	return m.Labels[LabelMesh]
}

// updateMesh moves a policy from one mesh to another.
func (e *setEdit) updateMesh(k Key, old, next *member) {
	was, is := meshOf(old), meshOf(next)
	if was == is {
		return
	}
	if was != "" {
		e.meshes.Delete(was, treeKey(k))
	}
	if is != "" {
		e.meshes.Set(is, treeKey(k), struct{}{})
	}
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
			where := ""
			if first.File != "" {
				where = " " + place(&first.Object)
			}
			c.fault(&m.Object, `labels["`+LabelMesh+`"]`, fmt.Sprintf("differs from the mesh %s of %s%s, and Penstock is one mesh", other, first.Key, where), mesh)
			return
		}
	}
}

// firstOfMeshes gives the first policy of each mesh, by name.
func (s *Set) firstOfMeshes() []*member {
	firsts := []*member{}
	for _, group := range s.meshes.All() {
		var first string
		for key := range group.All() {
			if first == "" || key < first {
				first = key
			}
		}
		firsts = append(firsts, s.member(userKey(first)))
	}
	slices.SortFunc(firsts, func(a, b *member) int { return strings.Compare(meshOf(a), meshOf(b)) })
	return firsts
}
