package relay

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"penstock/internal/testkit/scenario"
)

// TestStories runs the scenarios in testdata. Their commands are the events of a
// relay; the output is what the relay does to its two sides, in order:
//
//	story TITLE            two new sides
//	start ["BYTES"]        both sides are there; BYTES were read before
//	SIDE says "BYTES"      bytes arrive
//	SIDE moves N           the stream passed N bytes on by itself
//	SIDE ends              FIN arrives
//	SIDE fails             RST arrives, or any other death
//	SIDE has room for N    its kernel takes N bytes more, then none
//	SIDE reads on          its kernel takes all again, what is pending first
//	stop [at once]         a timer or a drain ends the connection; at once: at any moment
func TestStories(t *testing.T) {
	scenario.Run(t, "testdata", func(*testing.T) scenario.Command {
		return scenario.Steps(new(storyteller).event)
	})
}

type storyteller struct {
	out   []string
	relay Relay
	sides [2]*fakeStream
}

func (s *storyteller) record(effect string) { s.out = append(s.out, effect) }

func (s *storyteller) event(t *testing.T, d *datadriven.TestData) string {
	s.out = nil
	_, rest, _ := strings.Cut(d.FullCmd(), " ")
	switch d.Cmd {
	case "story":
		s.sides[Client] = &fakeStream{name: "client", room: -1, tell: s.record}
		s.sides[Upstream] = &fakeStream{name: "upstream", room: -1, tell: s.record}
	case "start":
		s.relay = Relay{}
		first := unquote(t, d, rest)
		s.relay.Start(s.sides[Client], s.sides[Upstream], first, len(first))
	case "stop":
		s.relay.Stop(rest != "at once")
	case "client":
		s.sideEvent(t, d, Client, rest)
	case "upstream":
		s.sideEvent(t, d, Upstream, rest)
	default:
		d.Fatalf(t, "no such event")
	}
	for _, side := range s.sides {
		for _, breach := range side.breaches {
			t.Errorf("breach of the contract: %s", breach)
		}
	}
	return strings.Join(s.out, "\n")
}

func (s *storyteller) sideEvent(t *testing.T, d *datadriven.TestData, side Side, event string) {
	f := s.sides[side]
	verb, arg, _ := strings.Cut(event, " ")
	if (verb == "says" || verb == "ends") && !f.reading {
		d.Fatalf(t, "%s %s: it is not read, so nothing can arrive", d.Cmd, event)
	}
	switch {
	case verb == "says":
		s.relay.Received(side, unquote(t, d, arg))
	case verb == "moves":
		s.relay.Moved(side, number(t, d, arg))
	case verb == "ends":
		s.done(s.relay.Ended(side))
	case verb == "fails":
		s.done(s.relay.Failed(side))
	case event == "reads on":
		had := len(f.pending)
		f.room = -1
		f.flush()
		if had > 0 && !f.dead() {
			s.relay.Sent(side)
		}
	case strings.HasPrefix(event, "has room for "):
		f.room = number(t, d, strings.TrimPrefix(event, "has room for "))
	default:
		d.Fatalf(t, "%s %s: no such event", d.Cmd, event)
	}
}

func (s *storyteller) done(o Outcome) {
	if o != Open {
		s.record(fmt.Sprintf("done: %v, %d bytes in, %d bytes out", o, s.relay.Bytes(Client), s.relay.Bytes(Upstream)))
	}
}

func number(t *testing.T, d *datadriven.TestData, arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

func unquote(t *testing.T, d *datadriven.TestData, arg string) []byte {
	if arg == "" {
		return nil
	}
	v, err := strconv.Unquote(arg)
	if err != nil {
		d.Fatalf(t, "%s: %v", arg, err)
	}
	return []byte(v)
}
