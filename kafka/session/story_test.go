package session

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
	"penstock/netio/relay"
)

var rewrite = flag.Bool("rewrite", false, "write the stories in testdata anew")

// TestStories plays the stories in testdata. A line that is not indented is
// something that happens:
//
//	filters WHAT API, ...         what the chain does; first
//	limits NAME=N ...             first as well
//	client API vN #ID "BODY"      a request comes; BODY is a Go string, or $NAME
//	broker #ID "BODY"             a response comes to the request that had this id
//	client|broker bytes HEX       bytes come
//	client|broker half API ...    the first half of such a message comes; then: rest
//	client|broker rest
//	client|broker ends|fails|stalls|takes
//	pass 5s                       time goes by
//	leave AFTER WITHIN            the room wants the connection to end
//
// What comes of it is indented below: what each side gets, what is not read,
// how it ends.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("the story goes\n%s\nand not\n%s", got, text)
			}
		})
	}
}

// story is a world and what was told of it.
type story struct {
	*world
	t       *testing.T
	out     strings.Builder
	asked   map[int32]sent // by the client, or by the session
	rests   [2][]byte
	reading [2]bool
	ended   bool
}

// play plays one and writes it down.
func play(t *testing.T, text string) string {
	s := &story{t: t, asked: map[int32]sent{}, reading: [2]bool{true, true}}
	var limits Limits
	chain := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "    "):
			continue
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "filters "):
			chain = line[len("filters "):]
		case strings.HasPrefix(line, "limits "):
			limits = parseLimits(t, line)
		default:
			if s.world == nil {
				s.world = newWorld(limits, filters(chain)...)
			}
			fmt.Fprintln(&s.out, line)
			s.happen(line)
			s.look()
			continue
		}
		fmt.Fprintln(&s.out, line)
	}
	for _, fault := range s.finish() {
		t.Error(fault)
	}
	return s.out.String()
}

func parseLimits(t *testing.T, line string) (l Limits) {
	for _, f := range strings.Fields(line)[1:] {
		name, value, _ := strings.Cut(f, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "MaxFrame":
			l.MaxFrame = n
		case "MaxFrameAuth":
			l.MaxFrameAuth = n
		case "MaxFrameEarly":
			l.MaxFrameEarly = n
		case "MaxInFlight":
			l.MaxInFlight = n
		default:
			t.Fatalf("unknown limit %s", name)
		}
	}
	return l
}

func (s *story) happen(line string) {
	f := strings.SplitN(line, " ", 3)
	switch f[0] {
	case "pass", "leave":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			s.t.Fatal(err)
		}
		if f[0] == "pass" {
			s.pass(d)
		} else {
			within, err := time.ParseDuration(f[2])
			if err != nil {
				s.t.Fatal(err)
			}
			s.Leave("room_reason", d, within)
		}
		return
	}
	side := relay.Client
	if f[0] == "broker" {
		side = relay.Upstream
	}
	switch f[1] {
	case "ends":
		s.Ended(side)
	case "fails":
		if s.Failed(side, errScripted); s.over == 0 { // as netio does
			(*worldConn)(s.world).End("client_reset", false)
		}
	case "stalls":
		s.sides[side].stalled = true
	case "takes":
		s.take(side)
	case "bytes":
		b, err := hex.DecodeString(strings.ReplaceAll(f[2], " ", ""))
		if err != nil {
			s.t.Fatal(err)
		}
		s.receive(side, b, false)
	case "half":
		b := s.message(side, f[2])
		s.rests[side] = b[len(b)/2:]
		s.receive(side, b[:len(b)/2], false)
	case "rest":
		s.receive(side, s.rests[side], true)
	default:
		s.receive(side, s.message(side, strings.Join(f[1:], " ")), false)
	}
}

// message makes a request, or a response, of its description.
func (s *story) message(side relay.Side, text string) []byte {
	head, body, _ := strings.Cut(text, " \"")
	if body != "" {
		body = "\"" + body
	}
	f := strings.Fields(head)
	if last := f[len(f)-1]; body == "" && strings.HasPrefix(last, "$") {
		f = f[:len(f)-1]
		body = strconv.Quote(string(bodies[last[1:]]))
	}
	plain := ""
	if body != "" {
		var err error
		if plain, err = strconv.Unquote(body); err != nil {
			s.t.Fatalf("%s: %v", text, err)
		}
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(f[len(f)-1], "#"), 10, 32)
	if err != nil {
		s.t.Fatal(err)
	}
	if side == relay.Upstream {
		m := s.asked[int32(id)]
		m.id, m.body = int32(id), []byte(plain)
		return m.response()
	}
	v, err := strconv.ParseInt(f[1][1:], 10, 16)
	if err != nil {
		s.t.Fatal(err)
	}
	m := sent{key: keyOf(f[0]), version: int16(v), id: int32(id), body: []byte(plain)}
	s.asked[m.id] = m
	return m.request()
}

// bodies are those that the session itself reads.
var bodies = map[string][]byte{
	"Software": append([]byte("\x07librdk\x04"+"2.6"), 0),
	"Versions": func() []byte {
		r := kmsg.NewPtrApiVersionsResponse()
		r.Version = 3
		for _, v := range [][3]int16{{0, 0, 20}, {3, 0, 99}, {52, 0, 2}, {16, 0, 1}} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = v[0], v[1], v[2]
			r.ApiKeys = append(r.ApiKeys, k)
		}
		return r.AppendTo(nil)
	}(),
	"Groups": kmsg.NewPtrListGroupsResponse().AppendTo(nil),
}

// look writes down what has come of it.
func (s *story) look() {
	for i, name := range []string{"client", "broker"} {
		side := s.sides[i]
		for {
			frame, rest := cut(side.out)
			if frame == nil {
				break
			}
			side.out = rest
			fmt.Fprintf(&s.out, "    %s gets %s\n", name, s.describe(i, frame))
		}
		if len(side.out) > 0 {
			fmt.Fprintf(&s.out, "    %s gets %d bytes of a frame\n", name, len(side.out))
		}
	}
	if s.over > 0 {
		if !s.ended {
			how := "by a reset"
			if s.clean {
				how = "in order"
			}
			fmt.Fprintf(&s.out, "    ends %s: %s", how, s.why)
			if s.err != nil {
				fmt.Fprintf(&s.out, " (%v)", s.err)
			}
			fmt.Fprintln(&s.out)
		}
		s.ended = true
		return
	}
	for i, name := range []string{"client", "broker"} {
		if on := s.sides[i].reading; on != s.reading[i] {
			s.reading[i] = on
			fmt.Fprintf(&s.out, "    the %s is %s\n", name, map[bool]string{true: "read again", false: "not read"}[on])
		}
	}
}

func (s *story) describe(side int, frame []byte) string {
	if side == int(relay.Client) {
		id := int32(frame[4])<<24 | int32(frame[5])<<16 | int32(frame[6])<<8 | int32(frame[7])
		m, ok := s.asked[id]
		if !ok {
			return fmt.Sprintf("#%d, which nobody asked", id)
		}
		head, _, err := wire.ResponseHeaderLen(frame, m.key, m.version)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("#%d %s", id, s.body(m.key, m.version, frame[head:]))
	}
	h, _, err := wire.PeekRequest(frame)
	if err != nil {
		return err.Error()
	}
	if _, ok := s.asked[h.Correlation]; !ok {
		s.asked[h.Correlation] = sent{key: h.Key, version: h.Version, id: h.Correlation}
	}
	return fmt.Sprintf("%s v%d #%d %s", wire.Name(h.Key), h.Version, h.Correlation, s.body(-1, 0, frame[h.HeaderLen:]))
}

func (s *story) body(key, version int16, b []byte) string {
	if key == keyAPIVersions {
		r := kmsg.NewPtrApiVersionsResponse()
		r.Version = version
		if len(b) > 1 && b[1] == 35 {
			r.Version = 0
		}
		if err := r.ReadFrom(b); err != nil {
			return err.Error()
		}
		text := fmt.Sprintf("error %d:", r.ErrorCode)
		for _, k := range r.ApiKeys {
			text += fmt.Sprintf(" %s v%d-%d", wire.Name(k.ApiKey), k.MinVersion, k.MaxVersion)
		}
		return text
	}
	if len(b) > 60 {
		return fmt.Sprintf("%d bytes", len(b))
	}
	return strconv.Quote(string(b))
}
