package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
)

// tenants are virtual clusters of a Penstock cluster behind one TLS port, all
// on one fake Kafka cluster of three brokers.
type tenants struct {
	t       *testing.T
	cluster *cluster
	ca      *authority
	roots   *x509.CertPool
	fake    *kfake.Cluster

	mu   sync.Mutex
	lost map[string]int // connections not closed by their client, by tenant
}

const kafkaPort = "9092"

func newTenants(t *testing.T, f *cluster) *tenants {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	ca := newAuthority(t, "ca")
	w := &tenants{t: t, cluster: f, ca: ca, roots: ca.Pool, fake: fake, lost: map[string]int{}}
	f.members[0].apply(fmt.Sprintf("kind: Listener\nname: kafka\nspec: {address: \":%s\", protocol: kafka, tls: {}}\n---\n"+
		"kind: PhysicalCluster\nname: big\nspec: {bootstrap: [%q]}\n", kafkaPort, fake.ListenAddrs()[0]))
	return w
}

// resources returns the resources of a tenant; more is added to its spec.
func (w *tenants) resources(name, more string) string {
	return fmt.Sprintf(`kind: VirtualCluster
name: %[1]s
spec:
  physicalClusterRef: big
  tls: {certificateRef: %[1]s}
  filters: [{type: MultiTenant, config: {tenantKey: %[1]s}}]
  brokers: {discover: {endpointRef: kafka, bootstrap: "bootstrap.%[1]s.test", sniPattern: "broker-$(nodeId).%[1]s.test"}}
  drain: {window: 1s, transactionDeadline: 1s}
%[2]s
`, name, more)
}

func (w *tenants) certificate(name string) string {
	return certificate(name, w.ca.issue("*."+name+".test")) + "---\n"
}

// client returns a client of a tenant; each of its connections goes to a random
// node.
func (w *tenants) client(tenant string, opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		up := w.cluster.up()
		raw, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(up[rand.IntN(len(up))].ip, kafkaPort))
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, &tls.Config{ServerName: host, RootCAs: w.roots})
		if err := c.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		return &watchedConn{Conn: c, lost: func() { w.mu.Lock(); w.lost[tenant]++; w.mu.Unlock() }}, nil
	}
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers("bootstrap." + tenant + ".test:" + kafkaPort), kgo.Dialer(dial), kgo.ConnIdleTimeout(10 * time.Minute),
		kgo.DisableClientMetrics(), kgo.MetadataMaxAge(2 * time.Second), kgo.MetadataMinAge(100 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// watchedConn reports connections that the other side ended.
type watchedConn struct {
	net.Conn
	lost           func()
	reported       sync.Once
	closedByClient atomic.Bool
}

func (c *watchedConn) Close() error { c.closedByClient.Store(true); return c.Conn.Close() }

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !c.closedByClient.Load() && !errors.Is(err, net.ErrClosed) {
		c.reported.Do(c.lost)
	}
	return n, err
}

func (w *tenants) lostConnections(tenant string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost[tenant]
}

// recordStream is one producer and one consumer of a partition; records must
// arrive in order.
type recordStream struct {
	produced, consumed atomic.Int64
}

func (w *tenants) startStream(ctx context.Context, wg *sync.WaitGroup, tenant string, partition int32) *recordStream {
	s := new(recordStream)
	producer := w.client(tenant, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("orders"), kgo.ProducerLinger(0))
	consumer := w.client(tenant,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {partition: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxWait(200*time.Millisecond))
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := int64(0); ctx.Err() == nil; n++ {
			r := &kgo.Record{Partition: partition, Value: fmt.Appendf(nil, "%d", n)}
			if err := producer.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				w.t.Errorf("tenant %s, record %d: %v", tenant, n, err)
				return
			}
			if r.Offset != n {
				w.t.Errorf("tenant %s, record %d came to offset %d", tenant, n, r.Offset)
			}
			s.produced.Store(n + 1)
			<-tick.C
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			fetches := consumer.PollFetches(ctx)
			fetches.EachError(func(_ string, _ int32, err error) {
				if ctx.Err() == nil {
					w.t.Errorf("tenant %s: fetch: %v", tenant, err)
				}
			})
			fetches.EachRecord(func(r *kgo.Record) {
				if want := fmt.Sprint(s.consumed.Load()); string(r.Value) != want || fmt.Sprint(r.Offset) != want {
					w.t.Errorf("tenant %s: record %q at offset %d, want %s", tenant, r.Value, r.Offset, want)
				}
				s.consumed.Add(1)
			})
		}
	})
	return s
}

// createTopic creates the topic of a tenant.
func (w *tenants) createTopic(tenant string, partitions int) {
	w.t.Helper()
	adm := kadm.NewClient(w.client(tenant))
	ctx, cancel := context.WithTimeout(w.t.Context(), testkit.Patience)
	defer cancel()
	r, err := adm.CreateTopic(ctx, int32(partitions), 1, nil, "orders")
	if err = errors.Join(err, r.Err); err != nil {
		w.t.Fatalf("tenant %s: %v", tenant, err)
	}
}

// Kafka clients continue while tenants are added, changed and removed through
// any node: no connection is reopened, even of a changed tenant, and no record
// is lost, duplicated or delivered to another tenant.
func TestTenantChangesBreakNoClient(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	w := newTenants(t, f)
	names := []string{"red", "green", "blue"}
	streams := 6
	switch {
	case long():
		streams = 34 // 204 clients
	case raceEnabled:
		streams = 3
	}
	for _, name := range names {
		f.members[0].apply(w.certificate(name) + w.resources(name, ""))
		w.createTopic(name, streams)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var all []*recordStream
	for _, name := range names {
		for p := range streams {
			all = append(all, w.startStream(ctx, &wg, name, int32(p)))
		}
	}
	moved := func(what string) {
		t.Helper()
		before := make([]int64, len(all))
		for i, s := range all {
			before[i] = s.consumed.Load()
		}
		testkit.WaitFor(t, "every stream to go on after "+what, func() bool {
			for i, s := range all {
				if s.consumed.Load() < before[i]+3 {
					return false
				}
			}
			return true
		})
	}
	moved("the start")
	for i := range 6 {
		m := f.members[i%3]
		m.apply(w.certificate("extra") + w.resources("extra", ""))
		w.createTopic("extra", 1)
		m.apply(w.resources("red", fmt.Sprintf("  maxFrame: %dMiB", 50+i)))
		m.apply(w.certificate("green"))
		m.apply(w.resources("blue", []string{"  unmappedBrokers: hide", "  maxInFlight: 500"}[i%2]))
		m.apply(fmt.Sprintf("kind: PhysicalCluster\n"+
			"name: big\n"+
			"spec: {bootstrap: [%q], connect: {timeout: %ds}}\n", w.fake.ListenAddrs()[i%3], 5+i))
		adm := kadm.NewClient(w.client("extra"))
		if _, err := adm.DeleteTopic(ctx, "orders"); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
		m.must("delete", "VirtualCluster", "extra")
		moved(fmt.Sprintf("round %d", i))
	}
	for _, name := range names {
		if n := w.lostConnections(name); n > 0 {
			t.Errorf("%d connections of tenant %s were broken by changes", n, name)
		}
	}
	stop()
	wg.Wait()
	records := int64(0)
	for _, s := range all {
		records += s.consumed.Load()
	}
	t.Logf("%d clients, %d records, each in its place; 36 changes, no connection broken", 2*len(all), records)
}

// Only the clients of a removed tenant are disconnected.
func TestRemovedTenantDisconnectsItsClients(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	w := newTenants(t, f)
	for _, name := range []string{"red", "green"} {
		f.members[0].apply(w.certificate(name) + w.resources(name, ""))
		w.createTopic(name, 1)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	green := w.startStream(ctx, &wg, "green", 0)
	red := w.client("red")
	if err := red.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	f.members[0].must("delete", "VirtualCluster", "red")
	testkit.WaitFor(t, "the clients of red to be sent away", func() bool { return w.lostConnections("red") > 0 })
	testkit.WaitFor(t, "no connection of red to be left", func() bool {
		s := f.members[0].status()
		for _, c := range s.VirtualClusters {
			if c.Name == "red" {
				return false
			}
		}
		return red.Ping(ctx) != nil
	})
	at := green.consumed.Load()
	testkit.WaitFor(t, "green to go on", func() bool { return green.consumed.Load() > at+5 })
	if n := w.lostConnections("green"); n > 0 {
		t.Errorf("%d connections of green were lost", n)
	}
	stop()
	wg.Wait()
}

// Every node finds a new broker as soon as a client requests it, without
// waiting for the next discovery: the client may have learnt of the broker
// through another node.
func TestNewBrokerIsReachedThroughEveryNode(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	w := newTenants(t, f)
	f.members[0].apply(fmt.Sprintf("kind: PhysicalCluster\n"+
		"name: big\n"+
		"spec: {bootstrap: [%q], discovery: {interval: 1h}}\n"+
		"---\n", w.fake.ListenAddrs()[0]) +
		w.certificate("red") + w.resources("red", ""))
	greet := func(m *member, broker int32) error {
		t.Helper()
		config := &tls.Config{ServerName: fmt.Sprintf("broker-%d.red.test", broker), RootCAs: w.roots}
		c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", net.JoinHostPort(m.ip, kafkaPort))
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
			return err
		}
		req := kmsg.NewPtrApiVersionsRequest()
		if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 4))
		return err
	}
	for _, m := range f.members {
		for broker := range int32(3) {
			if err := greet(m, broker); err != nil {
				t.Fatalf("%s, broker %d: %v", m.name, broker, err)
			}
		}
	}
	id, _, err := w.fake.AddNode(-1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.members {
		if err := greet(m, id); err != nil {
			t.Errorf("%s, the new broker %d: %v", m.name, id, err)
		}
	}
}
