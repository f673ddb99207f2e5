package routing

import (
	"maps"
	"net/netip"
	"slices"

	"penstock/routing/resource"
)

// source is the tags of a connection's origin, in layers. If several layers
// have a tag, the layer that is closest to the client wins: its verified
// identity, then its network, the listener, the node.
type source struct {
	layers  [4]map[string]string
	network netip.Prefix
}

// layerNames are the names of the layers of a source.
var layerNames = [4]string{"client", "network", "listener", "node"}

// serviceTags name the service of a client: Penstock's tag and Kuma's.
var serviceTags = [...]string{"service", "kuma.io/service"}

// source returns the source of a connection to a listener.
func (t *Table) source(in *Input, l *Listener) source {
	s := source{layers: [4]map[string]string{0: in.Tags, 2: l.spec.Tags, 3: t.node}}
	s.layers[1], s.network = l.sources.find(in.Client)
	return s
}

// get returns a tag's value and its layer, or -1.
func (s *source) get(tag string) (value string, layer int) {
	for i, tags := range s.layers {
		if v, ok := tags[tag]; ok {
			return v, i
		}
	}
	return "", -1
}

// service returns the service of the client, or "". Either tag in a higher
// layer beats both in lower ones: the tags of its network do not override a
// client's verified identity.
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

// matches reports whether a targetRef selects the source.
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

// all lists the effective tags, sorted.
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
