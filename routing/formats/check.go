package formats

import (
	"fmt"

	"penstock/routing/formats/smi"
	"penstock/routing/resource"
)

// Check looks at the resources of one input together: splits do not lead in
// circles. It tells of resource.MaxFaults at most. What is wrong with resources
// whatever they came as is for resource.ValidateSet.
func Check(objects []resource.Object) (resource.Faults, resource.Warnings) {
	return smi.Check(objects)
}

// Twice tells of two resources of one kind and name, with both places, and
// with the formats where they differ.
func Twice(first, again *resource.Object) resource.Fault {
	message := fmt.Sprintf("stands here twice, first at %s:%d", first.File, first.Line)
	if a, b := first.Format(), again.Format(); a != b {
		message += fmt.Sprintf(": there as %s, here as %s", a, b)
	}
	return again.Fault("", message, nil)
}
