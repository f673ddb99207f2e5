package kafka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/internal/testkit"
)

// epoch is the timestamp of the first record that programs write.
var epoch = time.UnixMilli(1_700_000_000_000)

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
}

func producePrograms() []program {
	all := []program{
		{"acks 0 and 1", fewerAcks}, {"large records", largeRecords}, {"idempotent", idempotent},
		{"transactions", transactions}, {"consume, transform, produce", exactlyOnce},
		{"offsets by time, records deleted", offsets},
	}
	for _, c := range codecs {
		all = append(all, program{"compression " + c.name, func(r *run) { compressed(r, c.codec) }})
	}
	return all
}

// records returns n records, spread over partitions, each with a key, headers
// and some compressible bytes.
func records(topic string, n int, partitions int32) []*kgo.Record {
	var all []*kgo.Record
	for i := range n {
		all = append(all, &kgo.Record{
			Topic: topic, Partition: int32(i) % partitions, Timestamp: epoch.Add(time.Duration(i) * time.Millisecond),
			Key: fmt.Appendf(nil, "key %d", i), Value: fmt.Appendf(nil, "value %d %s", i, strings.Repeat("abc", i%50)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, i)}},
		})
	}
	return all
}

// produce writes the records, in order within a partition, and records the
// partition and offset of each.
func (r *run) produce(c *kgo.Client, all ...*kgo.Record) {
	r.t.Helper()
	var lines []string
	for _, result := range c.ProduceSync(r.ctx, all...) {
		if result.Err != nil {
			r.t.Fatalf("%s: produce: %v", r.name, result.Err)
		}
		lines = append(lines, "wrote "+whereabouts(result.Record))
	}
	r.recordSorted(lines)
}

func whereabouts(rec *kgo.Record) string {
	return fmt.Sprintf("%s/%d@%d %q %x", rec.Topic, rec.Partition, rec.Offset, rec.Key, sha256.Sum256(rec.Value))
}

// consume reads n records of a topic from its beginning and records them by
// partition.
func (r *run) consume(topic string, partitions int32, n int, more ...kgo.Opt) {
	r.t.Helper()
	from := map[int32]kgo.Offset{}
	for p := range partitions {
		from[p] = kgo.NewOffset().AtStart()
	}
	c := r.client(append(more, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))...)
	defer c.Close()
	var lines []string
	for _, rec := range r.poll(c, n) {
		lines = append(lines, fmt.Sprintf("read %s at %d codec %d headers %s", whereabouts(rec), rec.Timestamp.UnixMilli(),
			rec.Attrs.CompressionType(), rec.Headers))
	}
	r.recordSorted(lines)
}

// poll returns the next n records of a client.
func (r *run) poll(c *kgo.Client, n int) []*kgo.Record {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, testkit.Patience)
	defer cancel()
	var got []*kgo.Record
	for len(got) < n {
		fetches := c.PollRecords(ctx, n-len(got))
		if err := fetches.Err(); err != nil {
			r.t.Fatalf("%s: %d of %d records, then %v", r.name, len(got), n, err)
		}
		got = append(got, fetches.Records()...)
	}
	return got
}

func compressed(r *run, codec kgo.CompressionCodec) {
	topic := r.newTopic("compressed", 3)
	c := r.client(kgo.ProducerBatchCompression(codec))
	r.produce(c, records(topic, 150, 3)...)
	r.consume(topic, 3, 150)
}

func fewerAcks(r *run) {
	topic := r.newTopic("acks", 2)
	for i, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck()} {
		c := r.client(kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
		for _, rec := range records(topic, 40, 2) {
			rec.Value = fmt.Appendf(rec.Value, " round %d", i)
			if err := c.ProduceSync(r.ctx, rec).FirstErr(); err != nil {
				r.t.Fatalf("%s: %v", r.name, err)
			}
		}
		// Without acknowledgements offsets are unknown; flushing suffices for the
		// order on one connection.
		r.consume(topic, 2, 40*(i+1))
	}
}

func largeRecords(r *run) {
	topic := r.newTopic("large", 1, "max.message.bytes", "12000000")
	c := r.client(kgo.ProducerBatchMaxBytes(11_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	var all []*kgo.Record
	for i := range 3 {
		all = append(all, &kgo.Record{
			Topic: topic, Timestamp: epoch, Key: fmt.Append(nil, i),
			Value: []byte(strings.Repeat(fmt.Sprintf("large record %d.", i), 4_000_000/15)),
		})
	}
	r.produce(c, all...)
	r.consume(topic, 1, 3, kgo.FetchMaxPartitionBytes(9_000_000))
	over := r.client(kgo.ProducerBatchMaxBytes(14_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordRetries(1))
	err := over.ProduceSync(r.ctx, &kgo.Record{Topic: topic, Value: make([]byte, 13_000_000)}).FirstErr()
	r.record("a record of 13 MB: %v", err)
}

// idempotent sends many small batches at once; sequence numbers keep them in
// order.
func idempotent(r *run) {
	topic := r.newTopic("idempotent", 1)
	// The benefit of compression would depend on the records per batch.
	c := r.client(kgo.ProducerLinger(0), kgo.MaxBufferedRecords(10_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	errs := make(chan error, 500)
	for i := range cap(errs) {
		c.Produce(r.ctx, &kgo.Record{Topic: topic, Timestamp: epoch, Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) { errs <- err })
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			r.t.Fatalf("%s: %v", r.name, err)
		}
	}
	r.consume(topic, 1, cap(errs))
}

// transactions commits, aborts, fences, and reads with both isolation levels.
func transactions(r *run) {
	topic, id := r.newTopic("txn", 2), r.uniqueName("txn")
	c := r.client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	write := func(what string, how kgo.TransactionEndTry) {
		if err := c.BeginTransaction(); err != nil {
			r.t.Fatalf("%s: begin: %v", r.name, err)
		}
		for p := range int32(2) {
			r.produce(c, &kgo.Record{Topic: topic, Partition: p, Timestamp: epoch, Value: []byte(what)})
		}
		if err := c.EndTransaction(r.ctx, how); err != nil {
			r.t.Fatalf("%s: end: %v", r.name, err)
		}
	}
	write("committed first", kgo.TryCommit)
	write("aborted", kgo.TryAbort)
	write("committed second", kgo.TryCommit)
	r.consume(topic, 2, 4, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	r.consume(topic, 2, 6, kgo.FetchIsolationLevel(kgo.ReadUncommitted()))

	adm := r.admin()
	testkit.WaitFor(r.t, "the transaction to be complete", func() bool {
		all, err := adm.DescribeTransactions(r.ctx, id)
		return err == nil && all[id].Err == nil && all[id].State == "CompleteCommit" && all[id].TimeoutMillis == 60_000
	})
	// Another producer with the same ID fences the first.
	other := r.client(kgo.TransactionalID(id))
	if _, _, err := other.ProducerID(r.ctx); err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	_ = c.BeginTransaction()
	err := c.ProduceSync(r.ctx, &kgo.Record{Topic: topic, Value: []byte("fenced")}).FirstErr()
	if err == nil {
		err = c.EndTransaction(r.ctx, kgo.TryCommit)
	}
	r.record("the fenced one fails: %v", err != nil)
}

// exactlyOnce moves records between topics, with offsets in the transaction.
func exactlyOnce(r *run) {
	from, to, group := r.newTopic("eos-from", 2), r.newTopic("eos-to", 1), r.uniqueName("eos")
	r.produce(r.client(), records(from, 60, 2)...)
	s, err := kgo.NewGroupTransactSession(r.options(kgo.TransactionalID(group), kgo.ConsumerGroup(group), kgo.ConsumeTopics(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	moved, aborted := 0, false
	for moved < 60 {
		fetches := s.PollRecords(r.ctx, 20)
		if err := fetches.Err(); err != nil {
			r.t.Fatalf("%s: %v", r.name, err)
		}
		if err := s.Begin(); err != nil {
			r.t.Fatalf("%s: begin: %v", r.name, err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			s.Produce(r.ctx, &kgo.Record{Topic: to, Timestamp: epoch, Value: rec.Value}, nil)
		})
		n := fetches.NumRecords()
		try := kgo.TransactionEndTry(aborted)
		ended, err := s.End(r.ctx, try)
		if err != nil {
			r.t.Fatalf("%s: end: %v", r.name, err)
		}
		aborted = true // the first one was aborted: its records are delivered again
		if ended {
			moved += n
		}
	}
	adm := r.admin()
	testkit.WaitFor(r.t, "the last transaction's offsets", func() bool {
		committed, err := adm.FetchOffsets(r.ctx, group)
		sum := int64(0)
		committed.Each(func(o kadm.OffsetResponse) { sum += o.At })
		return err == nil && sum == 60
	})
	r.committed(group)
	reader := r.client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics(to))
	var values []string
	for _, rec := range r.poll(reader, 60) {
		values = append(values, string(rec.Value))
	}
	r.recordSorted(values)
}

func offsets(r *run) {
	topic, adm := r.newTopic("offsets", 2), r.admin()
	r.produce(r.client(), records(topic, 100, 2)...)
	list := func(what string, got kadm.ListedOffsets, err error) {
		if err = errors.Join(err, got.Error()); err != nil {
			r.t.Fatalf("%s: %s: %v", r.name, what, err)
		}
		var lines []string
		got.Each(func(o kadm.ListedOffset) {
			lines = append(lines, fmt.Sprintf("%s: %s/%d@%d at %d", what, o.Topic, o.Partition, o.Offset, o.Timestamp))
		})
		r.recordSorted(lines)
	}
	got, err := adm.ListOffsetsAfterMilli(r.ctx, epoch.UnixMilli()+40, topic)
	list("after 40 ms", got, err)
	got, err = adm.ListMaxTimestampOffsets(r.ctx, topic)
	list("newest", got, err)
	before := kadm.Offsets{}
	before.AddOffset(topic, 0, 10, -1)
	before.AddOffset(topic, 1, 1000, -1)
	deleted, err := adm.DeleteRecords(r.ctx, before)
	if err != nil {
		r.t.Fatalf("%s: delete records: %v", r.name, err)
	}
	for _, d := range deleted.Sorted() {
		r.record("deleted %s/%d before %d: %v", d.Topic, d.Partition, d.LowWatermark, d.Err)
	}
	got, err = adm.ListStartOffsets(r.ctx, topic)
	list("start", got, err)
	got, err = adm.ListEndOffsets(r.ctx, topic)
	list("end", got, err)
	r.consume(topic, 2, 90)
}
