package dataplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

// kafkaPlane is a data plane with the virtual cluster "shop" behind a TLS port, whose
// clients show certificates of one CA.
type kafkaPlane struct {
	*testPlane
	ca *certs.CA
}

// startKafka starts one in front of a fake broker with these topics.
func startKafka(t *testing.T, more string, topics ...string) *kafkaPlane {
	t.Helper()
	return startKafkaBroker(t, more, kfake.SeedTopics(1, topics...))
}

func startKafkaBroker(t *testing.T, more string, opts ...kfake.Opt) *kafkaPlane {
	t.Helper()
	return startKafkaWith(t, more, func(*Config) {}, opts...)
}

func startKafkaWith(t *testing.T, more string, change func(*Config), opts ...kfake.Opt) *kafkaPlane {
	t.Helper()
	broker, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	ca := certs.NewCA("test CA")
	return &kafkaPlane{ca: ca, testPlane: start(t, fmt.Sprintf(`---
kind: PhysicalCluster
name: big
spec: {bootstrap: [%q]}
---
kind: Listener
name: kafka
spec: {address: "127.0.0.1:0", protocol: kafka, tls: {}}
---
kind: VirtualCluster
name: shop
spec:
  physicalClusterRef: big
  tls: {certificateRef: shop, clientAuth: {mode: require, ca: %q}}
  brokers: {discover: {endpointRef: kafka, bootstrap: bootstrap.shop.test, advertisePort: 9092, sniPattern: "broker-$(nodeId).shop.test"}}
`, broker.ListenAddrs()[0], ca.PEM)+nodetest.Certificate("shop", ca.Issue("*.shop.test"))+more, change)}
}

// dial returns a function that dials the port with a certificate that has a SPIFFE ID,
// under the server name of the address.
func (k *kafkaPlane) dial(t *testing.T, id string) func(ctx context.Context, network, address string) (net.Conn, error) {
	t.Helper()
	u, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	cert := k.ca.Sign(&x509.Certificate{
		URIs: []*url.URL{u}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}).TLS
	at := k.at(t, "kafka")
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		d := tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: k.ca.Pool, Certificates: []tls.Certificate{cert}}}
		return d.DialContext(ctx, network, at)
	}
}

// client returns a client that shows a certificate with a SPIFFE ID.
func (k *kafkaPlane) client(t *testing.T, id string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers("bootstrap.shop.test:9092"), kgo.Dialer(k.dial(t, id)), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryTimeout(testkit.Patience), kgo.DisableIdempotentWrite(), kgo.DisableClientMetrics(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func produceTo(t *testing.T, c *kgo.Client, topic string, size int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	return c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, size)}).FirstErr()
}

// topicsSeen returns the topics that a client sees.
func topicsSeen(t *testing.T, c *kgo.Client) (names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	r, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range r.Topics {
		names = append(names, *topic.Topic)
	}
	slices.Sort(names)
	return names
}

const kafkaPermissions = `---
kind: TrafficPermission
name: all
spec: {to: [{virtualClusters: [shop], kafka: [{}]}], action: allow}
---
kind: TrafficPermission
name: no-bills
spec:
  from: [{identities: ["spiffe://corp.example/ns/*/web"]}]
  to: [{virtualClusters: [shop], kafka: [{operations: [produce], topics: ["bills-*"]}]}]
  action: deny
---
kind: TrafficPermission
name: no-secrets
spec:
  from: [{identities: ["spiffe://corp.example/ns/*/web"]}]
  to: [{virtualClusters: [shop], kafka: [{topics: ["secret-*"]}]}]
  action: deny
`

// Permissions for Kafka requests know a client by the SPIFFE ID of its certificate.
func TestKafkaPermissionsKnowIdentities(t *testing.T) {
	n := startKafka(t, kafkaPermissions, "bills-1", "orders", "secret-1")
	web := n.client(t, "spiffe://corp.example/ns/a/web")
	if err := produceTo(t, web, "orders", 1); err != nil {
		t.Error(err)
	}
	for _, topic := range []string{"bills-1", "secret-1"} {
		if err := produceTo(t, web, topic, 1); !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("producing to %s: %v", topic, err)
		}
	}
	if got := topicsSeen(t, web); !slices.Equal(got, []string{"bills-1", "orders"}) {
		t.Errorf("web sees %v", got)
	}
	batch := n.client(t, "spiffe://corp.example/ns/a/batch")
	for _, topic := range []string{"bills-1", "orders", "secret-1"} {
		if err := produceTo(t, batch, topic, 1); err != nil {
			t.Errorf("batch, producing to %s: %v", topic, err)
		}
	}
	if got := topicsSeen(t, batch); len(got) != 3 {
		t.Errorf("batch sees %v", got)
	}
}

// A listener that gives its clients other tags changes what established connections
// may do.
func TestKafkaPermissionsKnowTheTagsOfTheListener(t *testing.T) {
	n := startKafka(t, `---
kind: TrafficPermission
name: no-guests
spec: {from: [{tags: {group: guests}}], to: [{virtualClusters: [shop], kafka: [{topics: ["secret-*"]}]}], action: deny}
`, "secret-1")
	c := n.client(t, "spiffe://corp.example/ns/a/web")
	if err := produceTo(t, c, "secret-1", 1); err != nil {
		t.Fatal(err)
	}
	const connections = `penstock_connections{listener="kafka",service="shop"}`
	before := n.metric(t, connections)
	n.mustApply(t, "kind: Listener\nname: kafka\nspec: {address: \"127.0.0.1:0\", protocol: kafka, tls: {}, tags: {group: guests}}\n")
	testkit.WaitFor(t, "the topic to be closed to established connections", func() bool {
		return errors.Is(produceTo(t, c, "secret-1", 1), kerr.TopicAuthorizationFailed)
	})
	if after := n.metric(t, connections); after != before {
		t.Errorf("%s connections, and %s before", after, before)
	}
	// A client that came again would be known by the new tags anyway.
	if ended := n.metric(t, `penstock_connections_total{listener="kafka",result="client_fin",service="shop"}`); ended != "" {
		t.Errorf("%s connections ended", ended)
	}
}
