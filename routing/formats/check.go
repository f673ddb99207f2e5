package formats

import (
	"fmt"

	"penstock/routing/resource"
)

// DuplicateFault returns the fault of a second resource of one kind and name,
// with both places, and with the formats if they differ.
func DuplicateFault(first, again *resource.Object) resource.Fault {
	message := fmt.Sprintf("duplicate, first at %s:%d", first.File, first.Line)
	if a, b := first.Format(), again.Format(); a != b {
		message += fmt.Sprintf(": there as %s, here as %s", a, b)
	}
	return again.Fault("", message, nil)
}
