package stream

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"penstock/internal/testkit/scenario"
	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

// TestProtocol runs the scenarios in testdata/protocol. Steps:
//
//	put TYPE NAME=BODY...      changes resources; NAME=- removes one
//	opaque                     later snapshots do not know what has changed
//	index N                    the index of the next snapshot
//	serve                      a new snapshot is served
//	connect sotw|delta         the client opens a stream, on any node
//	request TYPE [names=...] [version=last|V] [nonce=N]    in the state of the world
//	request TYPE [subscribe=...] [unsubscribe=...] [known=NAME:V,...] [nonce=N]    delta
//	ack TYPE, nack TYPE DETAIL [subscribe=...]    answers the last response; in the
//	                           state of the world with the names of the last request, or names=
//	elapse DURATION
//	status TYPE
//
// Each step prints the responses that follow from it: the type, "@" the index of
// its version, its resources as NAME=VERSION, and those removed as -NAME.
func TestProtocol(t *testing.T) {
	scenario.Run(t, "testdata/protocol", func(*testing.T) scenario.Command { return scenario.Steps(newScript().step) })
}

// script is a world and its client.
type script struct {
	world   *snapshottest.World
	state   *State
	now     time.Time
	session *Session
	delta   bool
	names   *Names

	versions map[snapshot.Type]string   // that the client has accepted, of the last stream too
	pending  map[snapshot.Type]Response // the last response
	listed   map[snapshot.Type][]string // in the last request
}

func newScript() *script {
	s := &script{
		world: snapshottest.New("web", "web"), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), names: NewNames(),
		versions: map[snapshot.Type]string{},
	}
	s.state = NewState(s.world.Snapshot(), s.now)
	return s
}

func (s *script) step(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "put":
		for _, arg := range d.CmdArgs[1:] {
			if body := strings.Join(arg.Vals, ","); body == "-" {
				s.world.Delete(typeOf(t, d), arg.Key)
			} else {
				s.world.Put(typeOf(t, d), arg.Key, body)
			}
		}
		return ""
	case "opaque":
		s.world.Opaque(true)
		return ""
	case "index":
		n, err := strconv.ParseUint(d.CmdArgs[0].Key, 10, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.world.Index(n)
		return ""
	case "serve":
		s.state = NewState(s.world.Snapshot(), s.now)
		if s.session != nil {
			s.session.Update(s.state, s.state.View("web"), s.now)
		}
	case "connect":
		s.delta = d.CmdArgs[0].Key == "delta"
		cfg := Config{Delta: s.delta, Names: s.names, MaxNames: 5, MaxName: 10}
		s.session = New(cfg, s.state, s.state.View("web"))
		s.pending, s.listed = map[snapshot.Type]Response{}, map[snapshot.Type][]string{}
		return ""
	case "elapse":
		after, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(after)
	case "status":
		return s.status(typeOf(t, d))
	default:
		return s.request(t, d)
	}
	return s.responses(t)
}

// request sends a request, ack or nack.
func (s *script) request(t *testing.T, d *datadriven.TestData) string {
	of := typeOf(t, d)
	r := &Request{Type: of}
	if !s.delta {
		r.Version, r.Nonce, r.Names = s.versions[of], s.pending[of].Nonce, s.listed[of]
	}
	switch d.Cmd {
	case "request":
	case "ack":
		s.versions[of] = s.pending[of].Version
		r.Nonce = s.pending[of].Nonce
		if !s.delta {
			r.Version = s.versions[of]
		}
	case "nack":
		r.Nonce, r.Rejected, r.Detail = s.pending[of].Nonce, true, d.CmdArgs[1].Key
	default:
		d.Fatalf(t, "no such step")
	}
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "names":
			r.Names = slices.DeleteFunc(arg.Vals, func(name string) bool { return name == "" })
			s.listed[of] = r.Names
		case "version":
			r.Version = arg.Vals[0]
		case "nonce":
			r.Nonce = arg.Vals[0]
		case "subscribe":
			r.Subscribe = arg.Vals
		case "unsubscribe":
			r.Unsubscribe = arg.Vals
		case "known":
			r.Known = map[string]string{}
			for _, v := range arg.Vals {
				name, version, _ := strings.Cut(v, ":")
				r.Known[name] = version
			}
		}
	}
	result, err := s.session.Request(r, s.now)
	var bound *BoundError
	if errors.As(err, &bound) {
		return "error: " + err.Error()
	}
	text := s.responses(t)
	if result == Stale {
		text = "stale\n" + text
	}
	return text
}

// responses sends what is due.
func (s *script) responses(t *testing.T) string {
	var b strings.Builder
	for s.session != nil {
		r, ok := s.session.Next(s.now)
		if !ok {
			break
		}
		s.pending[r.Type] = r
		fmt.Fprintln(&b, s.text(t, &r))
	}
	return b.String()
}

// text decodes a response as a client does.
func (s *script) text(t *testing.T, r *Response) string {
	raw := append(append([]byte{}, r.Head...), r.Body...)
	index, _, _ := strings.Cut(r.Version, ".")
	words := []string{fmt.Sprintf("%s@%s:", r.Type, index)}
	var typeURL, nonce, version string
	if s.delta {
		var m discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		typeURL, nonce, version = m.GetTypeUrl(), m.GetNonce(), m.GetSystemVersionInfo()
		for _, one := range m.GetResources() {
			words = append(words, one.GetName()+"="+one.GetVersion())
		}
		for _, name := range m.GetRemovedResources() {
			words = append(words, "-"+name)
		}
	} else {
		var m discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		typeURL, nonce, version = m.GetTypeUrl(), m.GetNonce(), m.GetVersionInfo()
		for _, one := range m.GetResources() {
			words = append(words, string(one.GetValue()))
		}
	}
	if typeURL != r.Type.URL() || nonce != r.Nonce || version != r.Version {
		t.Errorf("type %q, nonce %q, version %q of %+v", typeURL, nonce, version, r)
	}
	return strings.Join(words, " ")
}

func (s *script) status(of snapshot.Type) string {
	status := s.session.Status()[of]
	if status == nil {
		return "none"
	}
	words := []string{fmt.Sprintf("names=%d all=%v", status.Names, status.All)}
	if status.Accepted != "" {
		words = append(words, "accepted@"+strings.Split(status.Accepted, ".")[0])
	}
	if status.Sent != "" {
		words = append(words, "sent@"+strings.Split(status.Sent, ".")[0])
	}
	if status.Detail != "" {
		words = append(words, fmt.Sprintf("rejected %q at %s", status.Detail, status.RejectedAt.Format(time.TimeOnly)))
	}
	if status.Refused {
		words = append(words, "refusing")
	}
	if !status.Behind.IsZero() {
		words = append(words, "behind for "+s.now.Sub(status.Behind).String())
	}
	return strings.Join(words, " ")
}

func typeOf(t *testing.T, d *datadriven.TestData) snapshot.Type {
	for of := range snapshot.Types {
		if of.String() == d.CmdArgs[0].Key {
			return of
		}
	}
	d.Fatalf(t, "%s: no such type", d.CmdArgs[0].Key)
	return snapshot.Types
}
