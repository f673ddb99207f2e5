package stream

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

// TestClientsEndWithTheView lets a model of a client send requests while
// resources change, with everything in flight for any time, refused responses
// and new streams. When all is delivered, the client has what its view has.
func TestClientsEndWithTheView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.connect()
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				m.world.Put(m.drawType(t), m.drawName(t), strconv.Itoa(rapid.IntRange(1, 4).Draw(t, "version")))
			},
			"delete":    func(t *rapid.T) { m.world.Delete(m.drawType(t), m.drawName(t)) },
			"opaque":    func(t *rapid.T) { m.world.Opaque(rapid.Bool().Draw(t, "opaque")) },
			"serve":     func(*rapid.T) { m.serve() },
			"subscribe": func(t *rapid.T) { m.subscribe(m.drawType(t), m.drawName(t)) },
			"leave":     func(t *rapid.T) { m.unsubscribe(m.drawType(t), m.drawName(t)) },
			"server":    func(*rapid.T) { m.serverReads() },
			"client":    func(t *rapid.T) { m.clientReads(rapid.IntRange(0, 4).Draw(t, "refuse") == 0) },
			"reconnect": func(*rapid.T) { m.connect() },
			"":          func(*rapid.T) { m.pump() },
		})
		m.finish()
	})
}

// modelNames has a name that is found by Get alone.
var modelNames = []string{"a", "b", "c", "d", "hidden"}

// model is a server and a client with the messages in flight between them.
type model struct {
	t        *rapid.T
	world    *snapshottest.World
	state    *State
	session  *Session
	names    *Names
	delta    bool
	now      time.Time
	toClient []Response
	toServer []*Request
	types    [snapshot.Types]modelType
}

// modelType is what the client knows of one type.
type modelType struct {
	open    bool // on this stream
	names   map[string]bool
	has     map[string]string // versions by name
	version string
	nonce   string
	refused bool // what was sent last
	forgot  bool // something that it had with that version
	never   string
}

func newModel(t *rapid.T) *model {
	m := &model{
		t: t, world: snapshottest.New("web", "web").Hide("hidden"), names: NewNames(), delta: rapid.Bool().Draw(t, "delta"),
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for i := range m.types {
		m.types[i].names, m.types[i].has = map[string]bool{}, map[string]string{}
	}
	m.state = NewState(m.world.Snapshot(), m.now)
	return m
}

func (m *model) drawType(t *rapid.T) snapshot.Type {
	return snapshot.Type(rapid.IntRange(0, int(snapshot.Types)-1).Draw(t, "type"))
}

func (m *model) drawName(t *rapid.T) string { return rapid.SampledFrom(modelNames).Draw(t, "name") }

// connect opens a new stream, on a node that is as far as the last one, and asks
// for everything again.
func (m *model) connect() {
	m.toClient, m.toServer = nil, nil
	m.session = New(Config{Delta: m.delta, Names: m.names}, m.state, m.state.View("web"))
	for i := range m.types {
		k := &m.types[i]
		k.open, k.nonce, k.refused = false, "", false
		if len(k.names) > 0 {
			m.send(snapshot.Type(i), slices.Sorted(maps.Keys(k.names)), nil)
		}
	}
}

// send sends a request in which names were added and removed.
func (m *model) send(t snapshot.Type, added, removed []string) {
	k := &m.types[t]
	r := &Request{Type: t}
	switch {
	case m.delta:
		r.Subscribe, r.Unsubscribe = added, removed
		if !k.open {
			r.Known = maps.Clone(k.has)
		}
	default:
		r.Names, r.Nonce, r.Version = slices.Sorted(maps.Keys(k.names)), k.nonce, k.version
		if !k.open && (k.forgot || slices.ContainsFunc(r.Names, func(n string) bool { return n != wildcard && k.has[n] == "" })) {
			r.Version = "" // it does not have everything that it had with that version
		}
	}
	k.open = true
	m.toServer = append(m.toServer, r)
}

func (m *model) subscribe(t snapshot.Type, name string) {
	k := &m.types[t]
	if name == "d" {
		name = wildcard // now and then
	}
	// A client that leaves a name which "*" has not, and then subscribes to "*", may
	// get the name by a response that was on its way. The server cannot know.
	if k.names[name] || name == k.never {
		return
	}
	switch name {
	case wildcard:
		k.never = "hidden"
	case "hidden":
		k.never = wildcard
	}
	k.names[name] = true
	m.send(t, []string{name}, nil)
}

func (m *model) unsubscribe(t snapshot.Type, name string) {
	k := &m.types[t]
	if name == "d" {
		name = wildcard
	}
	if !k.names[name] {
		return
	}
	delete(k.names, name)
	k.forgot = true
	switch {
	case name == wildcard:
		maps.DeleteFunc(k.has, func(n, _ string) bool { return !k.names[n] })
	case !k.names[wildcard]:
		delete(k.has, name)
	}
	m.send(t, nil, []string{name})
}

func (m *model) serve() {
	m.state = NewState(m.world.Snapshot(), m.now)
	m.session.Update(m.state, m.state.View("web"), m.now)
}

// pump lets the server send what is due.
func (m *model) pump() {
	for {
		r, ok := m.session.Next(m.now)
		if !ok {
			return
		}
		m.toClient = append(m.toClient, r)
	}
}

func (m *model) serverReads() {
	if len(m.toServer) == 0 {
		return
	}
	if _, err := m.session.Request(m.toServer[0], m.now); err != nil {
		m.t.Fatal(err)
	}
	m.toServer = m.toServer[1:]
	m.pump()
}

func (m *model) clientReads(refuse bool) {
	if len(m.toClient) == 0 {
		return
	}
	r := m.toClient[0]
	m.toClient = m.toClient[1:]
	k := &m.types[r.Type]
	k.nonce, k.refused = r.Nonce, refuse
	answer := &Request{Type: r.Type, Nonce: r.Nonce, Rejected: refuse}
	if !refuse {
		m.apply(&r)
		k.version, k.forgot = r.Version, false
	}
	if !m.delta {
		answer.Version, answer.Names = k.version, slices.Sorted(maps.Keys(k.names))
	}
	m.toServer = append(m.toServer, answer)
}

// wants reports whether the client still has subscribed to a name.
func (k *modelType) wants(name string) bool { return k.names[name] || k.names[wildcard] }

// apply takes a response.
func (m *model) apply(r *Response) {
	k := &m.types[r.Type]
	raw := append(append([]byte{}, r.Head...), r.Body...)
	if names := r.shared.names; len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names) {
		m.t.Fatalf("%s: a name is sent twice: %q", r.Type, names)
	}
	if m.delta {
		var d discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(raw, &d); err != nil {
			m.t.Fatal(err)
		}
		for _, one := range d.GetResources() {
			if k.wants(one.GetName()) {
				k.has[one.GetName()] = one.GetVersion()
			}
		}
		for _, name := range d.GetRemovedResources() {
			delete(k.has, name)
		}
		return
	}
	var d discoveryv3.DiscoveryResponse
	if err := proto.Unmarshal(raw, &d); err != nil {
		m.t.Fatal(err)
	}
	if r.Type == snapshot.Cluster || r.Type == snapshot.Listener {
		clear(k.has)
	}
	for _, one := range d.GetResources() {
		name, version, _ := strings.Cut(string(one.GetValue()), "=")
		if k.wants(name) {
			k.has[name] = version
		}
	}
}

// settle delivers everything.
func (m *model) settle() {
	m.pump()
	for len(m.toClient)+len(m.toServer) > 0 {
		m.serverReads()
		m.clientReads(false)
	}
}

// finish delivers everything and compares. A type of which the last response was
// refused gets one more change, which must bring all that the client lacks.
func (m *model) finish() {
	m.serve()
	m.pump()
	for len(m.toClient)+len(m.toServer) > 0 {
		m.serverReads()
		if len(m.toClient) > 0 {
			m.clientReads(false)
		}
	}
	skip := map[snapshot.Type]bool{}
	changed := false
	for i := range m.types {
		t, k := snapshot.Type(i), &m.types[i]
		if !k.refused {
			continue
		}
		want := m.wanted(t)
		if len(want) == 0 {
			skip[t] = true
			continue
		}
		m.world.Put(t, slices.Sorted(maps.Keys(want))[0], "last")
		changed = true
	}
	if changed {
		m.serve()
		m.settle()
	}
	for i := range m.types {
		t, k := snapshot.Type(i), &m.types[i]
		if skip[t] {
			continue
		}
		want, has := m.wanted(t), maps.Clone(k.has)
		if !m.delta && t != snapshot.Cluster && t != snapshot.Listener {
			// The protocol cannot say that these are gone.
			maps.DeleteFunc(has, func(name, _ string) bool { return want[name] == "" })
		}
		if !maps.Equal(want, has) {
			m.t.Fatalf("%s: the client has %v, the view %v; it wants %v", t, has, want, slices.Sorted(maps.Keys(k.names)))
		}
		if status := m.session.Status()[t]; status != nil && !status.Behind.IsZero() && !status.Refused {
			m.t.Fatalf("%s: nothing is in flight, and the client counts as behind: %+v", t, status)
		}
	}
}

// wanted returns what the client should have of a type.
func (m *model) wanted(t snapshot.Type) map[string]string {
	k, view := &m.types[t], m.state.View("web")
	want := map[string]string{}
	for name := range k.names {
		if r := view.Get(t, name); name != wildcard && r != nil {
			want[name] = r.Version
		}
	}
	if k.names[wildcard] {
		for _, r := range view.All(t) {
			want[r.Name] = r.Version
		}
	}
	return want
}

// FuzzSession: whatever a client sends, the session keeps its bounds and has one
// unanswered response for each type.
func FuzzSession(f *testing.F) {
	f.Add([]byte("\x00\x00ab\x01\x02cd\x00\x05*"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		world := snapshottest.New("web", "web")
		now := time.Unix(0, 0)
		state := NewState(world.Snapshot(), now)
		s := New(Config{Delta: len(data)%2 == 0, Names: NewNames(), MaxNames: 4, MaxName: 3}, state, state.View("web"))
		var unanswered [snapshot.Types]int
		for len(data) >= 3 {
			of, what, text := snapshot.Type(data[0]%byte(snapshot.Types)), data[1]%8, string(data[2:min(len(data), 2+int(data[0]%7))])
			data = data[3:]
			r := &Request{Type: of}
			switch what {
			case 0, 1:
				world.Put(snapshot.Type(what)+of%2, text, strconv.Itoa(len(data)))
				state = NewState(world.Opaque(what == 1).Snapshot(), now)
				s.Update(state, state.View("web"), now)
			case 2:
				r.Names, r.Subscribe = strings.Split(text, ""), strings.Split(text, "")
			case 3:
				r.Unsubscribe = []string{text, "*"}
			case 4:
				r.Nonce = text
			case 5:
				r.Nonce, r.Rejected = strconv.Itoa(len(text)), true
			case 6:
				r.Known, r.Version = map[string]string{text: text}, text
			case 7:
				now = now.Add(time.Second)
			}
			if result, err := s.Request(r, now); err != nil {
				return
			} else if result == Accepted || result == Rejected {
				unanswered[of]--
			}
			for {
				response, ok := s.Next(now)
				if !ok {
					break
				}
				if unanswered[response.Type]++; unanswered[response.Type] > 1 {
					t.Fatalf("%d unanswered responses of type %s", unanswered[response.Type], response.Type)
				}
			}
			for t2, status := range s.Status() {
				if status != nil && status.Names > 4 {
					t.Fatal(fmt.Sprint(t2, " has too many names"))
				}
			}
		}
	})
}
