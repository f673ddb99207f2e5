package resource_test

import (
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// decode decodes a text that must be valid.
func decode(t testing.TB, text string) []resource.Object {
	t.Helper()
	objects, faults := codec.Decode("test.yaml", []byte(text), resource.RoutingKinds())
	if len(faults) > 0 {
		t.Fatalf("unexpected faults:\n%v", faults)
	}
	return objects
}

func TestFindKindIgnoresCaseAndPlural(t *testing.T) {
	for _, s := range []string{"Service", "service", "SERVICES", "services"} {
		if k, err := resource.FindKind(resource.RoutingKinds(), s); err != nil || k.Name != "Service" {
			t.Errorf("%s: %v, %v", s, k.Name, err)
		}
	}
	_, err := resource.FindKind(resource.RoutingKinds(), "servce")
	if want := "unknown kind servce, did you mean Service?; " +
		"known kinds are Listener, Service, MeshTCPRoute, MeshHTTPRoute, Certificate, Host, TrafficPermission, Mesh, EndpointProvider, RateLimit, WorkloadIdentity, TrustBundle, Telemetry"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestHasLabels(t *testing.T) {
	o := decode(t, "kind: Service\nname: a\nspec: {}\nlabels: {team: a, empty: \"\"}")[0]
	for _, c := range []struct {
		labels map[string]string
		want   bool
	}{
		{nil, true},
		{map[string]string{"team": "a"}, true},
		{map[string]string{"team": "a", "empty": ""}, true},
		{map[string]string{"team": "b"}, false},
		{map[string]string{"team": "a", "other": ""}, false},
	} {
		if got := o.HasLabels(c.labels); got != c.want {
			t.Errorf("%v: %v", c.labels, got)
		}
	}
}
