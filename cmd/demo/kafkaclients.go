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
	recordEvery    = 100 * time.Millisecond // of each producer
	// kept is how many records of a partition stay: the embedded cluster has
	// them in memory.
	kept      = 500
	trimEvery = 5 * time.Second
)

// kafkaTraffic is Kafka's clients and what they saw: a producer and a consumer
// for each partition of each tenant's topic. Each record has a number, and must
// follow the one before.
type kafkaTraffic struct {
	world   *world
	cluster *cluster

	produced, consumed atomic.Int64
	wrong              atomic.Int64 // records lost, doubled or out of place
	spared, broken     atomic.Int64 // connections: of killed nodes, others

	mu     sync.Mutex
	faults []string
}

func (k *kafkaTraffic) fault(format string, args ...any) {
	k.wrong.Add(1)
	k.say(format, args...)
}

// say keeps what the last word tells of.
func (k *kafkaTraffic) say(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.faults) < 10 {
		k.faults = append(k.faults, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// client makes a client of a tenant. Its names lead to the balancer.
func (k *kafkaTraffic) client(tenant string, opts ...kgo.Opt) (*kgo.Client, error) {
	seed := "bootstrap" + suffix(tenant) + ":" + portText(k.cluster.kafka)
	if tenant == "blue" {
		seed = k.cluster.plain
	}
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seed), kgo.Dialer(k.dial), kgo.DisableClientMetrics(), kgo.ClientID("demo-" + tenant),
		kgo.ConnIdleTimeout(10 * time.Minute), kgo.MetadataMinAge(200 * time.Millisecond),
		// A node that is killed ends connections before their first answer, which
		// the client takes for a broker that wants SASL. None here does.
		kgo.AlwaysRetryEOF(),
	}, opts...)...)
}

// dial connects by way of the balancer: names have no addresses here, and TLS
// is wanted where there is a name.
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
		secure := tls.Client(c, &tls.Config{RootCAs: k.world.roots, ServerName: host})
		if err := secure.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, err
		}
		c = secure
	}
	return &watchedConn{Conn: c, traffic: k}, nil
}

// watchedConn counts connections that their client did not end.
type watchedConn struct {
	net.Conn
	traffic *kafkaTraffic
	own     atomic.Bool
	told    sync.Once
}

// Close ends it by the client's wish.
func (c *watchedConn) Close() error {
	c.own.Store(true)
	return c.Conn.Close()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// A read that a client gives up (it ends, or polls no more) ends by its
	// deadline.
	if err != nil && !c.own.Load() && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.told.Do(func() {
			if c.traffic.cluster.balancer.excused(client{c.LocalAddr().String(), c.RemoteAddr().String()}) {
				c.traffic.spared.Add(1)
			} else {
				c.traffic.broken.Add(1)
				c.traffic.say("the connection from %s to %s broke: %v", c.LocalAddr(), c.RemoteAddr(), err)
			}
		})
	}
	return n, err
}

// start makes the topics and runs the clients; stop ends them.
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
			producer, err := k.client(name, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(demoTopic), kgo.ProducerLinger(0))
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

// makeTopic makes the demo's topic, also where the answer to the first request
// for it was lost.
func makeTopic(ctx context.Context, c *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, conditionPatience)
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
		pause(ctx, recordEvery)
	}
}

func (k *kafkaTraffic) consume(ctx context.Context, tenant string, c, admin *kgo.Client, partition int32) {
	next := int64(0)
	trimmed := time.Now()
	for ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if string(r.Value) != strconv.FormatInt(next, 10) {
				k.fault("%s: record %q at offset %d, where %d was to come", tenant, r.Value, r.Offset, next)
			}
			next++
			k.consumed.Add(1)
		})
		if next > kept && time.Since(trimmed) > trimEvery {
			trimmed = time.Now()
			var before kadm.Offsets
			before.AddOffset(demoTopic, partition, next-kept, -1)
			_, _ = kadm.NewClient(admin).DeleteRecords(ctx, before) // the next one will
		}
	}
}

// visit uses a tenant for a moment: one record there and back.
func (k *kafkaTraffic) visit(ctx context.Context, tenant string) error {
	c, err := k.client(tenant, kgo.DefaultProduceTopic(demoTopic), kgo.ConsumeTopics(demoTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := makeTopic(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, conditionPatience)
	defer cancel()
	if err := c.ProduceSync(ctx, kgo.StringRecord("hello")).FirstErr(); err != nil {
		return err
	}
	if fetches := c.PollFetches(ctx); fetches.NumRecords() == 0 {
		return fmt.Errorf("no record came back: %w", errors.Join(fetches.Err(), ctx.Err()))
	}
	_, err = kadm.NewClient(c).DeleteTopic(ctx, demoTopic)
	return err
}

func portText(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
