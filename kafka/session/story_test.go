package session

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit/scenario"
	"penstock/kafka/wire"
	"penstock/netio/relay"
)

// TestStories runs the scenarios in testdata. Their commands are events; the
// output is what comes of them: what each side gets, what is not read, how the
// session ends.
//
//	filters WHAT API, ...         what the chain does; first
//	limits NAME=N ...             first as well
//	limiter NAME=DURATION ...     first as well: what a request, a response or a KiB costs
//	client API vN #ID "BODY"      a request comes; BODY is a Go string, or $NAME
//	broker #ID "BODY"             a response comes to the request that had this id
//	client|broker bytes HEX       bytes come
//	client|broker half API ...    the first half of such a message comes; then: rest
//	client|broker rest
//	client|broker ends|fails|stalls|takes
//	pass 5s                       time goes by
//	leave AFTER WITHIN            the room wants the connection to end
func TestStories(t *testing.T) {
	scenario.Run(t, "testdata", func(t *testing.T) scenario.Command {
		s := &story{t: t, asked: map[int32]sent{}, reading: [2]bool{true, true}}
		return scenario.Steps(s.do)
	})
}

// story is a world and what was told of it.
type story struct {
	*world
	t       *testing.T
	chain   string
	limits  Limits
	costs   *costs
	out     strings.Builder
	asked   map[int32]sent // by the client, or by the session
	rests   [2][]byte
	reading [2]bool
	ended   bool
}

func (s *story) do(_ *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	command, rest, _ := strings.Cut(d.FullCmd(), " ")
	switch command {
	case "filters":
		s.chain = rest
		return ""
	case "limits":
		s.setLimits(d)
		return ""
	case "limiter":
		s.setCosts(d)
		return ""
	}
	if s.world == nil {
		s.begin()
	}
	switch command {
	case "pass":
		s.pass(s.duration(rest))
	case "leave":
		after, within, _ := strings.Cut(rest, " ")
		s.Leave("room_reason", s.duration(after), s.duration(within))
	case "client":
		s.happen(relay.Client, rest)
	case "broker":
		s.happen(relay.Upstream, rest)
	default:
		d.Fatalf(s.t, "unknown event %q", command)
	}
	s.look()
	return s.out.String()
}

func (s *story) setLimits(d *datadriven.TestData) {
	l := &s.limits
	names := map[string]*int{
		"MaxFrame": &l.MaxFrame, "MaxFrameAuth": &l.MaxFrameAuth, "MaxFrameEarly": &l.MaxFrameEarly, "MaxInFlight": &l.MaxInFlight,
	}
	for _, arg := range d.CmdArgs {
		if names[arg.Key] == nil {
			d.Fatalf(s.t, "no limit is called %s", arg.Key)
		}
		arg.Scan(s.t, 0, names[arg.Key])
	}
}

func (s *story) begin() {
	s.world = newWorld(s.limits, filters(s.chain)...)
	if s.costs != nil {
		s.costs.w = s.world
		s.limiter = s.costs
	}
	s.t.Cleanup(func() {
		for _, fault := range s.finish() {
			s.t.Error(fault)
		}
		if s.costs != nil && s.costs.closed != 1 {
			s.t.Errorf("the limiter was closed %d times", s.costs.closed)
		}
	})
}

func (s *story) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// happen runs an event of one side.
func (s *story) happen(side relay.Side, event string) {
	verb, rest, _ := strings.Cut(event, " ")
	switch verb {
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
		b, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
		if err != nil {
			s.t.Fatal(err)
		}
		s.receive(side, b, false)
	case "half":
		b := s.message(side, rest)
		s.rests[side] = b[len(b)/2:]
		s.receive(side, b[:len(b)/2], false)
	case "rest":
		s.receive(side, s.rests[side], true)
	default:
		s.receive(side, s.message(side, event), false)
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
			fmt.Fprintf(&s.out, "%s gets %s\n", name, s.describe(i, frame))
		}
		if len(side.out) > 0 {
			fmt.Fprintf(&s.out, "%s gets %d bytes of a frame\n", name, len(side.out))
		}
	}
	if s.over > 0 {
		if !s.ended {
			how := "by a reset"
			if s.clean {
				how = "in order"
			}
			fmt.Fprintf(&s.out, "ends %s: %s", how, s.why)
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
			fmt.Fprintf(&s.out, "the %s is %s\n", name, map[bool]string{true: "read again", false: "not read"}[on])
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
