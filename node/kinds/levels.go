package kinds

import (
	"reflect"
	"strings"

	"penstock/kafka/model"
	"penstock/node/admin"
	"penstock/node/cluster"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// Level is what a node must understand to act on a resource.
func Level(o resource.Object) int {
	l, isListener := o.Spec.(*resource.Listener)
	if o.Kind == model.KindPhysical || o.Kind == model.KindVirtual || isListener && l.Protocol == "kafka" {
		return cluster.LevelKafka
	}
	s, isService := o.Spec.(*resource.Service)
	if isListener && !l.HTTP.IsZero() || isService && len(s.HTTP.Upgrades) > 0 {
		return cluster.LevelRequests
	}
	if r, ok := o.Spec.(*resource.MeshTCPRoute); o.Kind == resource.KindRollout || ok && r.Rollout != nil {
		return cluster.LevelPolicies
	}
	if gateway.IsKind(o.Kind) || o.Kind == "MeshHTTPRoute" || isService && !reflect.ValueOf(s.HTTP).IsZero() {
		return cluster.LevelPolicies
	}
	return 0
}

// Understood refuses a resource that a member would have to end at: in the
// middle of an upgrade, nodes of the release before are still there. lacking
// names the members that are below a level.
func Understood(o resource.Object, lacking func(level int) (nodes []string)) error {
	l := Level(o)
	if l == 0 {
		return nil
	}
	if lacking := lacking(l); len(lacking) > 0 {
		return admin.Errorf(admin.Refused, "%v: these nodes run a version that does not know it: %s; upgrade them first, or remove those that are gone", o.Key, strings.Join(lacking[:min(len(lacking), 8)], ", "))
	}
	return nil
}
