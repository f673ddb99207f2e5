package kafka

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"penstock/integration/realkafka"
	"penstock/internal/testkit/process"
)

// mechanisms returns the mechanisms by which alice logs in.
func mechanisms() map[string]sasl.Mechanism {
	password := realkafka.Users["alice"]
	return map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: "alice", Pass: password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: "alice", Pass: password}.AsSha256Mechanism(),
		"OAUTHBEARER": oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
			now := time.Now().Unix()
			return oauth.Auth{Token: part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":"alice","iat":%d,"exp":%d}`, now, now+600)) + "."}, nil
		}),
	}
}

// TestSASLThroughPenstock logs in with each mechanism, directly and through a
// virtual cluster with TLS for clients, and works beyond the broker's session
// lifetime (KIP-368).
func TestSASLThroughPenstock(t *testing.T) {
	c := cluster(t)
	proxied := startSASL(t, c)
	for name, mechanism := range mechanisms() {
		own, through := target{name: "direct", bootstrap: c.Bootstrap(realkafka.SASL)}, proxied
		own.sasl, through.sasl = []sasl.Mechanism{mechanism}, []sasl.Mechanism{mechanism}
		compare(t, []program{{name, loggedIn}}, own, through)
	}
	own := target{name: "direct", bootstrap: c.Bootstrap(realkafka.SASL)}
	compare(t, []program{{"logins that fail", wrongLogins}}, own, proxied)
}

// startSASL starts a virtual cluster with TLS in front of the brokers' SASL
// listeners.
func startSASL(t testing.TB, c *realkafka.Cluster) target {
	t.Helper()
	cert, key, _ := issued(t, &c.CA, "*."+domain)
	ports, err := process.FreePorts(1)
	must(t, err)
	startPenstock(t, fmt.Sprintf(`kind: PhysicalCluster
name: big
spec:
  brokers:
  - {name: b0, address: %q}
  - {name: b1, address: %q}
  - {name: b2, address: %q}
---
kind: Certificate
name: kafka
spec: {certFile: %q, keyFile: %q}
---
kind: Listener
name: kafka
spec: {address: "127.0.0.1:%d", protocol: kafka, tls: {}}
---
kind: VirtualCluster
name: sasl
spec:
  physicalClusterRef: big
  tls: {certificateRef: kafka}
  brokers:
  - {name: v0, endpointRef: kafka, sniMatchAddress: broker-0.%[7]s, physicalBrokerRef: b0}
  - {name: v1, endpointRef: kafka, sniMatchAddress: broker-1.%[7]s, physicalBrokerRef: b1}
  - {name: v2, endpointRef: kafka, sniMatchAddress: broker-2.%[7]s, physicalBrokerRef: b2}
`, c.Brokers[0].Addr(realkafka.SASL), c.Brokers[1].Addr(realkafka.SASL), c.Brokers[2].Addr(realkafka.SASL),
		cert, key, ports[0], domain), ports[0])
	return target{
		name: "Penstock", bootstrap: []string{fmt.Sprintf("broker-1.%s:%d", domain, ports[0])},
		tls: &tls.Config{RootCAs: c.CA.Pool}, hosts: func(string) string { return "127.0.0.1" },
	}
}

// loggedIn writes records one by one on the same connections; with PLAIN, for
// longer than a session lasts.
func loggedIn(r *run) {
	topic := r.newTopic("sasl", 3)
	c := r.client()
	until := time.Now()
	if r.sasl[0].Name() == "PLAIN" {
		until = until.Add(4 * time.Second)
	}
	n := 0
	for ; n < 30 || time.Now().Before(until); n++ {
		rec := &kgo.Record{Topic: topic, Partition: int32(n % 3), Timestamp: epoch, Value: []byte("logged in")}
		if err := c.ProduceSync(r.ctx, rec).FirstErr(); err != nil {
			r.t.Fatalf("%s: record %d: %v", r.name, n, err)
		}
	}
	r.record("all was written")
	described := kmsg.NewPtrDescribeClusterRequest()
	described.IncludeClusterAuthorizedOperations = true
	r.ask(c, described)
}

// wrongLogins checks that wrong passwords fail as without a proxy.
func wrongLogins(r *run) {
	for name, mechanism := range map[string]sasl.Mechanism{
		"PLAIN": plain.Auth{User: "alice", Pass: "wrong"}.AsMechanism(),
		"SCRAM": scram.Auth{User: "alice", Pass: "wrong"}.AsSha256Mechanism(),
	} {
		r.sasl = []sasl.Mechanism{mechanism}
		c := r.client(kgo.RequestRetries(0))
		ctx, cancel := context.WithTimeout(r.ctx, 10*time.Second)
		err := c.Ping(ctx)
		cancel()
		if err == nil {
			r.t.Errorf("%s: a wrong password with %s is accepted", r.name, name)
		}
		c.Close()
	}
	// A request without a login closes the connection.
	raw, err := r.raw(r.ctx, r.bootstrap[0])
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	defer raw.Close()
	r.exchange(raw, "metadata without a login", request(3, 12))
}
