package kuma

import (
	"fmt"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
)

// Check refuses policies of several meshes in one input: Kuma's meshes do not
// see one another's services, and Penstock is one mesh.
func Check(objects []resource.Object) (faults resource.Faults) {
	var first *resource.Object
	for i := range objects {
		o := &objects[i]
		if form := o.Labels[document.LabelFormat]; form != FormUniversal && form != FormKubernetes {
			continue
		}
		if first == nil {
			first = o
		}
		if mesh, other := o.Labels[labelMesh], first.Labels[labelMesh]; mesh != other {
			faults = append(faults, o.Fault(`labels["`+labelMesh+`"]`, fmt.Sprintf("differs from the mesh %s of %s at %s:%d, and Penstock is one mesh: apply the policies of one, or rename their mesh", other, first.Key, first.File, first.Line), mesh))
		}
	}
	return faults
}
