package kafka

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// fakeCluster starts franz-go's fake cluster in this process: it starts at once
// and needs no Java. A request of an API that it does not support ends the
// process, so sweeps cannot use it.
func fakeCluster(t testing.TB, brokers int) target {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(brokers))
	must(t, err)
	t.Cleanup(c.Close)
	return target{name: "kfake", bootstrap: c.ListenAddrs()}
}

// TestEquivalenceOnFakeBrokers runs some of the programs on kfake; it needs no
// installed peers.
func TestEquivalenceOnFakeBrokers(t *testing.T) {
	fake := fakeCluster(t, 3)
	at := fmt.Sprintf("127.%d.252.1", 20+os.Getpid()%200)
	startPenstock(t, fmt.Sprintf("kind: PhysicalCluster\nname: big\nspec: {bootstrap: [%s]}\n---\nkind: VirtualCluster\nname: v\nspec:\n"+
		"  physicalClusterRef: big\n"+
		"  brokers: {discover: {address: %s, bootstrapPort: 9092, brokerPorts: 9093-9099}}\n", quoted(fake.bootstrap), at))
	proxied := target{name: "Penstock", bootstrap: []string{at + ":9092"}}
	waitAnswers(t, proxied)
	compare(t, slices.DeleteFunc(producePrograms(), func(p program) bool {
		// kfake differs from Kafka in limits and transaction states.
		return p.name == "large records" || p.name == "transactions"
	}), fake, proxied)
}
