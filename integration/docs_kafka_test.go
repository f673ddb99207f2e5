package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/internal/testkit/process"
)

// kafkaExample returns the resources of a virtual cluster in front of a fake
// broker, and the bootstrap address for clients.
func kafkaExample(t *testing.T) (text, bootstrap string) {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	ports, err := process.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	text = fmt.Sprintf(`---
kind: PhysicalCluster
name: big
spec: {bootstrap: [%q]}
---
kind: VirtualCluster
name: tenant
spec:
  physicalClusterRef: big
  filters: [{type: TopicMetrics}]
  brokers: {discover: {address: 127.0.0.1, bootstrapPort: %d, brokerPorts: "%d-%d"}}
---
kind: TrafficPermission
name: watched-requests
spec:
  action: shadowDeny
  to: [{virtualClusters: [tenant], kafka: [{operations: [describe], topics: [orders]}]}]
`, fake.ListenAddrs()[0], ports[0], ports[1], ports[1])
	return text, fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// kafkaOnce requests a cluster's metadata until it answers, and produces a
// record.
func kafkaOnce(ctx context.Context, t *testing.T, bootstrap string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for client.Ping(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatalf("the virtual cluster at %s did not answer in time", bootstrap)
		}
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("one")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
