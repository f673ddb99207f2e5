package kafka

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// fakeCluster is franz-go's cluster inside this process: up at once, and there
// where no Java is. A request of an API that it does not know ends the
// process, so sweeps are not for it.
func fakeCluster(t testing.TB, brokers int) target {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(brokers))
	must(t, err)
	t.Cleanup(c.Close)
	return target{name: "kfake", bootstrap: c.ListenAddrs()}
}

// TestEquivalenceOnFakeBrokers runs some of the programs on kfake, also where
// nothing is installed.
func TestEquivalenceOnFakeBrokers(t *testing.T) {
	fake := fakeCluster(t, 3)
	at := fmt.Sprintf("127.%d.252.1", 20+os.Getpid()%200)
	startPenstock(t, fmt.Sprintf("kind: PhysicalCluster\nname: big\nspec: {bootstrap: [%s]}\n---\nkind: VirtualCluster\nname: v\nspec:\n"+
		"  physicalClusterRef: big\n"+
		"  brokers: {discover: {address: %s, bootstrapPort: 9092, brokerPorts: 9093-9099}}\n", quoted(fake.bootstrap), at))
	proxied := target{name: "Penstock", bootstrap: []string{at + ":9092"}}
	waitAnswers(t, proxied)
	compare(t, slices.DeleteFunc(producePrograms(), func(p program) bool {
		// What it says of limits and of transactions' states is its own.
		return p.name == "large records" || p.name == "transactions"
	}), fake, proxied)
}
