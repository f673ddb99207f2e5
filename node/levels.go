package node

import (
	"reflect"
	"strings"

	"penstock/kafka/model"
	"penstock/node/admin"
	"penstock/node/cluster"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// levelOf is what a node must understand to act on a resource.
func levelOf(o resource.Object) int {
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

// understood refuses a resource that a member would have to end at: in the
// middle of an upgrade, nodes of the release before are still there.
func (n *Node) understood(o resource.Object) error {
	l := levelOf(o)
	if l == 0 {
		return nil
	}
	if lacking := n.cluster.Lacking(l); len(lacking) > 0 {
		return admin.Errorf(admin.Refused, "%v: these nodes run a version that does not know it: %s; upgrade them first, or remove those that are gone", o.Key, strings.Join(lacking[:min(len(lacking), 8)], ", "))
	}
	return nil
}
