package routing

import (
	"maps"
	"net/netip"
	"slices"

	"penstock/routing/resource"
)

// source is the tags of where a connection comes from, in layers. Where two
// layers have the same tag the one that says more about the client wins: its
// proven identity, then its network, then the listener, then the node.
type source struct {
	layers  [4]map[string]string
	network netip.Prefix
}

// The layers of a source.
var layerNames = [4]string{"client", "network", "listener", "node"}

// serviceTags name the service that a client belongs to: ours, and Kuma's.
var serviceTags = [...]string{"service", "kuma.io/service"}

// source is that of a connection to a listener.
func (t *Table) source(in *Input, l *Listener) source {
	s := source{layers: [4]map[string]string{0: in.Tags, 2: l.spec.Tags, 3: t.node}}
	s.layers[1], s.network = l.sources.find(in.Client)
	return s
}

// get gives a tag's value and the layer that it is from.
func (s *source) get(tag string) (value string, layer int) {
	for i, tags := range s.layers {
		if v, ok := tags[tag]; ok {
			return v, i
		}
	}
	return "", -1
}

// service is the service that the client belongs to, or "". A layer that names
// it by either tag beats those below: what a client has proven to be is not
// overruled by what its network is said to be.
func (s *source) service() string {
	for _, tags := range s.layers {
		if len(tags) == 0 {
			continue
		}
		for _, tag := range serviceTags {
			if v, ok := tags[tag]; ok {
				return v
			}
		}
	}
	return ""
}

// matches tells whether the source is among those that a targetRef picks.
func (s *source) matches(r *resource.TargetRef) bool {
	switch r.Kind {
	case kindMesh:
		return true
	case kindMeshSubset:
	case kindMeshService, kindMeshServiceSubset:
		if s.service() != r.Name {
			return false
		}
	default:
		return false
	}
	for tag, want := range r.Tags {
		if v, layer := s.get(tag); layer < 0 || v != want {
			return false
		}
	}
	return true
}

// all lists the tags that count, sorted.
func (s *source) all() []Tag {
	seen := map[string]Tag{}
	for i, tags := range slices.Backward(s.layers[:]) {
		for k, v := range tags {
			from := layerNames[i]
			if i == 1 {
				from += " " + s.network.String()
			}
			seen[k] = Tag{k, v, from}
		}
	}
	var all []Tag
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		all = append(all, seen[k])
	}
	return all
}
