package stream

import (
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/node/xds/snapshot"
)

// State is a snapshot with what the sessions that serve it share: what changed
// since another one, and encoded responses. Its methods are safe for concurrent
// use.
type State struct {
	snapshot.Snapshot
	// Made is when the state was made.
	Made time.Time

	serial uint64 // unique in the process

	mu      sync.Mutex
	changes map[changeKey]*change
	encoded map[encodedKey]weak.Pointer[encoded]
}

// changeKey names what changed of a type since the state with a serial. It holds
// no reference to that state: states would keep one another in memory.
type changeKey struct {
	since uint64
	t     snapshot.Type
}

type change struct {
	once  sync.Once
	names []string
	known bool
}

var serials atomic.Uint64

// NewState makes a state of a snapshot.
func NewState(s snapshot.Snapshot, now time.Time) *State {
	return &State{
		Snapshot: s, Made: now, serial: serials.Add(1),
		changes: map[changeKey]*change{}, encoded: map[encodedKey]weak.Pointer[encoded]{},
	}
}

// changed is Snapshot.Changed, computed once for all sessions.
func (s *State) changed(since *State, t snapshot.Type) (names []string, known bool) {
	key := changeKey{since.serial, t}
	s.mu.Lock()
	c := s.changes[key]
	if c == nil {
		c = &change{}
		s.changes[key] = c
	}
	s.mu.Unlock()
	c.once.Do(func() { c.names, c.known = s.Changed(since.Snapshot, t) })
	return c.names, c.known
}

// encodedKey identifies the content of a response.
type encodedKey struct {
	t                  snapshot.Type
	delta              bool
	count              int
	resources, removed digest
}

// encoded is a response without its version and nonce.
type encoded struct {
	once  sync.Once
	names []string // of the resources and of those removed
	bytes []byte
}

// The fields of DiscoveryResponse and DeltaDiscoveryResponse, and of Resource.
const (
	fieldVersion   protowire.Number = 1 // version_info and system_version_info
	fieldResources protowire.Number = 2
	fieldTypeURL   protowire.Number = 4
	fieldNonce     protowire.Number = 5
	fieldRemoved   protowire.Number = 6

	fieldResourceVersion protowire.Number = 1
	fieldResourceBody    protowire.Number = 2
	fieldResourceName    protowire.Number = 3
)

// encode returns the encoding of a response. Sessions that send the same share
// its memory, which lives until the last of them has sent it: the version and the nonce of each come before it, as a message is
// the concatenation of its fields (protobuf's encoding, "Last One Wins").
func (s *State) encode(t snapshot.Type, delta bool, resources []*snapshot.Resource, removed []string) *encoded {
	key := encodedKey{t: t, delta: delta, count: len(resources)}
	for _, r := range resources {
		key.resources.add(digestOfResource(r))
	}
	for _, name := range removed {
		key.removed.add(digestOf(name, ""))
	}
	s.mu.Lock()
	e := s.encoded[key].Value()
	if e == nil {
		e = &encoded{}
		s.encoded[key] = weak.Make(e)
	}
	s.mu.Unlock()
	e.once.Do(func() {
		e.names = make([]string, 0, len(resources)+len(removed))
		for _, r := range resources {
			e.names = append(e.names, r.Name)
		}
		e.names = append(e.names, removed...)
		e.bytes = appendResponse(nil, t, delta, resources, removed)
	})
	return e
}

// appendResponse appends the fields of a response that sessions share.
func appendResponse(b []byte, t snapshot.Type, delta bool, resources []*snapshot.Resource, removed []string) []byte {
	size := len(t.URL()) + 4
	for _, r := range resources {
		size += len(r.Any) + 8
		if delta {
			size += len(r.Name) + len(r.Version) + 12
		}
	}
	for _, name := range removed {
		size += len(name) + 4
	}
	b = appendText(append(make([]byte, 0, len(b)+size), b...), fieldTypeURL, t.URL())
	for _, r := range resources {
		b = protowire.AppendTag(b, fieldResources, protowire.BytesType)
		if !delta {
			b = protowire.AppendBytes(b, r.Any)
			continue
		}
		inner := sizeText(fieldResourceVersion, len(r.Version)) + sizeText(fieldResourceBody, len(r.Any)) + sizeText(fieldResourceName, len(r.Name))
		b = protowire.AppendVarint(b, uint64(inner))
		b = appendText(b, fieldResourceVersion, r.Version)
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldResourceBody, protowire.BytesType), r.Any)
		b = appendText(b, fieldResourceName, r.Name)
	}
	for _, name := range removed {
		b = appendText(b, fieldRemoved, name)
	}
	return b
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func sizeText(field protowire.Number, length int) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(length)
}
