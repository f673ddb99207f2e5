package session

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio/relay"
)

// prefixing is a filter that puts a prefix before topics while they stream.
type prefixing struct{ eager }

var prefixEdits = filter.Edits{
	Topic:       func(dst, name []byte) ([]byte, error) { return append(append(dst, "tenant-"...), name...), nil },
	TopicGrowth: len("tenant-"),
}

func (prefixing) Wants(d filter.Direction, key, version int16) filter.Interest {
	if version == 7 && (key == int16(kmsg.Produce) && d == filter.Request || key == int16(kmsg.Fetch) && d == filter.Response) {
		return filter.Walk
	}
	return filter.Nothing
}
func (p prefixing) Open(filter.Info) filter.Conn                         { return p }
func (prefixing) Edits(filter.Direction, *filter.Exchange) *filter.Edits { return &prefixEdits }

// drama is a world in which everything goes as chance has it: which requests
// come, in which pieces, when the broker answers, who stalls.
type drama struct {
	*world
	t     *testing.T
	rnd   *rand.Rand
	asked map[int32]sent // by id; ids are not used twice here
	input [2][]byte      // that is to come from each side
	want  [2][]byte      // what each side should get in all
	own   int
	tight bool // others hold all of the memory at times
}

const (
	apiPass, apiAnswer, apiAsk, apiAskBack = "Metadata", "Heartbeat", "ListOffsets", "OffsetFetch"
	apiShout                               = "FindCoordinator"
)

func playByChance(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	d := &drama{t: t, rnd: rnd, asked: map[int32]sent{}}
	chain := append(filters("answer "+apiAnswer+", ask "+apiAsk+", askback "+apiAskBack+", shout "+apiShout), prefixing{})
	d.world = newWorld(Limits{MaxInFlight: 1 + rnd.IntN(6)}, chain...)
	d.tight = rnd.IntN(4) == 0
	n := 1 + rnd.IntN(20)
	for id := range int32(n) {
		d.add(id + 1)
	}
	d.run()
	for i, name := range []string{"client", "broker"} {
		if got := d.got(i); !bytes.Equal(got, d.want[i]) {
			t.Fatalf("seed %d: the %s got %d bytes, want %d, the same up to %d; ended %q, %v", seed, name, len(got), len(d.want[i]),
				common(got, d.want[i]), d.why, d.err)
		}
	}
	if d.over > 0 {
		t.Fatalf("seed %d: ended by %s, %v", seed, d.why, d.err)
	}
	if !d.Idle() {
		t.Fatalf("seed %d: not idle at the end", seed)
	}
	d.Ended(relay.Client)
	for _, fault := range d.finish() {
		t.Fatalf("seed %d: %s", seed, fault)
	}
	if d.why != "client_fin" || !d.clean {
		t.Fatalf("seed %d: ended by %s", seed, d.why)
	}
}

func common(a, b []byte) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (d *drama) bytes() []byte {
	n := d.rnd.IntN(50)
	switch d.rnd.IntN(40) {
	case 0, 1:
		n = d.rnd.IntN(200 << 10)
	case 2, 3, 4, 5:
		n = d.rnd.IntN(5000)
	}
	b := make([]byte, n)
	for i, start := 0, d.rnd.IntN(1000); i < n; i++ {
		b[i] = 'a' + byte((start+i*i/3)%26)
	}
	return b
}

// add adds a request, and what shall become of it.
func (d *drama) add(id int32) {
	m := sent{id: id, version: 1, body: d.bytes()}
	resp := d.bytes()
	toBroker, toClient := m.body, resp
	answered := false
	switch d.rnd.IntN(9) {
	case 0, 1:
		m.key = keyOf(apiPass)
	case 2:
		m.key, m.version, answered = keyOf(apiAnswer), 0, true
		toClient = kmsg.NewPtrHeartbeatResponse().AppendTo(nil)
	case 3:
		m.key = keyOf(apiAsk)
		toBroker = append([]byte("asked "), m.body...)
	case 4:
		m.key = keyOf(apiAskBack)
		toClient = append([]byte("asked "), resp...)
	case 5:
		m.key = keyOf(apiShout)
		toBroker = bytes.ToUpper(m.body)
	case 6: // acks=0 or 1
		m.key, m.version = keyOf("Produce"), 2
		m.body = append([]byte{0, byte(d.rnd.IntN(2))}, m.body...)
		toBroker = m.body
	case 7:
		m.key, m.version = keyOf("Produce"), 7
		m.body = produce7(d.rnd, d.bytes())
		toBroker = d.rewritten(filter.Request, m)
	case 8:
		m.key, m.version = keyOf("Fetch"), 7
		resp = fetch7(d.rnd, d.bytes())
		toClient = d.rewritten(filter.Response, sent{key: m.key, version: 7, body: resp})
	}
	d.input[relay.Client] = append(d.input[relay.Client], m.request()...)
	if !answered {
		d.want[relay.Upstream] = append(d.want[relay.Upstream], sent{m.key, m.version, id, toBroker}.request()...)
	}
	if m.key != keyOf("Produce") || m.version != 2 || m.body[1] != 0 {
		d.want[relay.Client] = append(d.want[relay.Client], sent{m.key, m.version, id, toClient}.response()...)
	}
	d.asked[id] = sent{m.key, m.version, id, resp}
}

func (d *drama) rewritten(dir filter.Direction, m sent) []byte {
	b, err := wire.Rewrite(nil, wire.Direction(dir), m.key, m.version, m.body, &prefixEdits)
	if err != nil {
		d.t.Fatal(err)
	}
	return append([]byte(nil), b...)
}

func produce7(rnd *rand.Rand, records []byte) []byte {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks = 7, 1
	for i := range rnd.IntN(4) {
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = fmt.Sprint("topic", i)
		for range rnd.IntN(3) {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Records = records
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
	}
	return r.AppendTo(nil)
}

func fetch7(rnd *rand.Rand, records []byte) []byte {
	r := kmsg.NewPtrFetchResponse()
	r.Version = 7
	for i := range rnd.IntN(4) {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = fmt.Sprint("topic", i)
		for range rnd.IntN(3) {
			p := kmsg.NewFetchResponseTopicPartition()
			p.RecordBatches = records
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
	}
	return r.AppendTo(nil)
}

// got is what a side has got, but for the questions of filters.
func (d *drama) got(side int) []byte {
	if side == int(relay.Client) {
		return d.sides[side].out
	}
	var all []byte
	p := d.sides[side].out
	for {
		frame, rest := cut(p)
		if frame == nil {
			return append(all, p...)
		}
		if int32(binary.BigEndian.Uint32(frame[8:])) > 0 {
			all = append(all, frame...)
		}
		p = rest
	}
}

// run plays until nothing can happen any more.
func (d *drama) run() {
	looked := 0
	for idle := 0; idle < 400 && d.over == 0; { // who stalls goes on in one of eight
		idle++
		// The broker answers what it has got.
		if frame, rest := cut(d.sides[relay.Upstream].out[looked:]); frame != nil {
			looked = len(d.sides[relay.Upstream].out) - len(rest)
			d.reply(frame)
			idle = 0
		}
		side := relay.Side(d.rnd.IntN(2))
		switch d.rnd.IntN(8) {
		case 0:
			d.sides[side].stalled = true
		case 1, 2:
			d.take(side)
		case 3:
			d.pass(time.Millisecond)
			if d.others = 0; d.tight && d.rnd.IntN(2) == 0 {
				d.others = d.budget
			} else {
				d.MemoryAvailable()
			}
		default:
			if in := d.input[side]; len(in) > 0 && d.sides[side].reading {
				n := 1 + d.rnd.IntN(min(len(in), 1+d.rnd.IntN(70<<10)))
				d.input[side] = in[n:]
				d.receive(side, in[:n], d.rnd.IntN(2) == 0)
				idle = 0
			}
		}
	}
	for side := range d.sides {
		d.take(relay.Side(side))
	}
}

func (d *drama) reply(frame []byte) {
	h, _, err := wire.PeekRequest(frame)
	if err != nil {
		d.t.Fatal(err)
	}
	if h.Correlation < 0 {
		d.own++
		m := sent{h.Key, h.Version, h.Correlation, kmsg.NewPtrListGroupsResponse().AppendTo(nil)}
		d.input[relay.Upstream] = append(d.input[relay.Upstream], m.response()...)
		return
	}
	m := d.asked[h.Correlation]
	if m.key == keyOf("Produce") && m.version == 2 && frame[h.HeaderLen+1] == 0 {
		return
	}
	d.input[relay.Upstream] = append(d.input[relay.Upstream], m.response()...)
}

// TestAnySplitAndAnyStallGivesTheSame drives sessions by chance and compares what
// came out with what the requests and filters say.
func TestAnySplitAndAnyStallGivesTheSame(t *testing.T) {
	seeds := uint64(500) // the fuzz target goes on
	if raceEnabled {
		seeds = 25 // nothing here runs at once
	}
	for seed := range seeds {
		playByChance(t, seed)
	}
}

func FuzzSession(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(playByChance)
}

// FuzzBytes has clients and brokers send anything. A session may end by it, and
// must then hold nothing; what it lets through goes on as it is.
func FuzzBytes(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x0f\x00\x03\x00\x01\x00\x00\x00\x01\x00\x01aXYZ"), []byte("\x00\x00\x00\x06\x00\x00\x00\x01AB"),
		uint16(5), byte(0))
	f.Add([]byte("\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"),
		[]byte("\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"), uint16(3), byte(3))
	f.Add([]byte("\x00\x00\x00\x0a\x00\x03\x00\x00\x00\x00\x00\x01\xff\xff"), []byte("\x00\x00\x00\x04\x00\x00\x00\x01"), uint16(100), byte(1))
	chains := [][]filter.Filter{nil, filters("askback Metadata, ask Produce"), {eager{filter.Whole}}, {eager{filter.Walk}}}
	f.Fuzz(func(t *testing.T, client, broker []byte, step uint16, chain byte) {
		w := newWorld(Limits{MaxFrame: 1 << 20}, chains[int(chain)%len(chains)]...)
		for n := 1 + int(step); len(client)+len(broker) > 0 && w.over == 0; {
			k := min(n, len(client))
			w.receive(relay.Client, client[:k], step%2 == 0)
			client = client[k:]
			k = min(n, len(broker))
			w.receive(relay.Upstream, broker[:k], step%3 == 0)
			broker = broker[k:]
		}
		w.pass(2 * time.Minute)
		for _, fault := range w.finish() {
			t.Error(fault)
		}
	})
}
