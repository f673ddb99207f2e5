package session

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/netio/relay"
)

// Rule 15: a real client that is told to bootstrap again goes by itself, long
// before its connections would be ended, and loses nothing.
func TestAClientThatIsSteeredAwayBootstrapsAgain(t *testing.T) {
	for _, ownSeeds := range []bool{false, true} {
		t.Run(fmt.Sprintf("own seeds %v", ownSeeds), func(t *testing.T) {
			c := newCluster(t, Limits{}, nil, kfake.NumBrokers(2), kfake.SeedTopics(4, "t"))
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			var asked atomic.Int32
			opts := []kgo.Opt{kgo.DefaultProduceTopic("t"), kgo.ProducerLinger(0), kgo.MetadataMinAge(20 * time.Millisecond)}
			if ownSeeds {
				opts = append(opts, kgo.OnRebootstrapRequired(func() ([]string, error) {
					asked.Add(1)
					return c.ListenAddrs(), nil
				}))
			}
			cl := c.client(t, opts...)
			produce := func(n int) {
				t.Helper()
				for i := range n {
					if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
			}
			produce(20)
			for _, b := range cl.DiscoveredBrokers() { // those that Metadata is asked on
				if _, err := b.Request(ctx, kmsg.NewPtrMetadataRequest()); err != nil {
					t.Fatal(err)
				}
			}
			c.room.mu.Lock()
			before := append([]*home(nil), c.room.homes...)
			c.room.mu.Unlock()
			t.Logf("%d connections are told to go", len(before))
			for _, h := range before {
				h.conn.Post(func() { h.session.Leave("room_reason", time.Hour, time.Hour) })
			}
			waitFor(t, "all that were told to have ended", func() bool {
				cl.ForceMetadataRefresh() // it asks whom it likes, seeds as well
				produce(1)
				return len(c.room.endings(t, 0)) >= len(before)
			})
			for _, e := range c.room.endings(t, 0) {
				if e.err != nil {
					t.Errorf("ended by %s, %v", e.why, e.err)
				}
			}
			produce(20)
			if ownSeeds && asked.Load() == 0 {
				t.Error("the client did not ask for seeds")
			}
		})
	}
}

// The answer is one that every reader of the protocol takes.
func TestTheAnswerThatSteersAway(t *testing.T) {
	w := newWorld(Limits{})
	w.Leave("room_reason", time.Hour, time.Hour)
	ask := kmsg.NewPtrMetadataRequest()
	ask.Version = steersFrom
	w.receive(relay.Client, sent{keyMetadata, steersFrom, 7, ask.AppendTo(nil)}.request(), false)
	frame, rest := cut(w.sides[relay.Client].out)
	if len(rest) > 0 || len(frame) < 9 || !bytes.Equal(frame[4:9], []byte{0, 0, 0, 7, 0}) {
		t.Fatalf("%x, and %x", frame, rest)
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = steersFrom
	if err := resp.ReadFrom(frame[9:]); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != 129 || len(resp.Brokers)+len(resp.Topics) > 0 || resp.ControllerID != -1 || resp.ClusterID != nil {
		t.Errorf("%+v", resp)
	}
	if frame[13] != 1 || frame[19] != 1 {
		t.Errorf("%x has arrays that are null, which Java does not take", frame)
	}
	if w.why != "room_reason" || !w.clean || len(w.sides[relay.Upstream].out) > 0 {
		t.Errorf("ended by %q; the broker got %x", w.why, w.sides[relay.Upstream].out)
	}
	for _, fault := range w.finish() {
		t.Error(fault)
	}
}
