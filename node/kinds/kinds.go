// Package kinds says what this build understands: the kinds of resources, the
// documents of others, and which members of a cluster must be how new for that.
package kinds

import (
	"slices"

	"penstock/kafka"
	"penstock/kafka/model"
	"penstock/routing/formats"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// All are the kinds of resources.
func All() []resource.Kind {
	return slices.Concat(resource.RoutingKinds(), gateway.Kinds(), kafka.Kinds(), []resource.Kind{resource.RolloutKind()})
}

// Formats are the formats of others, in the order in which they are asked: what
// has an apiVersion is not told by other things.
func Formats() []resource.Foreign { return append(formats.All(), model.Foreign()...) }
