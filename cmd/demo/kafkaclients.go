package demo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	demoTopic      = "orders"
	demoPartitions = 2
	recordInterval = 100 * time.Millisecond // per producer
	// keptRecords is the number of records kept per partition: the embedded
	// cluster holds them in memory.
	keptRecords  = 500
	trimInterval = 5 * time.Second
)

// kafkaTraffic runs the Kafka clients, a producer and a consumer per partition
// of each tenant's topic, and counts what they observe. Records are numbered
// and must arrive in order.
type kafkaTraffic struct {
	fixtures *fixtures
	cluster  *cluster

	produced, consumed   atomic.Int64
	misplaced            atomic.Int64 // records lost, duplicated or out of order
	lostWithNode, broken atomic.Int64 // broken connections: of killed nodes, of others

	mu     sync.Mutex
	faults []string
}

func (k *kafkaTraffic) fault(format string, args ...any) {
	k.misplaced.Add(1)
	k.log(format, args...)
}

// log records a message for the summary.
func (k *kafkaTraffic) log(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.faults) < 10 {
		k.faults = append(k.faults, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// client returns a client of a tenant that connects through the balancer.
func (k *kafkaTraffic) client(tenant string, opts ...kgo.Opt) (*kgo.Client, error) {
	seed := "bootstrap" + suffix(tenant) + ":" + portText(k.cluster.kafka)
	if tenant == "blue" {
		seed = k.cluster.plain
	}
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seed), kgo.Dialer(k.dial), kgo.DisableClientMetrics(), kgo.ClientID("demo-" + tenant),
		kgo.ConnIdleTimeout(10 * time.Minute), kgo.MetadataMinAge(200 * time.Millisecond),
		// A killed node closes connections before their first answer, which the
		// client takes for a broker that requires SASL. No broker here does.
		kgo.AlwaysRetryEOF(),
	}, opts...)...)
}

// dial connects through the balancer: broker names do not resolve here, and use
// TLS.
func (k *kafkaTraffic) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	named := net.ParseIP(host) == nil
	if named {
		address = k.cluster.kafka
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if named {
		secure := tls.Client(c, &tls.Config{RootCAs: k.fixtures.roots, ServerName: host})
		if err := secure.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, err
		}
		c = secure
	}
	return &watchedConn{Conn: c, traffic: k}, nil
}

// watchedConn counts connections that break without their client closing them.
type watchedConn struct {
	net.Conn
	traffic        *kafkaTraffic
	closedByClient atomic.Bool
	reported       sync.Once
}

// Close closes the connection on behalf of the client.
func (c *watchedConn) Close() error {
	c.closedByClient.Store(true)
	return c.Conn.Close()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// A client interrupts a pending read by setting its deadline.
	if err != nil && !c.closedByClient.Load() && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.reported.Do(func() {
			if c.traffic.cluster.balancer.excused(client{c.LocalAddr().String(), c.RemoteAddr().String()}) {
				c.traffic.lostWithNode.Add(1)
			} else {
				c.traffic.broken.Add(1)
				c.traffic.log("the connection from %s to %s broke: %v", c.LocalAddr(), c.RemoteAddr(), err)
			}
		})
	}
	return n, err
}

// start creates the topics and runs the clients until stop is called.
func (k *kafkaTraffic) start(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	var clients []*kgo.Client
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		for _, c := range clients {
			c.Close()
		}
	})
	for _, name := range tenantNames {
		admin, err := k.client(name)
		if err != nil {
			stop()
			return nil, err
		}
		clients = append(clients, admin)
		if err := makeTopic(ctx, admin); err != nil {
			stop()
			return nil, fmt.Errorf("tenant %s: %w", name, err)
		}
		for p := range int32(demoPartitions) {
			producer, err := k.client(name, kgo.RecordPartitioner(kgo.ManualPartitioner()),
				kgo.DefaultProduceTopic(demoTopic), kgo.ProducerLinger(0))
			if err != nil {
				stop()
				return nil, err
			}
			consumer, err := k.client(name, kgo.FetchMaxWait(500*time.Millisecond),
				kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{demoTopic: {p: kgo.NewOffset().AtStart()}}))
			if err != nil {
				producer.Close()
				stop()
				return nil, err
			}
			clients = append(clients, producer, consumer)
			wg.Go(func() { k.produce(ctx, name, producer, p) })
			wg.Go(func() { k.consume(ctx, name, consumer, admin, p) })
		}
	}
	return stop, nil
}

// makeTopic creates the demo's topic. It also succeeds if the answer to an
// earlier attempt was lost.
func makeTopic(ctx context.Context, c *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, conditionTimeout)
	defer cancel()
	for {
		r, err := kadm.NewClient(c).CreateTopic(ctx, demoPartitions, 1, nil, demoTopic)
		if err = errors.Join(err, r.Err); err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return err
		}
	}
}

func (k *kafkaTraffic) produce(ctx context.Context, tenant string, c *kgo.Client, partition int32) {
	for n := int64(0); ctx.Err() == nil; n++ {
		r := &kgo.Record{Partition: partition, Value: strconv.AppendInt(nil, n, 10)}
		if err := c.ProduceSync(context.WithoutCancel(ctx), r).FirstErr(); err != nil {
			k.fault("%s: record %d: %v", tenant, n, err)
			return
		}
		k.produced.Add(1)
		pause(ctx, recordInterval)
	}
}

func (k *kafkaTraffic) consume(ctx context.Context, tenant string, c, admin *kgo.Client, partition int32) {
	next := int64(0)
	trimmed := time.Now()
	for ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if string(r.Value) != strconv.FormatInt(next, 10) {
				k.fault("%s: record %q at offset %d, want %d", tenant, r.Value, r.Offset, next)
			}
			next++
			k.consumed.Add(1)
		})
		if next > keptRecords && time.Since(trimmed) > trimInterval {
			trimmed = time.Now()
			var before kadm.Offsets
			before.AddOffset(demoTopic, partition, next-keptRecords, -1)
			_, _ = kadm.NewClient(admin).DeleteRecords(ctx, before) // retried with the next trim
		}
	}
}

// useTenant produces one record to a tenant's topic, consumes it, and deletes the
// topic.
func (k *kafkaTraffic) useTenant(ctx context.Context, tenant string) error {
	c, err := k.client(tenant, kgo.DefaultProduceTopic(demoTopic), kgo.ConsumeTopics(demoTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := makeTopic(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, conditionTimeout)
	defer cancel()
	if err := c.ProduceSync(ctx, kgo.StringRecord("hello")).FirstErr(); err != nil {
		return err
	}
	if fetches := c.PollFetches(ctx); fetches.NumRecords() == 0 {
		return fmt.Errorf("consumed no record: %w", errors.Join(fetches.Err(), ctx.Err()))
	}
	_, err = kadm.NewClient(c).DeleteTopic(ctx, demoTopic)
	return err
}

func portText(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
