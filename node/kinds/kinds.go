// Package kinds lists what this build supports: the kinds of resources, the other
// document formats, and the feature level that each resource requires of the
// cluster's members.
package kinds

import (
	"slices"

	"penstock/kafka"
	"penstock/kafka/model"
	"penstock/routing/formats"
	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// All returns the kinds of resources.
func All() []resource.Kind {
	return slices.Concat(resource.RoutingKinds(), gateway.Kinds(), kafka.Kinds(), []resource.Kind{resource.RolloutKind()})
}

// Formats returns the other document formats, in the order in which decoding tries
// them: those with an apiVersion, which identifies them, come first.
func Formats() []codec.Foreign { return append(formats.All(), model.Foreign()...) }
