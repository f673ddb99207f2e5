package kinds

import (
	"reflect"
	"strings"

	"penstock/kafka/model"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// Level returns the feature level that a node needs for a resource; 0: none.
func Level(o resource.Object) int {
	l, isListener := o.Spec.(*resource.Listener)
	if o.Kind == model.KindPhysical || o.Kind == model.KindVirtual || isListener && l.Protocol == "kafka" {
		return record.LevelKafka
	}
	s, isService := o.Spec.(*resource.Service)
	if o.Kind == resource.KindProvider || isService && (len(s.EndpointsFrom) > 0 || s.Discovery != nil || s.EndpointDrain != nil) {
		return record.LevelProviders
	}
	if isListener && !l.HTTP.IsZero() || isService && len(s.HTTP.Upgrades) > 0 {
		return record.LevelRequests
	}
	if r, ok := o.Spec.(*resource.MeshTCPRoute); o.Kind == resource.KindRollout || ok && r.Rollout != nil {
		return record.LevelPolicies
	}
	if gateway.IsKind(o.Kind) || o.Kind == "MeshHTTPRoute" || isService && !reflect.ValueOf(s.HTTP).IsZero() {
		return record.LevelPolicies
	}
	return 0
}

// CheckSupported returns an error for a resource that some members do not support, and
// that would make them stop: during an upgrade some nodes still run the previous
// release. lacking returns the members below a level.
func CheckSupported(o resource.Object, lacking func(level int) (nodes []string)) error {
	l := Level(o)
	if l == 0 {
		return nil
	}
	if lacking := lacking(l); len(lacking) > 0 {
		return api.Errorf(api.Refused,
			"%v: these nodes run a version that does not support it: %s; upgrade them first, or remove those that no longer exist",
			o.Key, strings.Join(lacking[:min(len(lacking), 8)], ", "))
	}
	return nil
}
