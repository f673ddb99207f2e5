package providers

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"penstock/node/tlsconfig"
	"penstock/routing/provider"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// settings are the least of each type of provider.
var settings = map[string]string{
	"dns":        "dns: {servers: [127.0.0.1]}",
	"file":       "file: {path: /etc/endpoints.yaml}",
	"http":       "http: {url: 'http://127.0.0.1/'}",
	"kubernetes": "kubernetes: {}",
	"consul":     "consul: {}",
	"etcd":       "etcd: {endpoints: ['127.0.0.1:2379'], prefix: /services}",
	"xds":        "xds: {server: '127.0.0.1:18000'}",
}

func sourceOf(t *testing.T, spec string) (provider.Source, error) {
	t.Helper()
	objects, faults := codec.Decode("p.yaml", []byte("kind: EndpointProvider\nname: p\nspec: {"+spec+"}\n"), resource.RoutingKinds())
	if len(faults) > 0 {
		t.Fatalf("%s: %v", spec, faults)
	}
	return NewSource(objects[0].Spec.(*resource.EndpointProvider).WithDefaults(), tlsconfig.NewStore(), "", slog.New(slog.DiscardHandler))
}

func TestEachTypeOfProviderHasASource(t *testing.T) {
	field, _ := reflect.TypeFor[resource.EndpointProvider]().FieldByName("Type")
	types := strings.Fields(field.Tag.Get("oneof"))
	if len(types) != len(settings) {
		t.Errorf("the resource has the types %v, the test %d", types, len(settings))
	}
	for _, kind := range types {
		if _, err := sourceOf(t, "type: "+kind+", "+settings[kind]); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for _, kind := range []string{"dns", "kubernetes", "consul"} { // they need no settings
		if _, err := sourceOf(t, "type: "+kind); err != nil {
			t.Errorf("%s without settings: %v", kind, err)
		}
	}
}

// Each setting reaches its source, which has the same bounds: validation lets
// nothing pass that a source refuses.
func TestSourcesTakeTheBoundsOfTheResource(t *testing.T) {
	for _, spec := range []string{
		"type: kubernetes, kubernetes: {timeout: 100ms, maxBytes: 1KiB, maxObjects: 1, rate: 1, family: IPv4, namespaces: [a, b]}",
		"type: kubernetes, kubernetes: {timeout: 5m, maxBytes: 1GiB, maxObjects: 10000000, rate: 10000, family: IPv6, allNamespaces: true}",
		"type: kubernetes, kubernetes: {kubeconfig: /k, context: c, allowExec: true, namespace: a, labelSelector: 'a in (b, c),!d'}",
		"type: xds, xds: {server: '[::1]:1', timeout: 100ms, keepAlive: 10s, maxBytes: 1KiB, metadata: {a: b}, locality: {region: r}}",
		"type: xds, maxEndpoints: 100000, xds: {server: 'a.example.com:1', timeout: 10m, keepAlive: 1h, maxBytes: 1GiB, tls: {}, clusters: true}",
	} {
		if _, err := sourceOf(t, spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// The libraries of the sources are silent: the test runs itself as a process
// whose standard error it reads.
func TestLibrariesDoNotWriteToStandardError(t *testing.T) {
	if os.Getenv("PROVIDERS_TEST_LOGS") != "" {
		grpclog.Error("grpc")
		grpclog.Component("core").Warning("grpc")
		klog.Error("klog")
		klog.Background().Error(nil, "klog")
		klog.Flush()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "PROVIDERS_TEST_LOGS=1", "GRPC_GO_LOG_SEVERITY_LEVEL=info")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v, standard error: %q", err, stderr.String())
	}
}
