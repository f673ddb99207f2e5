package resource_test

import (
	"os"
	"testing"
	"time"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

func TestDefaultsAreFilledInOnACopy(t *testing.T) {
	o := decode(t, `
kind: Service
name: a
spec:
  healthCheck: {interval: 3s}
  connect: {retryBudget: 0}
  tls: {}
  endpoints:
  - {address: "a:1", weight: 0}
  - {address: "b:1"}
`)[0]
	before := string(codec.EncodeWithSecrets(o))
	s := o.Spec.(*resource.Service).WithDefaults()
	if after := string(codec.EncodeWithSecrets(o)); after != before {
		t.Errorf("the original changed: %s", after)
	}
	checks := map[string]bool{
		"protocol": s.Protocol == "tcp" && s.AllUnhealthy == "fail",
		"balancing": s.Balancing.Policy == "roundRobin" && s.Balancing.HashOn == "source" &&
			*s.Balancing.ZoneMinHealthy == 70 && s.Balancing.SlowStart == 0,
		"connect": s.Connect.Timeout.D() == time.Second && s.Connect.Attempts == 3 && *s.Connect.RetryBudget == 0,
		"health check": s.HealthCheck.Type == "tcp" && s.HealthCheck.Interval.D() == 3*time.Second &&
			s.HealthCheck.Timeout.D() == time.Second && s.HealthCheck.Rise == 2 && s.HealthCheck.Fall == 2,
		"own statuses": (&resource.HealthCheck{Status: []int{204}}).StatusOK(204) && !(&resource.HealthCheck{Status: []int{204}}).StatusOK(200),
		"statuses": s.HealthCheck.StatusOK(200) && s.HealthCheck.StatusOK(399) &&
			!s.HealthCheck.StatusOK(400) && !s.HealthCheck.StatusOK(199),
		"left out": s.Ejection == nil && s.ProxyProtocol == nil,
		"timeouts": s.IdleTimeout.D() == time.Hour && s.HalfClosedTimeout.D() == 5*time.Minute &&
			*s.MaxAge == 0 && s.Resolve.D() == 10*time.Second,
		"tls":     s.TLS.MinVersion == "1.2",
		"weights": *s.Endpoints[0].Weight == 0 && *s.Endpoints[1].Weight == 1,
	}
	for what, ok := range checks {
		if !ok {
			t.Errorf("%s: %+v", what, s)
		}
	}
	l := (&resource.Listener{Protocol: "tls"}).WithDefaults()
	if l.TLS == nil || l.TLS.Mode != "passthrough" || l.NoServerName != "close" ||
		l.Timeouts.ProxyHeader.D() != 5*time.Second || l.Timeouts.Handshake.D() != 10*time.Second {
		t.Errorf("%+v", l)
	}
	if l := (&resource.Listener{}).WithDefaults(); l.Protocol != "tcp" || l.TLS != nil {
		t.Errorf("%+v", l)
	}
	r := (&resource.MeshTCPRoute{To: []resource.RouteTo{{TargetRef: resource.TargetRef{Kind: "MeshService", Name: "a"}, Rules: []resource.RouteRule{{}}}}}).WithDefaults()
	refs := r.To[0].Rules[0].Default.BackendRefs
	if r.TargetRef.Kind != "Mesh" || len(refs) != 1 || refs[0].Kind != "MeshService" || refs[0].Name != "a" || *refs[0].Weight != 1 {
		t.Errorf("%+v", r)
	}
}

// The default of halfClosedTimeout is not longer than a given idleTimeout.
func TestHalfClosedTimeoutFollowsIdleTimeout(t *testing.T) {
	d := func(d time.Duration) *resource.Duration { return new(resource.Duration(d)) }
	for _, c := range []struct {
		idle, half *resource.Duration
		want       time.Duration
	}{
		{nil, nil, 5 * time.Minute},
		{d(2 * time.Second), nil, 2 * time.Second},
		{d(time.Hour), nil, 5 * time.Minute},
		{d(0), nil, 5 * time.Minute},
		{d(2 * time.Second), d(time.Minute), time.Minute},
		{d(2 * time.Second), d(0), 0},
	} {
		s := resource.Service{IdleTimeout: c.idle, HalfClosedTimeout: c.half}
		if got := s.WithDefaults().HalfClosedTimeout.D(); got != c.want {
			t.Errorf("idleTimeout %v, halfClosedTimeout %v: %v, want %v", c.idle, c.half, got, c.want)
		}
	}
}

func TestHTTPRouteDefaults(t *testing.T) {
	data, err := os.ReadFile("codec/testdata/http/good/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := decode(t, string(data))[0]
	before := string(codec.EncodeWithSecrets(o))
	r := o.Spec.(*resource.MeshHTTPRoute).WithDefaults()
	rules := r.To[0].Rules
	if rules[0].Matches[0].Headers[0].Type != "Exact" {
		t.Errorf("%+v", rules[0].Matches[0].Headers[0])
	}
	if refs := rules[1].Default.BackendRefs; len(refs) != 1 || refs[0].Name != "shop" || *refs[0].Weight != 1 {
		t.Errorf("a rule without backends leads to the destination: %+v", refs)
	}
	if refs := rules[2].Default.BackendRefs; len(refs) != 0 {
		t.Errorf("a redirect leads to a backend: %+v", refs)
	}
	if after := string(codec.EncodeWithSecrets(o)); after != before {
		t.Errorf("the original changed: %s", after)
	}
	r = (&resource.MeshHTTPRoute{To: []resource.HTTPRouteTo{{Rules: []resource.HTTPRule{{Default: resource.HTTPDefault{Filters: []resource.HTTPFilter{
		{Type: "RequestRedirect", RequestRedirect: &resource.RequestRedirect{Scheme: "https"}},
	}}}}}}}).WithDefaults()
	if r.TargetRef.Kind != "Mesh" || *r.To[0].Rules[0].Default.Filters[0].RequestRedirect.StatusCode != 302 {
		t.Errorf("%+v", r)
	}
}
