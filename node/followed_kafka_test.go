package node

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
	"penstock/node/workload"
)

// kafkaCluster returns a virtual cluster of one listed broker, with TLS settings on both
// sides.
func kafkaCluster(broker, towardsBroker, clientAuth string) string {
	return fmt.Sprintf(`
kind: PhysicalCluster
name: big
spec: {brokers: [{name: a, address: %q}], tls: %s}
---
kind: Listener
name: kafka
spec: {address: "127.0.0.1:0", protocol: kafka, tls: {}}
---
kind: VirtualCluster
name: shop
spec:
  physicalClusterRef: big
  tls: {certificateRef: shop, clientAuth: %s}
  brokers: [{name: a, endpointRef: kafka, sniMatchAddress: a.shop.test, physicalBrokerRef: a, advertise: "a.shop.test:9092"}]
`, broker, towardsBroker, clientAuth)
}

// kafkaBroker starts a broker with TLS and returns its address.
func kafkaBroker(t *testing.T, certificate certs.Pair) string {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate.TLS}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker.ListenAddrs()[0]
}

// askVersions sends an ApiVersions request and waits for the broker's answer. It returns
// the connection.
func askVersions(t *testing.T, at string, config *tls.Config) (net.Conn, error) {
	t.Helper()
	raw, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(testkit.Patience))
	c := tls.Client(raw, config)
	return c, exchangeVersions(c)
}

func exchangeVersions(c net.Conn) error {
	if _, err := c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c, int64(size[3])|int64(size[2])<<8)
	return err
}

// The CAs of clients and brokers of a virtual cluster are followed like those of a
// Listener and a Service: what is replaced holds from the next handshake on.
func TestFilesOfKafkaClustersAreFollowed(t *testing.T) {
	first, second := certs.NewCA("first CA"), certs.NewCA("second CA")
	f, log := newFollowedFiles(t), &logText{}
	f.write(f.clientCA, first.PEM)
	f.write(f.serviceCA, first.PEM)
	n := startNode(t, kafkaCluster(kafkaBroker(t, first.Issue("127.0.0.1")), fmt.Sprintf("{caFile: %q}", f.serviceCA),
		fmt.Sprintf("{mode: require, caFile: %q}", f.clientCA))+nodetest.Certificate("shop", first.Issue("a.shop.test")),
		func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	at := n.at(t, "kafka")
	ask := func(client *certs.CA) (net.Conn, error) {
		return askVersions(t, at, &tls.Config{
			RootCAs: first.Pool, ServerName: "a.shop.test", Certificates: []tls.Certificate{client.Issue("client").TLS},
		})
	}
	wait := func(what string, client *certs.CA, works bool) {
		t.Helper()
		n.Reread()
		testkit.WaitFor(t, what, func() bool {
			c, err := ask(client)
			c.Close()
			return (err == nil) == works
		})
	}
	open, err := ask(first)
	if err != nil {
		t.Fatal(err)
	}
	f.write(f.clientCA, second.PEM)
	wait("the new CA of clients", second, true)
	if _, err := ask(first); err == nil {
		t.Error("a client of the old CA is admitted")
	}
	f.write(f.serviceCA, second.PEM)
	wait("the broker to be refused", second, false)
	f.write(f.serviceCA, second.PEM+first.PEM)
	wait("the broker to be trusted", second, true)
	if err := exchangeVersions(open); err != nil {
		t.Errorf("an established connection: %v", err)
	}

	// Faults change nothing, and are told.
	f.write(f.clientCA, "nothing")
	f.write(f.serviceCA, "nothing")
	n.Reread()
	for _, name := range []string{"VirtualCluster/shop", "PhysicalCluster/big"} {
		testkit.WaitFor(t, "the fault of "+name, func() bool {
			return strings.Contains(strings.Join(n.mustStatus(t).Warnings, "\n"), name+": cannot use its files; what was read before stays in use: ")
		})
		if !log.has("caFile must be PEM", name) {
			t.Errorf("the log does not say what is wrong with %s", name)
		}
		if got := n.metric(t, fmt.Sprintf("penstock_followed_files_usable{resource=%q}", name)); got != "0" {
			t.Errorf("the metric of %s is %q", name, got)
		}
	}
	if _, err := ask(second); err != nil {
		t.Errorf("what was read before is not in use: %v", err)
	}
}

// Without a file that can be read, and without a bundle, a virtual cluster admits nobody
// and trusts no broker.
func TestKafkaClustersWithoutACATrustNobody(t *testing.T) {
	ca := certs.NewCA("CA")
	for name, test := range map[string]struct{ towardsBroker, clientAuth string }{
		"clients":              {fmt.Sprintf("{ca: %q}", ca.PEM), "{mode: require, caFile: /nonexistent/ca.pem}"},
		"brokers":              {"{caFile: /nonexistent/ca.pem}", fmt.Sprintf("{mode: require, ca: %q}", ca.PEM)},
		"clients, by a bundle": {fmt.Sprintf("{ca: %q}", ca.PEM), "{mode: require, caRef: agent}"},
		"brokers, by a bundle": {"{caRef: agent}", fmt.Sprintf("{mode: require, ca: %q}", ca.PEM)},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, kafkaCluster(kafkaBroker(t, ca.Issue("127.0.0.1")), test.towardsBroker, test.clientAuth)+
				"---\nkind: Certificate\nname: agent\nspec: {workloadAPI: {socket: \"unix:///nonexistent/agent.sock\"}}\n"+
				nodetest.Certificate("shop", ca.Issue("a.shop.test")))
			_, err := askVersions(t, n.at(t, "kafka"), &tls.Config{
				RootCAs: ca.Pool, ServerName: "a.shop.test", Certificates: []tls.Certificate{ca.Issue("client").TLS},
			})
			if err == nil {
				t.Error("the broker answers")
			}
		})
	}
}

// The trust bundle of a Certificate verifies clients and brokers, as it comes.
func TestKafkaClustersTrustTheBundleOfACertificate(t *testing.T) {
	n := founder(t, Config{Name: "n1"})
	svid := func(i workload.Identity) *workload.SVID {
		hold, err := n.identities.Hold(i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(hold.Release)
		var s *workload.SVID
		testkit.WaitFor(t, "the certificate of "+i.ID, func() bool { s, _, err = hold.Get(); return err == nil })
		return s
	}
	ca := certs.NewCA("another CA")
	broker := kafkaBroker(t, certs.Pair{TLS: svid(workload.Identity{ID: "/broker", DNS: []string{"broker.test"}}).Cert})
	n.mustApply(t, kafkaCluster(broker, "{caRef: own, serverName: broker.test}", "{mode: require, caRef: own, spiffe: [\"spiffe://*/web\"]}")+
		"---\nkind: Certificate\nname: own\nspec: {identity: /own}\n"+nodetest.Certificate("shop", ca.Issue("a.shop.test")))
	at := n.at(t, "kafka")
	ask := func(client tls.Certificate) error {
		c, err := askVersions(t, at, &tls.Config{RootCAs: ca.Pool, ServerName: "a.shop.test", Certificates: []tls.Certificate{client}})
		c.Close()
		return err
	}
	web := svid(workload.Identity{ID: "/web"}).Cert
	testkit.WaitFor(t, "the bundle", func() bool { return ask(web) == nil })
	for name, client := range map[string]tls.Certificate{
		"another identity": svid(workload.Identity{ID: "/batch"}).Cert, "another CA": ca.Issue("client").TLS,
	} {
		if ask(client) == nil {
			t.Errorf("a client of %s is admitted", name)
		}
	}
	foreign := kafkaBroker(t, ca.Issue("broker.test"))
	n.mustApply(t, fmt.Sprintf("kind: PhysicalCluster\nname: big\nspec: {brokers: [{name: a, address: %q}], tls: {caRef: own, serverName: broker.test}}\n", foreign))
	if ask(web) == nil {
		t.Error("a broker of another CA is trusted")
	}
}
