package filter

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wary walks Produce requests, and buffers where it is told to.
type wary struct {
	buffers bool
	seen    []string
}

func (w *wary) Versions(_ int16, have Range) Range { return have }
func (w *wary) Wants(d Direction, key, _ int16) Interest {
	if key == int16(kmsg.Produce) && d == Request {
		return Walk
	}
	return Nothing
}
func (w *wary) Open(Info) Conn           { return w }
func (w *wary) Close()                   {}
func (w *wary) MayBuffer(*Exchange) bool { return w.buffers }
func (w *wary) Request(*Exchange, *Message) error {
	w.seen = append(w.seen, "whole")
	return nil
}
func (w *wary) Response(*Exchange, *Message) error { return nil }
func (w *wary) Edits(Direction, *Exchange) *Edits {
	w.seen = append(w.seen, "walked")
	return nil
}

// sink is where messages leave a chain, to be done with.
type sink struct{ sent int }

func (s *sink) ToBroker(c *Call) error { s.sent++; c.Done(); return nil }
func (s *sink) ToClient(c *Call) error { c.Done(); return nil }
func (s *sink) Dropped(c *Call) error  { c.Done(); return nil }

func TestBufferingFilterSeesTheWholeRequest(t *testing.T) {
	sure, unsure := &wary{}, &wary{buffers: true}
	chain, err := NewChain([]Filter{sure, unsure})
	if err != nil {
		t.Fatal(err)
	}
	end := &sink{}
	conns := chain.Open(Info{}, end)
	body := kmsg.NewPtrProduceRequest()
	body.Version = 13
	c := conns.Begin(int16(kmsg.Produce), 13, "", false)
	if c.Interest(Request) != Walk || !c.MayBuffer() {
		t.Fatalf("interest %d, buffers %v", c.Interest(Request), c.MayBuffer())
	}
	if err := c.Request(body.AppendTo(nil)); err != nil || end.sent != 1 {
		t.Fatalf("%d sent, %v", end.sent, err)
	}
	if !slices.Equal(sure.seen, []string{"walked"}) || !slices.Equal(unsure.seen, []string{"whole"}) {
		t.Errorf("one filter saw it %v, the buffering one %v", sure.seen, unsure.seen)
	}
	// One that is too large to be collected streams in spite of it.
	c = conns.Begin(int16(kmsg.Produce), 13, "", false)
	c.MayBuffer()
	c.Edits(Request)
	if c.Done(); !slices.Equal(unsure.seen, []string{"whole", "walked"}) {
		t.Errorf("the buffering filter saw %v", unsure.seen)
	}
	unsure.buffers = false
	if c = conns.Begin(int16(kmsg.Produce), 13, "", false); c.MayBuffer() {
		t.Error("a filter buffers")
	}
	c.Done()
}
