package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"penstock/internal/testkit"
	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio"
	"penstock/netio/relay"
)

// Rule 9: every length around nothing and the cap, from either side.
func TestFrameLengths(t *testing.T) {
	const limit = 1000
	header := func(size int32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(size)), rest...)
	}
	request := func(size int32) []byte {
		m := sent{key: keyOf("Metadata"), version: 1, id: 1}
		b := m.request()
		if n := int(size) + 4 - len(b); n > 0 {
			b = append(b, make([]byte, n)...)
		}
		binary.BigEndian.PutUint32(b, uint32(size))
		return b[:4+size]
	}
	for _, test := range []struct {
		from  relay.Side
		bytes []byte
		why   netio.Reason
	}{
		{relay.Client, header(0), BadFrame},
		{relay.Client, header(1, 0), BadFrame},
		{relay.Client, header(7, 0, 3, 0, 1, 0, 0, 0), BadFrame},
		{relay.Client, header(8, 0, 3, 0, 1, 0, 0, 0, 1), BadFrame},
		{relay.Client, header(9, 0, 3, 0, 1, 0, 0, 0, 1, 0), BadFrame},
		{relay.Client, header(10, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff), netio.OK},
		{relay.Client, header(10, 0, 3, 0, 1, 0, 0, 0, 1, 0, 1), BadFrame},
		{relay.Client, header(-1), BadFrame},
		{relay.Client, header(-1 << 31), BadFrame},
		{relay.Client, header(1<<31 - 1), FrameTooLarge},
		{relay.Client, request(limit), netio.OK},
		{relay.Client, request(limit + 1)[:4], FrameTooLarge},
		{relay.Upstream, header(0), BadFrame},
		{relay.Upstream, header(3, 0, 0, 0), BadFrame},
		{relay.Upstream, header(4, 0, 0, 0, 1), netio.OK},
		{relay.Upstream, header(4, 0, 0, 0, 2), Correlation},
		{relay.Upstream, header(-1), BadFrame},
		{relay.Upstream, header(-1 << 31), BadFrame},
		{relay.Upstream, append(header(limit+1, 0, 0, 0, 1), make([]byte, limit-3)...), netio.OK}, // it streams
	} {
		for step := 1; step <= len(test.bytes)+1; step += max(1, len(test.bytes)/5) {
			w := newWorld(Limits{MaxFrame: limit})
			if test.from == relay.Upstream {
				w.receive(relay.Client, sent{key: keyOf("Metadata"), version: 1, id: 1}.request(), false)
			}
			for b := test.bytes; len(b) > 0 && w.over == 0; {
				n := min(step, len(b))
				w.receive(test.from, b[:n], false)
				b = b[n:]
			}
			if w.why != test.why {
				t.Errorf("%x from the %s, %d at a time: %q (%v), want %q", test.bytes[:min(len(test.bytes), 20)], test.from, step, w.why,
					w.err, test.why)
			}
			other := w.sides[test.from.Other()].out
			if test.why == netio.OK && !bytes.Equal(other, test.bytes) || test.why != netio.OK && len(other) > 0 && test.from == relay.Client {
				t.Errorf("%x from the %s: the other side got %d bytes", test.bytes[:min(len(test.bytes), 20)], test.from, len(other))
			}
			for _, fault := range w.finish() {
				t.Error(fault)
			}
		}
	}
	// One that must be collected is capped from the broker as well.
	w := newWorld(Limits{MaxFrame: limit}, eager{filter.Whole})
	w.receive(relay.Client, sent{key: keyOf("Metadata"), version: 1, id: 1, body: []byte{0, 0, 0, 0}}.request(), false)
	w.receive(relay.Upstream, header(limit+1, 0, 0, 0, 1), false)
	if w.why != FrameTooLarge {
		t.Errorf("ended by %q", w.why)
	}
	w.finish()
}

// A frame that must be collected and gets no memory waits, and ends in time.
func TestFrameWaitsForMemory(t *testing.T) {
	w := newWorld(Limits{}, eager{filter.Whole})
	w.budget = 1 << 20
	w.used = 1<<20 - 1000
	m := sent{key: keyOf("Metadata"), version: 1, id: 1, body: make([]byte, 100<<10)}
	b := m.request()
	w.receive(relay.Client, b, false)
	if w.over > 0 || w.sides[relay.Client].reading || len(w.sides[relay.Upstream].out) > 0 {
		t.Fatalf("ended by %q; reading %v", w.why, w.sides[relay.Client].reading)
	}
	w.used = 0
	w.MemoryAvailable()
	if !bytes.Equal(w.sides[relay.Upstream].out, b) || !w.sides[relay.Client].reading || w.used != 0 {
		t.Errorf("ended by %q, %d bytes charged", w.why, w.used)
	}
	w.used = 1<<20 - 1000
	w.receive(relay.Client, b, false)
	w.pass(31 * time.Second)
	if w.why != netio.LimitMemory {
		t.Errorf("ended by %q", w.why)
	}
	w.used -= 1<<20 - 1000
	for _, fault := range w.finish() {
		t.Error(fault)
	}
}

// A frame that is larger than all the memory there may be is refused when its
// header is there: it would wait for ever.
func TestFrameBeyondTheBudgetIsRefusedAtOnce(t *testing.T) {
	ask := sent{key: keyMetadata, version: 1, id: 1, body: []byte{0, 0, 0, 0}}.request()
	big := sent{key: keyMetadata, version: 1, id: 1, body: make([]byte, 100<<10)}
	for name, test := range map[string]struct {
		chain []filter.Filter
		does  func(w *world)
	}{
		"a request": {[]filter.Filter{eager{filter.Whole}}, func(w *world) { w.receive(relay.Client, big.request()[:40], false) }},
		"a response": {[]filter.Filter{eager{filter.Whole}}, func(w *world) {
			w.receive(relay.Client, ask, false)
			w.receive(relay.Upstream, big.response()[:9], false)
		}},
		"a response behind one that waits": {filters("askback Metadata"), func(w *world) {
			w.receive(relay.Client, ask, false)
			w.receive(relay.Client, sent{key: keyMetadata, version: 1, id: 2, body: []byte{0, 0, 0, 0}}.request(), false)
			w.receive(relay.Upstream, sent{keyMetadata, 1, 1, []byte("A")}.response(), false)
			second := big
			second.id = 2
			w.receive(relay.Upstream, second.response()[:9], false)
		}},
	} {
		w := newWorld(Limits{}, test.chain...)
		w.budget = 50 << 10
		test.does(w)
		if w.why != netio.LimitMemory || w.err == nil || !strings.Contains(w.err.Error(), "budget is 51200") {
			t.Errorf("%s: ended by %q, %v", name, w.why, w.err)
		}
		for _, fault := range w.finish() {
			t.Errorf("%s: %s", name, fault)
		}
		// As much as that passes where nobody has to see it.
		w = newWorld(Limits{})
		w.budget = 50 << 10
		w.receive(relay.Client, big.request(), false)
		if w.over > 0 || len(w.sides[relay.Upstream].out) != len(big.request()) {
			t.Errorf("%s: a frame that streams ended by %q", name, w.why)
		}
		w.finish()
	}
}

// What is kept while a response waits is charged as well, and waits for memory.
func TestReorderBufferWaitsForMemory(t *testing.T) {
	w := newWorld(Limits{}, filters("askback Metadata")...)
	w.budget = 100 << 10
	for id := range int32(3) {
		w.receive(relay.Client, sent{key: keyOf("Metadata"), version: 1, id: id + 1}.request(), false)
	}
	w.receive(relay.Upstream, sent{keyOf("Metadata"), 1, 1, []byte("A")}.response(), false)
	w.used = 99 << 10
	big := sent{keyOf("Metadata"), 1, 2, make([]byte, 20<<10)}.response()
	w.receive(relay.Upstream, big, false)
	if w.over > 0 || w.sides[relay.Upstream].reading {
		t.Fatalf("ended by %q, reading %v", w.why, w.sides[relay.Upstream].reading)
	}
	w.used = 0
	w.MemoryAvailable()
	if !w.sides[relay.Upstream].reading {
		t.Fatal("the broker is not read again")
	}
	groups := kmsg.NewPtrListGroupsResponse().AppendTo(nil)
	w.receive(relay.Upstream, sent{keyOf("Metadata"), 1, 3, []byte("C")}.response(), false)
	for id := range int32(3) {
		w.receive(relay.Upstream, sent{keyOf("ListGroups"), 0, -1 - id, groups}.response(), false)
	}
	want := append(sent{keyOf("Metadata"), 1, 1, []byte("asked A")}.response(),
		sent{keyOf("Metadata"), 1, 2, append([]byte("asked "), make([]byte, 20<<10)...)}.response()...)
	want = append(want, sent{keyOf("Metadata"), 1, 3, []byte("asked C")}.response()...)
	if got := w.sides[relay.Client].out; !bytes.Equal(got, want) {
		t.Errorf("the client got %d bytes, want %d; ended by %q, %v", len(got), len(want), w.why, w.err)
	}
	for _, fault := range w.finish() {
		t.Error(fault)
	}
}

// readFrame reads one.
func readFrame(c io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, 4+int(binary.BigEndian.Uint32(size[:])))
	copy(b, size[:])
	_, err := io.ReadFull(c, b[4:])
	return b, err
}

// echoBroker answers each request by its own body.
func echoBroker(c net.Conn) {
	for {
		b, err := readFrame(c)
		if err != nil {
			return
		}
		h, _, err := wire.PeekRequest(b)
		if err != nil {
			return
		}
		if _, err := c.Write(sent{h.Key, h.Version, h.Correlation, b[h.HeaderLen:]}.response()); err != nil {
			return
		}
	}
}

func dialRoom(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * testkit.Patience))
	return c
}

// TestSlowConsumerUsesNoMemory: a fetch of 32 MB stays in the kernel, and
// comes out exact.
func TestSlowConsumerUsesNoMemory(t *testing.T) {
	body := make([]byte, 32<<20)
	for i := range body {
		body[i] = byte(i >> 12)
	}
	r := newRoom(t, Limits{})
	addr := r.serve(t, "l", testkit.Serve(t, func(c net.Conn) {
		if _, err := readFrame(c); err == nil {
			_, _ = c.Write(sent{keyOf("Fetch"), 4, 1, body}.response())
			_, _ = io.Copy(io.Discard, c)
		}
	}))
	c := dialRoom(t, addr)
	if _, err := c.Write(sent{keyOf("Fetch"), 4, 1, []byte("all of it")}.request()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 0, len(body)+8)
	buf := make([]byte, 256<<10)
	for len(got) < len(body)+8 {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
		if pending := r.Stats().Pending; pending > 1<<20 {
			t.Fatalf("%d bytes are kept", pending)
		}
	}
	if !bytes.Equal(got[8:], body) {
		t.Errorf("the bytes differ from %d on", common(got[8:], body))
	}
	c.Close()
	r.endings(t, 1)
}

// TestUnreachableBrokers: the client is kept for a moment (rule 16).
func TestUnreachableBrokers(t *testing.T) {
	r := newRoom(t, Limits{ConnectDelay: 150 * time.Millisecond})
	begin := time.Now()
	c := dialRoom(t, r.serve(t, "l", testkit.FreeAddress(t)))
	_, _ = io.Copy(io.Discard, c)
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("closed after %v", took)
	}
	if e := r.endings(t, 1)[0]; e.why != netio.ConnectRefused || e.err == nil {
		t.Errorf("%+v", e)
	}
}

// TestPeerIsLearnedFromApiVersionsAndSASL: the log learns who the client is.
func TestPeerIsLearnedFromApiVersionsAndSASL(t *testing.T) {
	for _, mechanism := range []sasl.Mechanism{
		plain.Auth{User: "alice", Pass: "secret"}.AsMechanism(),
		scram.Auth{User: "bob", Pass: "secret"}.AsSha256Mechanism(),
	} {
		t.Run(mechanism.Name(), func(t *testing.T) {
			c := newCluster(t, Limits{}, nil, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "t"),
				kfake.Superuser("PLAIN", "alice", "secret"), kfake.Superuser("SCRAM-SHA-256", "bob", "secret"))
			cl := c.client(t, kgo.SASL(mechanism), kgo.ClientID("me"), kgo.DefaultProduceTopic("t"), kgo.SoftwareNameAndVersion("tester", "1.2"))
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
			defer cancel()
			if err := cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			cl.Close()
			name := map[string]string{"PLAIN": "alice", "SCRAM-SHA-256": "bob"}[mechanism.Name()]
			found := false
			testkit.WaitFor(t, "the client's end", func() bool {
				for _, e := range c.room.endings(t, 1) {
					p := e.peer
					found = found || p.Principal == name && p.Mechanism == mechanism.Name() && p.ClientID == "me" &&
						p.Software == "tester" && p.SoftwareVersion == "1.2" && p.Requests > 2
					if strings.Contains(fmt.Sprintf("%+v", e), "secret") {
						t.Error("a secret is in the report")
					}
				}
				return found
			})
		})
	}
}

// TestChainChangesBetweenRequests: connections take the new chain at a frame
// boundary, nobody notices, and the old one is given back while they go on.
func TestChainChangesBetweenRequests(t *testing.T) {
	c := newCluster(t, Limits{}, []filter.Filter{eager{filter.Whole}}, kfake.NumBrokers(2), kfake.SeedTopics(4, "t"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*testkit.Patience)
	defer cancel()
	cl := c.client(t, kgo.DefaultProduceTopic("t"), kgo.ProducerLinger(0))
	chains := [][]filter.Filter{nil, {eager{filter.Walk}}, {eager{filter.Nothing}, eager{filter.Whole}}, {eager{filter.Whole}}}
	for i := range 200 {
		if i%10 == 0 {
			c.room.setChain(t, chains[i/10%len(chains)]...)
		}
		if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	held := 0
	for _, n := range c.room.refs {
		if n > 0 {
			held++
		}
	}
	// Connections that rest keep what they had: the seed's, the group's.
	if len(c.room.refs) < 4 || held > 3 || len(c.room.ends) > 0 {
		t.Errorf("%d of %d chains are held, %d connections ended", held, len(c.room.refs), len(c.room.ends))
	}
}

// TestClientsDoNotNoticeLeave: each is told to leave while it produces and
// consumes; no client sees an error.
func TestClientsDoNotNoticeLeave(t *testing.T) {
	c := newCluster(t, Limits{}, nil, kfake.NumBrokers(2), kfake.SeedTopics(4, "t"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*testkit.Patience)
	defer cancel()
	cl := c.client(t, kgo.DefaultProduceTopic("t"), kgo.ConsumeTopics("t"), kgo.FetchMaxWait(50*time.Millisecond))
	seen := map[string]int{}
	const records = 60
	for i := range records {
		if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if i%15 == 7 {
			c.room.mu.Lock()
			homes := append([]*home(nil), c.room.homes...)
			c.room.mu.Unlock()
			for _, h := range homes {
				h.conn.Post(func() { h.session.Leave("room_reason", 0, time.Minute) })
			}
		}
	}
	for len(seen) < records {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	left := 0
	for _, e := range c.room.endings(t, 4) {
		if e.why != "room_reason" {
			t.Errorf("ended by %s, %v", e.why, e.err)
		}
		left++
	}
	t.Logf("%d connections left", left)
	for v, n := range seen {
		if n != 1 {
			t.Errorf("record %s came %d times", v, n)
		}
	}
}

// BenchmarkExchange is a produce of 1 KB and its response, without I/O.
func BenchmarkExchange(b *testing.B) {
	for name, chain := range map[string][]filter.Filter{"unseen": nil, "walked": {eager{filter.Walk}}, "whole": {eager{filter.Whole}}} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(Limits{}, chain...)
			w.settings.clock = nil
			r := kmsg.NewPtrProduceRequest()
			r.Version, r.Acks = 9, 1
			topic, part := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
			topic.Topic, part.Records = "topic", make([]byte, 1<<10)
			topic.Partitions = append(topic.Partitions, part)
			r.Topics = append(r.Topics, topic)
			resp := kmsg.NewPtrProduceResponse()
			resp.Version = 9
			request := sent{0, 9, 1, r.AppendTo(nil)}.request()
			response := sent{0, 9, 1, resp.AppendTo(nil)}.response()
			b.ReportAllocs()
			for b.Loop() {
				w.Received(relay.Client, request)
				w.Received(relay.Upstream, response)
				w.sides[0].out, w.sides[1].out, w.told = w.sides[0].out[:0], w.sides[1].out[:0], w.told[:0]
			}
			if w.over > 0 {
				b.Fatal(w.why, w.err)
			}
		})
	}
}

// BenchmarkRoundTrip is a synchronous produce of 1 KB over sockets, by a relay
// that understands nothing and by sessions. Client and broker are in this
// process and count, too: compare the lines.
func BenchmarkRoundTrip(b *testing.B) {
	to := testkit.Serve(b, echoBroker)
	body := append([]byte{0, 0, 1, 0, 0, 0, 0}, make([]byte, 1<<10)...)
	request := sent{keyProduce, 9, 1, body}.request()
	run := func(b *testing.B, addr string) {
		c := dialRoom(b, addr)
		answer := make([]byte, len(sent{keyProduce, 9, 1, body}.response()))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Write(request); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, answer); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("direct", func(b *testing.B) { run(b, to) })
	b.Run("relay", func(b *testing.B) {
		r := newRoom(b, Limits{})
		r.plain = true
		run(b, r.serve(b, "l", to))
	})
	b.Run("session", func(b *testing.B) { run(b, newRoom(b, Limits{}).serve(b, "l", to)) })
}
