package kinds

import (
	"fmt"
	"testing"

	"penstock/kafka/model"
	"penstock/node/cluster/record"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Fields that the previous release does not support require a level of their own.
func TestHTTPFieldsRequireFeatureLevel(t *testing.T) {
	t.Parallel()
	const listener, service = "kind: Listener\nname: a\nspec: {address: \":1\", service: a%s}\n",
		"kind: Service\nname: a\nspec: {protocol: http%s}\n"
	for text, want := range map[string]int{
		fmt.Sprintf(listener, ""): 0, fmt.Sprintf(listener, ", http: {underscores: allow}"): record.LevelRequests,
		fmt.Sprintf(service, ""): 0, fmt.Sprintf(service, ", http: {timeout: 1s}"): record.LevelPolicies,
		fmt.Sprintf(service, ", http: {upgrades: [websocket]}"): record.LevelRequests,
		fmt.Sprintf(service, ", discovery: {}"):                 record.LevelProviders, fmt.Sprintf(service, ", endpointsFrom: [{provider: a}]"): record.LevelProviders,
	} {
		objects, faults := codec.Decode("test.yaml", []byte(text), All())
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if got := Level(objects[0]); got != want {
			t.Errorf("%s is of level %d, want %d", text, got, want)
		}
	}
}

// A node of the previous release would relay these connections as they are, or use
// endpoints that it must not.
func TestMySQLRequiresFeatureLevel(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"kind: Telemetry\nname: a\nspec: {otlp: {endpoint: \"127.0.0.1:1\"}, logs: true}\n": record.LevelTelemetry,
		"kind: Listener\nname: a\nspec: {address: \":1\", service: a, protocol: mysql}\n":   record.LevelMySQL,
		"kind: Service\nname: a\nspec: {protocol: mysql, endpointsFrom: [{provider: a}]}\n": record.LevelMySQL,
		"kind: Service\nname: a\nspec: {balancing: {matchTag: group}}\n":                    record.LevelMySQL,
		"kind: Service\nname: a\nspec: {healthCheck: {type: mysql}}\n":                      record.LevelMySQL,
		"kind: Service\nname: a\nspec: {healthCheck: {port: 80}}\n":                         record.LevelMySQL,
		"kind: Service\nname: a\nspec: {healthCheck: {}}\n":                                 0,
	} {
		objects, faults := codec.Decode("test.yaml", []byte(text), All())
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if got := Level(objects[0]); got != want {
			t.Errorf("%s is of level %d, want %d", text, got, want)
		}
	}
}

// A node of the previous release would admit clients, or trust endpoints, that these
// fields refuse.
func TestVerifiedIdentitiesRequireFeatureLevel(t *testing.T) {
	t.Parallel()
	auth := &resource.ClientAuth{SPIFFE: []string{"spiffe://a/web"}}
	verifies := &resource.ServiceTLS{Verify: &resource.Verify{DNS: []string{"a.example"}}}
	for _, spec := range []resource.Spec{
		&resource.Listener{TLS: &resource.ListenerTLS{ClientAuth: auth}},
		&resource.Listener{HTTP: resource.ListenerHTTP{ForwardClientCert: true}},
		&resource.Listener{TLS: &resource.ListenerTLS{ClientAuth: &resource.ClientAuth{CAFile: "/ca.pem"}}},
		&resource.Listener{TLS: &resource.ListenerTLS{Originate: &resource.ServiceTLS{}}},
		&resource.Service{TLS: &resource.ServiceTLS{CAFile: "/ca.pem"}},
		&resource.Certificate{Follow: true},
		&model.VirtualCluster{TLS: &model.VirtualTLS{ClientAuth: auth}},
		&model.VirtualCluster{TLS: &model.VirtualTLS{ClientAuth: &resource.ClientAuth{CAFile: "/ca.pem"}}},
		&model.VirtualCluster{TLS: &model.VirtualTLS{ClientAuth: &resource.ClientAuth{CARef: "a"}}},
		&model.PhysicalCluster{TLS: &model.PhysicalTLS{CAFile: "/ca.pem"}},
		&model.PhysicalCluster{TLS: &model.PhysicalTLS{CARef: "a"}},
		&model.PhysicalCluster{Brokers: []model.PhysicalBroker{{TLS: &model.PhysicalTLS{CAFile: "/ca.pem"}}}},
		&resource.Service{TLS: verifies},
		&resource.Service{Mesh: true},
		&resource.Listener{Protocol: "mesh"},
		&resource.Service{ProxyProtocol: &resource.SendProxy{ClientIdentity: true}},
		&resource.EndpointProvider{HTTP: &resource.HTTPProvider{TLS: verifies}},
		&resource.TrustBundle{TrustDomain: "partner.example"},
		&resource.Certificate{Identity: "/web"},
		&resource.Certificate{WorkloadAPI: &resource.WorkloadAPI{}},
		&resource.Listener{TLS: &resource.ListenerTLS{ClientAuth: &resource.ClientAuth{TrustDomains: []string{"a"}}}},
		&resource.Listener{TLS: &resource.ListenerTLS{ClientAuth: &resource.ClientAuth{CARef: "a"}}},
		&resource.Service{TLS: &resource.ServiceTLS{TrustDomains: []string{"a"}}},
		&resource.Service{TLS: &resource.ServiceTLS{CARef: "a"}},
		&model.VirtualCluster{TLS: &model.VirtualTLS{ClientAuth: &resource.ClientAuth{TrustDomains: []string{"a"}}}},
	} {
		if got := Level(resource.Object{Spec: spec}); got != record.LevelIdentity {
			t.Errorf("%T is of level %d, want %d", spec, got, record.LevelIdentity)
		}
	}
	for _, spec := range []resource.Spec{
		&resource.Listener{TLS: &resource.ListenerTLS{ClientAuth: &resource.ClientAuth{}}},
		&model.VirtualCluster{TLS: &model.VirtualTLS{ClientAuth: &resource.ClientAuth{}}},
		&resource.Service{TLS: &resource.ServiceTLS{}},
		&resource.EndpointProvider{HTTP: &resource.HTTPProvider{TLS: &resource.ServiceTLS{}}},
	} {
		if got := Level(resource.Object{Spec: spec}); got == record.LevelIdentity {
			t.Errorf("%T without the fields is of level %d", spec, got)
		}
	}
}

// A node of the previous release does not know acme.
func TestACMERequiresAFeatureLevel(t *testing.T) {
	t.Parallel()
	objects, faults := codec.Decode("test.yaml", []byte("kind: Certificate\nname: a\n"+
		"spec: {acme: {directory: \"https://ca.example.com/\", names: [a.example.com], agreeToTerms: true}}\n"), All())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if got := Level(objects[0]); got != record.LevelIdentity {
		t.Errorf("acme is of level %d, want %d", got, record.LevelIdentity)
	}
}
