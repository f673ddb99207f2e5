package stream

import (
	"testing"
	"time"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

// What a response took counts from the change, or from the request if that came
// later; an ACK is no such request.
func TestSinceIsTheLaterOfChangeAndRequest(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	world := snapshottest.New("web", "web")
	world.Put(snapshot.Endpoint, "shop", "1")
	first := NewState(world.Snapshot(), at(1))
	s := New(Config{Names: NewNames()}, first, first.View("web"))
	expect := func(now time.Time, want time.Time) Response {
		t.Helper()
		r, ok := s.Next(now)
		if !ok || !r.Since.Equal(want) {
			t.Fatalf("a response %v since %v, want %v", ok, r.Since.Unix(), want.Unix())
		}
		return r
	}
	ask := func(now time.Time, nonce string) {
		t.Helper()
		if _, err := s.Request(&Request{Type: snapshot.Endpoint, Names: []string{"shop"}, Nonce: nonce}, now); err != nil {
			t.Fatal(err)
		}
	}
	ask(at(10), "")
	r := expect(at(11), at(10))
	world.Put(snapshot.Endpoint, "shop", "2")
	second := NewState(world.Snapshot(), at(20))
	s.Update(second, second.View("web"), at(21))
	ask(at(22), r.Nonce)
	expect(at(23), at(20))
}
