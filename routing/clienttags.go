package routing

import "maps"

// ClientTags returns the tags of a client's source, those closest to the client first,
// and its service, "" if it has none. The tags are shared: do not change them.
func (t *Table) ClientTags(in *Input) (tags map[string]string, service string) {
	src := source{layers: [4]map[string]string{0: in.Tags, 3: t.node}}
	if l, ok := t.listeners.Get(in.Listener); ok {
		src = t.source(in, l)
	}
	for _, layer := range src.layers {
		switch {
		case len(layer) == 0:
		case tags == nil:
			tags = layer
		default:
			merged := maps.Clone(layer)
			maps.Copy(merged, tags)
			tags = merged
		}
	}
	return tags, src.service()
}

// IdentityOf returns the SPIFFE ID that a client has proven, or "".
func IdentityOf(in *Input) string { return in.Tags[identityTag] }
