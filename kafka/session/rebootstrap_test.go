package session

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/netio"
	"penstock/netio/relay"
)

// told has all sessions that there are leave, in an hour.
func (c *cluster) told(t *testing.T) int {
	t.Helper()
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	for _, h := range c.room.homes {
		h.conn.Post(func() { h.session.Leave("room_reason", time.Hour, time.Hour) })
	}
	return len(c.room.homes)
}

// rebootstrapped is a real client that produces to a cluster of two brokers, and has
// asked both of them for Metadata.
func rebootstrapped(ctx context.Context, t *testing.T, opts ...kgo.Opt) (c *cluster, cl *kgo.Client, produce func(n int)) {
	t.Helper()
	c = newCluster(t, Limits{}, nil, kfake.NumBrokers(2), kfake.SeedTopics(4, "t"))
	opts = append(opts, kgo.DefaultProduceTopic("t"), kgo.ProducerLinger(0), kgo.MetadataMinAge(20*time.Millisecond),
		kgo.OnRebootstrapRequired(func() ([]string, error) { return c.ListenAddrs(), nil }))
	cl = c.client(t, opts...)
	produce = func(n int) {
		t.Helper()
		for i := range n {
			if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(20)
	for _, b := range cl.DiscoveredBrokers() {
		if _, err := b.Request(ctx, kmsg.NewPtrMetadataRequest()); err != nil {
			t.Fatal(err)
		}
	}
	return c, cl, produce
}

// Rule 15: a real client that is told to bootstrap again goes by itself, long
// before its connections would be ended, and loses nothing.
func TestClientRebootstraps(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*testkit.Patience)
	defer cancel()
	c, cl, produce := rebootstrapped(ctx, t, kgo.SoftwareNameAndVersion("tester", "1"))
	n := c.told(t)
	testkit.WaitFor(t, "all drained connections to end", func() bool {
		cl.ForceMetadataRefresh() // it asks whom it likes, seeds as well
		produce(1)
		return len(c.room.endings(t, 0)) >= n
	})
	produce(20)
	for _, e := range c.room.endings(t, 0) {
		if e.why != "room_reason" && e.why != netio.ClientFIN && e.why != netio.ClientReset {
			t.Errorf("ended by %s, %v", e.why, e.err)
		}
	}
}

// Franz-go under its own name is told nothing, and its connections end in time.
func TestFranzGoIsNotToldToRebootstrap(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*testkit.Patience)
	defer cancel()
	c, cl, produce := rebootstrapped(ctx, t)
	c.told(t)
	for _, b := range cl.DiscoveredBrokers() {
		resp, err := b.Request(ctx, kmsg.NewPtrMetadataRequest())
		if err != nil {
			t.Fatal(err)
		}
		if m := resp.(*kmsg.MetadataResponse); m.ErrorCode != 0 || len(m.Brokers) != 2 {
			t.Errorf("error %d, %d brokers", m.ErrorCode, len(m.Brokers))
		}
	}
	produce(5)
	if e := c.room.endings(t, 0); len(e) > 0 {
		t.Errorf("ended: %+v", e)
	}
}

// The answer is one that every reader of the protocol takes.
func TestRebootstrapResponse(t *testing.T) {
	w := newWorld(Limits{})
	w.Leave("room_reason", time.Hour, time.Hour)
	ask := kmsg.NewPtrMetadataRequest()
	ask.Version = rebootstrapVersion
	w.receive(relay.Client, sent{keyMetadata, rebootstrapVersion, 7, ask.AppendTo(nil)}.request(), false)
	frame, rest := cut(w.sides[relay.Client].out)
	if len(rest) > 0 || len(frame) < 9 || !bytes.Equal(frame[4:9], []byte{0, 0, 0, 7, 0}) {
		t.Fatalf("%x, and %x", frame, rest)
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = rebootstrapVersion
	if err := resp.ReadFrom(frame[9:]); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != 129 || len(resp.Brokers)+len(resp.Topics) > 0 || resp.ControllerID != -1 || resp.ClusterID != nil {
		t.Errorf("%+v", resp)
	}
	if frame[13] != 1 || frame[19] != 1 {
		t.Errorf("%x has null arrays, which Java rejects", frame)
	}
	if w.why != "room_reason" || !w.clean || len(w.sides[relay.Upstream].out) > 0 {
		t.Errorf("ended by %q; the broker got %x", w.why, w.sides[relay.Upstream].out)
	}
	for _, fault := range w.finish() {
		t.Error(fault)
	}
}
