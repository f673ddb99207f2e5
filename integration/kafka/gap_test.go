package kafka

import (
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// gapNode is a node with one TLS listener in front of two fake brokers; topic
// "t" has one partition, on broker 1.
type gapNode struct {
	node
	t       *testing.T
	fake    *kfake.Cluster
	ca      realkafka.Authority
	port    int
	fetches chan struct{} // receives one value when a Fetch arrives
}

// gaps are changes that remove what a client uses; applying resources undoes
// each.
var gaps = []struct {
	name   string
	remove func(w *gapNode)
}{
	{"a virtual cluster is deleted", func(w *gapNode) { w.cli("", "delete", "VirtualCluster", "v") }},
	{"a broker is removed", func(w *gapNode) { w.cli(w.virtual(0), "apply", "-f", "-") }},
}

// TestJavaSurvivesAGap removes a tenant, or one of its brokers, from a running
// Java consumer, and restores it. The consumer must retry: a Java client throws
// any TLS alert out of poll(), and retries only after a FIN.
func TestJavaSurvivesAGap(t *testing.T) {
	for _, gap := range gaps {
		t.Run(gap.name, func(t *testing.T) {
			t.Parallel()
			w := newGapNode(t)
			r := newRun(t, w.target())
			file, machine := r.javaConfig("reconnect.backoff.max.ms=100", "metadata.max.age.ms=500")
			type result struct {
				out string
				err error
			}
			done := make(chan result, 1)
			w.produce("before")
			go func() {
				out, err := realkafka.ToolWith(r.ctx, machine, "", "org.apache.kafka.tools.consumer.ConsoleConsumer",
					"--bootstrap-server", r.bootstrap[0], "--command-config", file, "--topic", "t",
					"--partition", "0", "--offset", "earliest", "--max-messages", "2", "--timeout-ms", "110000")
				done <- result{out, err}
			}()
			<-w.fetches
			gap.remove(w)
			testkit.WaitFor(t, "Java to be refused three times", func() bool {
				select {
				case r := <-done:
					t.Fatalf("Java gave up: %v\n%s", r.err, r.out)
				default:
				}
				return w.refused() >= 3
			})
			w.cli(w.virtual(0, 1), "apply", "-f", "-")
			w.produce("after")
			select {
			case r := <-done:
				if r.err != nil || r.out != "before\nafter\n" {
					t.Errorf("Java got %q: %v", r.out, r.err)
				}
			case <-r.ctx.Done():
				t.Fatal("Java does not exit")
			}
		})
	}
}

func newGapNode(t *testing.T) *gapNode {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "t"))
	must(t, err)
	t.Cleanup(fake.Close)
	must(t, fake.MoveTopicPartition("t", 0, 1))
	w := &gapNode{t: t, fake: fake, fetches: make(chan struct{}, 1)}
	fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		select {
		case w.fetches <- struct{}{}:
		default:
		}
		return nil, nil, false
	})
	w.ca, err = realkafka.NewAuthority(t.TempDir())
	must(t, err)
	cert, key, _ := issued(t, &w.ca, "*."+domain)
	ports, err := process.FreePorts(1)
	must(t, err)
	w.port = ports[0]
	w.node = startNode(t, "closed", fmt.Sprintf(`kind: Listener
name: kafka
spec: {address: "127.0.0.1:%d", protocol: kafka, tls: {}}
---
kind: Certificate
name: kafka
spec: {certFile: %q, keyFile: %q}
---
%s`, w.port, cert, key, w.virtual(0, 1)), ports...)
	waitAnswers(t, w.target())
	return w
}

// virtual returns the virtual and the physical cluster with the given brokers.
func (w *gapNode) virtual(brokers ...int) string {
	var physical, list []string
	for _, i := range brokers {
		physical = append(physical, fmt.Sprintf("{name: p%d, address: %q}", i, w.fake.ListenAddrs()[i]))
		list = append(list, fmt.Sprintf("{name: v%[1]d, endpointRef: kafka, sniMatchAddress: broker-%[1]d.%[2]s, "+
			"physicalBrokerRef: p%[1]d}", i, domain))
	}
	return fmt.Sprintf("kind: PhysicalCluster\n"+
		"name: big\n"+
		"spec: {brokers: [%s]}\n"+
		"---\n"+
		"kind: VirtualCluster\n"+
		"name: v\n"+
		"spec:\n"+
		"  physicalClusterRef: big\n"+
		"  tls: {certificateRef: kafka}\n  drain: {window: 0s}\n  brokers: [%s]\n", strings.Join(physical, ", "), strings.Join(list, ", "))
}

func (w *gapNode) target() target {
	return target{
		name: "Penstock", bootstrap: []string{fmt.Sprintf("broker-0.%s:%d", domain, w.port)},
		tls: &tls.Config{RootCAs: w.ca.Pool}, caFile: w.ca.File, hosts: func(string) string { return "127.0.0.1" },
	}
}

// produce writes a record directly to the brokers.
func (w *gapNode) produce(value string) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.fake.ListenAddrs()...))
	must(w.t, err)
	defer client.Close()
	must(w.t, client.ProduceSync(w.t.Context(), &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr())
}

// refused counts the connections closed with no_route.
func (w *gapNode) refused() int {
	log, err := os.ReadFile(w.Log())
	must(w.t, err)
	return strings.Count(string(log), " reason=no_route ")
}
