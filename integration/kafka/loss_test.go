package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
)

// TestBrokerLossThroughPenstock kills and restarts a broker under load, and
// moves leaders: no acknowledged record is lost or duplicated, and each
// partition stays in order. It uses its own brokers.
func TestBrokerLossThroughPenstock(t *testing.T) {
	requireWholeSuite(t)
	if testing.Short() {
		t.Skip("NOT TESTED: -short starts no brokers")
	}
	c, err := realkafka.Start(t.Context(), realkafka.Config{Dir: t.TempDir(), Brokers: 3, FastStart: true})
	must(t, err)
	t.Cleanup(c.Stop)
	v := startVirtual(t, c)
	targets := []target{v.red}
	if longTests() {
		targets = append(targets, v.plain, v.tls)
	}
	for _, g := range targets {
		t.Run(g.name, func(t *testing.T) { survive(newRun(t, g), c) })
	}
}

// load produces numbered records to each partition until stopped.
type load struct {
	acknowledged []int // by partition
	stop         context.CancelFunc
	done         chan error
}

const lossPartitions = 6

func (r *run) produceOn(topic string) *load {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx)
	l := &load{acknowledged: make([]int, lossPartitions), stop: cancel, done: make(chan error, 1)}
	c := r.client(kgo.RecordDeliveryTimeout(testkit.Patience), kgo.ProducerLinger(2*time.Millisecond))
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			var batch []*kgo.Record
			for p := range int32(lossPartitions) {
				batch = append(batch, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Append(nil, n)})
			}
			if err := c.ProduceSync(r.ctx, batch...).FirstErr(); err != nil {
				l.done <- fmt.Errorf("record %d: %w", n, err)
				return
			}
			for p := range l.acknowledged {
				l.acknowledged[p]++
			}
		}
		l.done <- nil
	}()
	return l
}

// survive runs the load through the loss and return of a broker and a move of
// all leaders.
func survive(r *run, c *realkafka.Cluster) {
	topic := r.newTopic("loss", lossPartitions, "min.insync.replicas", "1")
	l := r.produceOn(topic)
	adm := r.admin()
	// Progress is measured by the end offsets, through the proxy.
	progress := func(what string) {
		r.t.Helper()
		end := func() (sum int64) {
			ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
			defer cancel()
			got, err := adm.ListEndOffsets(ctx, topic)
			if err != nil || got.Error() != nil {
				return -1
			}
			got.Each(func(o kadm.ListedOffset) { sum += o.Offset })
			return sum
		}
		var from int64 = -1
		testkit.WaitFor(r.t, "the offsets "+what, func() bool { from = end(); return from >= 0 })
		testkit.WaitFor(r.t, "the load to continue "+what, func() bool { return end() > from+10*lossPartitions })
	}
	progress("at first")
	victim := c.Brokers[2]
	victim.Kill()
	progress("without a broker")
	if err := victim.Start(); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.ctx, testkit.Patience)
	defer cancel()
	if err := c.WaitReady(ctx, len(c.Brokers)); err != nil {
		r.t.Fatalf("%v\n%s", err, c.Logs())
	}
	progress("with the broker back")
	// Move all leaders to one broker, and back.
	var move kadm.AlterPartitionAssignmentsReq
	for p := range int32(lossPartitions) {
		move.Assign(topic, p, []int32{2, 0, 1})
	}
	if moved, err := adm.AlterPartitionAssignments(r.ctx, move); err != nil || moved.Error() != nil {
		r.t.Fatalf("%s: moving: %v, %v", r.name, err, moved)
	}
	testkit.WaitFor(r.t, "all leaders to have moved", func() bool {
		_, _ = adm.ElectLeaders(r.ctx, kadm.ElectPreferredReplica, nil)
		d, err := adm.ListTopics(r.ctx, topic)
		if err != nil || d.Error() != nil {
			return false
		}
		for _, p := range d[topic].Partitions {
			if p.Leader != 2 {
				return false
			}
		}
		return true
	})
	progress("with all leaders moved")
	l.stop()
	if err := <-l.done; err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	r.inOrder(topic, l.acknowledged)
}

// inOrder reads everything and checks that each partition holds 0, 1, 2, ...
func (r *run) inOrder(topic string, acknowledged []int) {
	r.t.Helper()
	from, total := map[int32]kgo.Offset{}, 0
	for p, n := range acknowledged {
		from[int32(p)] = kgo.NewOffset().AtStart()
		total += n
	}
	c := r.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	next := make([]int, len(acknowledged))
	for _, rec := range r.poll(c, total) {
		if want := fmt.Sprint(next[rec.Partition]); string(rec.Value) != want {
			r.t.Fatalf("%s: partition %d has %s where %s is due", r.name, rec.Partition, rec.Value, want)
		}
		next[rec.Partition]++
	}
	r.t.Logf("%s: %d records, each once and in order", r.name, total)
}
