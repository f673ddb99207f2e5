package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/internal/testkit"
	"penstock/kafka/model"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// A configuration file in the form of Kroxylicious 0.25 leads a client to the
// brokers: by server names on one port, as a tenant of the name of its virtual
// cluster.
func TestKroxyliciousConfigurationServesAClient(t *testing.T) {
	k := fake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "red-orders"))
	folder, err := filepath.Abs("model/testdata/kroxylicious")
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t, Config{})
	s.applyForeign(fmt.Sprintf(`
clusterDefinitions:
- {name: real, bootstrapServers: "%s"}
filterDefinitions:
- {name: tenant, type: MultiTenant}
defaultFilters: [tenant]
virtualClusters:
- name: red
  target: {cluster: real}
  gateways:
  - name: public
    sniHostIdentifiesNode:
      bootstrapAddress: $(virtualClusterName).a.example.com:9192
      advertisedBrokerAddressPattern: broker-$(nodeId).a.example.com
    tls: {key: {privateKeyFile: %s/a.key, certificateFile: %s/a.crt}}
`, strings.Join(k.ListenAddrs(), ","), folder, folder))
	pair, err := tls.LoadX509KeyPair(folder+"/a.crt", folder+"/a.key")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	pem, _ := os.ReadFile(folder + "/a.crt")
	roots.AppendCertsFromPEM(pem)
	at := s.listen(&tls.Config{Certificates: []tls.Certificate{pair}}, "kafka-9192")["kafka-9192"]

	client, err := kgo.NewClient(
		kgo.SeedBrokers("red.a.example.com:9192"), kgo.ConsumeTopics("orders"),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil || port != "9192" {
				return nil, fmt.Errorf("%s is not an address of the gateway: %w", address, err)
			}
			d := tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: roots}}
			return d.DialContext(ctx, network, at)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("hello")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	got := client.PollFetches(ctx)
	if err := got.Err(); err != nil || got.NumRecords() != 1 {
		t.Errorf("%d records, %v; want 1", got.NumRecords(), err)
	}

	direct, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.ConsumeTopics("red-orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if got := direct.PollFetches(ctx); got.NumRecords() != 1 {
		t.Errorf("%d records at the brokers, %v; want 1", got.NumRecords(), got.Err())
	}
}

// applyForeign puts a document of another format in force.
func (s *stage) applyForeign(text string) {
	s.t.Helper()
	objects, faults := codec.DecodeForeign("proxy.yaml", []byte(text), append(resource.RoutingKinds(), Kinds()...), model.Foreign())
	var changes []resource.Change
	for i := range objects {
		faults = append(faults, codec.LoadFiles(&objects[i], ".", func(name string, _ int) ([]byte, error) { return os.ReadFile(name) })...)
		changes = append(changes, resource.Put(objects[i]))
	}
	if len(faults) > 0 {
		s.t.Fatal(faults)
	}
	if _, err := s.proxy.Apply(changes); err != nil {
		s.t.Fatal(err)
	}
}
