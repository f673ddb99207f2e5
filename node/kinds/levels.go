package kinds

import (
	"reflect"
	"slices"
	"strings"

	"penstock/kafka/model"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// Level returns the feature level that a node needs for a resource; 0: none.
func Level(o resource.Object) int {
	if o.Kind == resource.KindTelemetry {
		return record.LevelTelemetry
	}
	if needsMySQL(o.Spec) {
		return record.LevelMySQL
	}
	if needsIdentity(o.Spec) {
		return record.LevelIdentity
	}
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

// needsMySQL reports whether a spec has what LevelMySQL brought.
func needsMySQL(spec resource.Spec) bool {
	switch s := spec.(type) {
	case *resource.Listener:
		return s.Protocol == resource.ProtocolMySQL
	case *resource.Service:
		h := s.HealthCheck
		return s.Protocol == resource.ProtocolMySQL || s.Balancing.MatchTag != "" || h != nil && (h.Type == "mysql" || h.Port != 0 || h.PortTag != "")
	}
	return false
}

// needsIdentity reports whether a spec has what LevelIdentity brought.
func needsIdentity(spec resource.Spec) bool {
	if u, ok := spec.(resource.BundleUser); ok {
		if name, _ := u.BundleRef(); name != "" {
			return true
		}
	}
	switch s := spec.(type) {
	case *resource.Listener:
		return s.Protocol == "mesh" || s.HTTP.ForwardClientCert || len(s.Followed()) > 0 ||
			s.Originates() != nil || s.TLS != nil && verifiesIdentities(s.TLS.ClientAuth)
	case *model.VirtualCluster:
		return len(s.Followed()) > 0 || s.TLS != nil && verifiesIdentities(s.TLS.ClientAuth)
	case *model.PhysicalCluster:
		return len(s.Followed()) > 0
	case *resource.EndpointProvider:
		return s.VerifiesIdentities()
	case *resource.Certificate:
		return s.ACME != nil || s.Follow || s.HasBundle()
	case *resource.TrafficPermission, *resource.Mesh, *resource.RateLimit, *resource.WorkloadIdentity,
		*resource.TrustBundle:
		return true
	case *resource.Service:
		return s.Mesh || s.CircuitBreaker != nil || len(s.Followed()) > 0 || s.ProxyProtocol != nil && s.ProxyProtocol.ClientIdentity ||
			s.Balancing.MinHealthy != nil || s.TLS != nil && (s.TLS.Verify != nil || len(s.TLS.TrustDomains) > 0) ||
			slices.ContainsFunc(s.Endpoints, func(e resource.Endpoint) bool { return e.Priority != 0 || e.Backup })
	}
	return false
}

// verifiesIdentities reports whether clients' SPIFFE IDs are verified.
func verifiesIdentities(c *resource.ClientAuth) bool {
	return c != nil && len(c.SPIFFE)+len(c.TrustDomains) > 0
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
