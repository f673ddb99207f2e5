package relay

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the effects in testdata from what happens")

// TestStories replays testdata/*.txt. A line at the margin is an event, the
// indented lines below it are its effects, in order:
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
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, want)
			if bytes.Equal(got, want) {
				return
			}
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s is told otherwise (-update rewrites it):\n%s", file, got)
		})
	}
}

// replay runs a story's events and returns the story with their effects.
func replay(t *testing.T, story []byte) []byte {
	s := storyteller{t: t}
	lines := bufio.NewScanner(bytes.NewReader(story))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, " ") {
			continue
		}
		s.out = append(append(s.out, line...), '\n')
		if line != "" && line[0] != '#' {
			s.event(line)
		}
	}
	for _, side := range s.sides {
		for _, breach := range side.breaches {
			t.Errorf("breach of the contract: %s", breach)
		}
	}
	return s.out
}

type storyteller struct {
	t     *testing.T
	out   []byte
	relay Relay
	sides [2]*fakeStream
}

func (s *storyteller) record(effect string) { s.out = fmt.Appendf(s.out, "    %s\n", effect) }

func (s *storyteller) event(line string) {
	s.t.Helper()
	subject, rest, _ := strings.Cut(line, " ")
	switch subject {
	case "start":
		s.relay = Relay{}
		if s.sides[Client] == nil {
			s.reset()
		}
		first := s.quoted(rest)
		s.relay.Start(s.sides[Client], s.sides[Upstream], first, len(first))
		return
	case "story":
		s.reset()
		return
	case "stop":
		s.relay.Stop(rest != "at once")
		return
	}
	side := Client
	if subject == "upstream" {
		side = Upstream
	} else if subject != "client" {
		s.t.Fatalf("%q: no such event", line)
	}
	s.sideEvent(side, line, rest)
}

func (s *storyteller) reset() {
	s.sides[Client] = &fakeStream{name: "client", room: -1, tell: s.record}
	s.sides[Upstream] = &fakeStream{name: "upstream", room: -1, tell: s.record}
}

func (s *storyteller) sideEvent(side Side, line, rest string) {
	s.t.Helper()
	f := s.sides[side]
	verb, arg, _ := strings.Cut(rest, " ")
	switch {
	case verb == "says":
		if !f.reading {
			s.t.Fatalf("%q: it is not read, so nothing can arrive", line)
		}
		s.relay.Received(side, s.quoted(arg))
	case verb == "moves":
		n, err := strconv.Atoi(arg)
		if err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		s.relay.Moved(side, n)
	case verb == "ends":
		if !f.reading {
			s.t.Fatalf("%q: it is not read, so nothing can arrive", line)
		}
		s.done(s.relay.Ended(side))
	case verb == "fails":
		s.done(s.relay.Failed(side))
	case rest == "reads on":
		had := len(f.pending)
		f.room = -1
		f.flush()
		if had > 0 && !f.dead() {
			s.relay.Sent(side)
		}
	case strings.HasPrefix(rest, "has room for "):
		n, err := strconv.Atoi(strings.TrimPrefix(rest, "has room for "))
		if err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		f.room = n
	default:
		s.t.Fatalf("%q: no such event", line)
	}
}

func (s *storyteller) done(o Outcome) {
	if o != Open {
		s.record(fmt.Sprintf("done: %v, %d bytes in, %d bytes out", o, s.relay.Bytes(Client), s.relay.Bytes(Upstream)))
	}
}

func (s *storyteller) quoted(arg string) []byte {
	if arg == "" {
		return nil
	}
	v, err := strconv.Unquote(arg)
	if err != nil {
		s.t.Helper()
		s.t.Fatalf("%s: %v", arg, err)
	}
	return []byte(v)
}
