// Package snapshottest has snapshots for tests of what serves them.
//
//	w := snapshottest.New("web", "spiffe://mesh/web")
//	first := w.Put(snapshot.Endpoint, "shop", "1").Snapshot()
//	second := w.Put(snapshot.Endpoint, "shop", "2").Snapshot()
package snapshottest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"penstock/node/xds/snapshot"
	"penstock/routing/resource"
)

// World makes snapshots in which the proxies of one service see all resources.
type World struct {
	snapshot worldSnapshot
}

// New returns a World of a service, with no resources, for one identity: a
// SPIFFE ID or a common name.
func New(service, identity string) *World {
	return &World{worldSnapshot{index: 1, service: service, identity: identity}}
}

// Resource returns a resource whose message is m.
func Resource(name string, m proto.Message) *snapshot.Resource {
	body, err := anypb.New(m)
	if err != nil {
		panic(err) // a test's mistake
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(body)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return &snapshot.Resource{Name: name, Version: hex.EncodeToString(sum[:8]), Any: raw}
}

// Put adds or replaces a resource whose body is NAME=VERSION, which is no message
// of the type.
func (w *World) Put(t snapshot.Type, name, version string) *World {
	raw, _ := proto.Marshal(&anypb.Any{TypeUrl: t.URL(), Value: []byte(name + "=" + version)})
	return w.PutResource(t, &snapshot.Resource{Name: name, Version: version, Any: raw})
}

// PutResource adds or replaces a resource.
func (w *World) PutResource(t snapshot.Type, r *snapshot.Resource) *World {
	m := maps.Clone(w.snapshot.resources[t])
	if m == nil {
		m = map[string]*snapshot.Resource{}
	}
	m[r.Name] = r
	w.snapshot.resources[t] = m
	return w
}

// Delete removes a resource.
func (w *World) Delete(t snapshot.Type, name string) *World {
	m := maps.Clone(w.snapshot.resources[t])
	delete(m, name)
	w.snapshot.resources[t] = m
	return w
}

// Hide makes a name visible by Get alone.
func (w *World) Hide(name string) *World {
	w.snapshot.hidden = append(slices.Clone(w.snapshot.hidden), name)
	return w
}

// Announce sets how proxies become endpoints.
func (w *World) Announce(a *resource.Announce) *World {
	w.snapshot.announce = a
	return w
}

// Identity sets the identity of the service's proxies; "": none has one.
func (w *World) Identity(id string) *World {
	w.snapshot.identity = id
	return w
}

// Index sets the index of the next snapshot; each one adds one.
func (w *World) Index(index uint64) *World {
	w.snapshot.index = index
	return w
}

// Opaque makes snapshots that do not know what changed.
func (w *World) Opaque(opaque bool) *World {
	w.snapshot.opaque = opaque
	return w
}

// Snapshot returns what the World has now.
func (w *World) Snapshot() snapshot.Snapshot {
	s := w.snapshot
	for t, m := range s.resources {
		s.all[t] = nil
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !slices.Contains(s.hidden, name) {
				s.all[t] = append(s.all[t], m[name])
			}
		}
	}
	w.snapshot.index++
	return &s
}

type worldSnapshot struct {
	index             uint64
	service, identity string
	resources         [snapshot.Types]map[string]*snapshot.Resource // never changed in place
	all               [snapshot.Types][]*snapshot.Resource
	hidden            []string
	announce          *resource.Announce
	opaque            bool
}

func (s *worldSnapshot) Index() uint64 { return s.index }

func (s *worldSnapshot) Identify(id snapshot.Identity) (service string, ok bool, why string) {
	if s.identity == "" || id.String() != s.identity {
		return "", false, fmt.Sprintf("no service has the identity %s", id)
	}
	return s.service, true, ""
}

func (s *worldSnapshot) View(service string) snapshot.View {
	if service != s.service {
		return nil
	}
	return s
}

func (s *worldSnapshot) Changed(since snapshot.Snapshot, t snapshot.Type) (names []string, ok bool) {
	if s.opaque {
		return nil, false
	}
	before := since.(*worldSnapshot).resources[t]
	for name, r := range s.resources[t] {
		if old := before[name]; old == nil || old.Version != r.Version {
			names = append(names, name)
		}
	}
	for name := range before {
		if s.resources[t][name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, true
}

func (s *worldSnapshot) Service() string { return s.service }

func (s *worldSnapshot) Get(t snapshot.Type, name string) *snapshot.Resource {
	return s.resources[t][name]
}

func (s *worldSnapshot) All(t snapshot.Type) []*snapshot.Resource { return s.all[t] }

func (s *worldSnapshot) Announce() *resource.Announce { return s.announce }

// String lists the resources, for messages of tests.
func (s *worldSnapshot) String() string {
	var b strings.Builder
	for t := range snapshot.Types {
		for _, r := range s.all[t] {
			fmt.Fprintf(&b, "%s/%s@%s ", t, r.Name, r.Version)
		}
	}
	return b.String()
}
