package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

// The quota of a principal holds over all nodes of a cluster, and follows its clients from
// node to node.
func TestAKafkaQuotaOfTheClusterFollowsItsPrincipal(t *testing.T) {
	const rate, burst, size = 1 << 20, 256 << 10, 32 << 10
	nodes := threeMembers(t)
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "pw"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	ca := certs.NewCA("test CA")
	nodes[0].mustApply(t, fmt.Sprintf(`
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
  tls: {certificateRef: shop}
  brokers: {discover: {endpointRef: kafka, bootstrap: bootstrap.shop.test, advertisePort: 9092, sniPattern: "broker-$(nodeId).shop.test"}}
---
kind: RateLimit
name: all
spec: {scope: cluster, by: principal, to: [{virtualClusters: [shop]}], produce: {rate: %d, burst: %d}}
`, broker.ListenAddrs()[0], rate, burst)+nodetest.Certificate("shop", ca.Issue("*.shop.test")))
	began := time.Now()
	var produced atomic.Int64
	moves := []*testNode{nodes[1], nodes[2]}
	for _, n := range moves {
		at := n.at(t, "kafka")
		c, err := kgo.NewClient(kgo.SeedBrokers("bootstrap.shop.test:9092"), kgo.DisableIdempotentWrite(), kgo.DisableClientMetrics(),
			kgo.SASL(plain.Auth{User: "alice", Pass: "pw"}.AsMechanism()), kgo.ProducerLinger(0),
			kgo.ProducerBatchCompression(kgo.NoCompression()), // the quota is of bytes on the wire
			kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
				host, _, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				d := tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: ca.Pool}}
				return d.DialContext(ctx, network, at)
			}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				if c.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: make([]byte, size)}).FirstErr() == nil {
					produced.Add(size)
				}
			}
		}()
		testkit.WaitFor(t, "most of the quota on "+n.cfg.Name, func() bool { return shareOf(t, nodes[0], n.cfg.Name) > 0.9*rate })
		stop()
		<-done
		c.Close()
	}
	// A request passes on each connection before that is held.
	most := rate*time.Since(began).Seconds() + burst + float64(len(moves))*(size+1024)
	if got := float64(produced.Load()); got > most {
		t.Errorf("%.0f bytes were produced, the quota allows %.0f", got, most)
	} else if got < burst/3 {
		t.Errorf("only %.0f bytes were produced", got)
	}
}
