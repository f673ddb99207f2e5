package multitenant

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// answers streams a Fetch response through a connection in small pieces.
func answers(t *testing.T, c filter.Conn, version int16, session int32) {
	t.Helper()
	r := kmsg.NewPtrFetchResponse()
	r.Version, r.SessionID = version, session
	body := r.AppendTo(nil)
	x := filter.NewExchange(r.Key(), version, "", quiet{t})
	var w wire.Walker
	w.Init(wire.Response, r.Key(), version, len(body), c.Edits(filter.Response, &x))
	for out, p := []byte{}, body; !w.Done(); {
		o, view, n, pass, err := w.Next(nil, p[:min(len(p), rand.IntN(4))])
		if err != nil {
			t.Fatal(err)
		}
		out = append(append(append(out, o...), view...), p[n:n+pass]...)
		if p = p[n+pass:]; w.Done() && !bytes.Equal(out, body) {
			t.Fatalf("v%d: the response became %x", version, out)
		}
	}
}

// names returns the session ID that the broker gets in a request, or the error
// code of the filter's answer.
func (k *cluster) names(c filter.Conn, version int16, session, epoch int32) (got, code int32) {
	k.t.Helper()
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.SessionID, r.SessionEpoch = version, session, epoch
	k.answer = nil
	x := filter.NewExchange(r.Key(), version, "", k)
	m := filter.NewMessage(filter.Request, r.Key(), version, r.AppendTo(nil))
	if err := c.Request(&x, &m); err != nil {
		k.t.Fatal(err)
	}
	if k.answer != nil {
		resp := k.answer.(*kmsg.FetchResponse)
		if resp.Version != version || resp.SessionID != 0 || len(resp.Topics) > 0 {
			k.t.Errorf("answered: %+v", resp)
		}
		return 0, int32(resp.ErrorCode)
	}
	q, err := m.DecodeRequest()
	if err != nil {
		k.t.Fatal(err)
	}
	return q.(*kmsg.FetchRequest).SessionID, 0
}

// A guessed ID of another tenant's fetch session gets the broker's answer for
// an unknown one, and never reaches the broker.
func TestFetchSessionsOfOthersAreUnknown(t *testing.T) {
	for _, version := range []int16{7, 12, 13, 17} {
		red, blue := newTenant(t, "red"), newTenant(t, "blue")
		k := &cluster{t: t}
		at := filter.Info{Broker: "1"}
		victim, second, guesser := red.Open(at), red.Open(at), blue.Open(at)
		answers(t, victim, version, 0) // no session: nothing to remember
		answers(t, victim, version, 4711)
		for _, test := range []struct {
			what          string
			c             filter.Conn
			number, epoch int32
			passes, code  int32
		}{
			{"another's goes on", guesser, 4711, 1, 0, 70},
			{"another's is ended", guesser, 4711, -1, 0, 0},
			{"another's is replaced", guesser, 4711, 0, 0, 0},
			{"nobody's goes on", guesser, 4712, 1, 0, 70},
			{"nobody's is replaced", guesser, 4712, 0, 0, 0},
			{"none", guesser, 0, -1, 0, 0},
			{"none, and an epoch", guesser, 0, 5, 0, 0}, // the broker answers this
			{"one's own goes on", victim, 4711, 1, 4711, 0},
			{"one's own goes on elsewhere", second, 4711, 2, 0, 70},
			{"at another broker it is ended", red.Open(filter.Info{Broker: "2"}), 4711, -1, 0, 0},
			{"one's own still goes on", victim, 4711, 2, 4711, 0},
			{"a connection after it replaces it", second, 4711, 0, 4711, 0},
			{"it was replaced", second, 4711, 0, 0, 0},
		} {
			if got, code := k.names(test.c, version, test.number, test.epoch); got != test.passes || code != test.code {
				t.Errorf("v%d, %s: the broker gets %d, or the client error %d; want %d, %d", version, test.what, got, code, test.passes, test.code)
			}
		}
	}
}

// Versions before 7 have no fetch sessions.
func TestFetchWithoutSessionsPasses(t *testing.T) {
	k := &cluster{t: t}
	c := newTenant(t, "red").Open(filter.Info{})
	for _, version := range []int16{0, 4, 6} {
		if got, code := k.names(c, version, 0, -1); got != 0 || code != 0 {
			t.Errorf("v%d: %d, error %d", version, got, code)
		}
	}
}

// The number of remembered sessions is bounded; the latest ones are remembered.
func TestRememberedFetchSessionsAreBounded(t *testing.T) {
	ten := newTenant(t, "red")
	ten.issued.keys.limit = 100
	k := &cluster{t: t}
	c := ten.Open(filter.Info{})
	const n = 1000
	for number := range int32(n) {
		c.(*conn).recordSession(number + 1)
	}
	if have := len(ten.issued.keys.newer) + len(ten.issued.keys.older); have > 200 {
		t.Errorf("%d are remembered", have)
	}
	for number, want := range map[int32]int32{n: n, n - maxOwnSessions + 1: n - maxOwnSessions + 1, n - maxOwnSessions: 0} {
		if got, _ := k.names(c, 17, number, 3); got != want {
			t.Errorf("session %d continues as %d, want %d", number, got, want)
		}
	}
	if got, _ := k.names(ten.Open(filter.Info{}), 17, n-99, 0); got != n-99 {
		t.Error("a recent session is not known as the tenant's")
	}
}
