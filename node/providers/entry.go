package providers

import (
	"fmt"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"penstock/consensus/store"
	"penstock/routing/provider"
)

// kind is that of the store's entries. It is internal to the cluster: it has no
// history, and the catalog ignores it.
const kind = "_endpoint"

// sep separates the parts of an entry's name. No part contains it, because it
// is not printable.
const sep = "\x01"

// maxKey is the store's limit for a name.
const maxKey = 512

// entry is the value of a stored endpoint.
type entry struct {
	Weight   int               `msgpack:"w"`
	Priority int               `msgpack:"p,omitempty"`
	Tags     map[string]string `msgpack:"t,omitempty"`
	State    uint8             `msgpack:"s,omitempty"`
	Since    int64             `msgpack:"f"` // Unix milliseconds
}

// keyOf returns the key of an endpoint. It fails if the names are too long for a
// key, or not printable.
func keyOf(ref provider.Ref, address string) (store.Key, error) {
	parts := []string{ref.Provider, ref.Service, ref.Port, address}
	name := strings.Join(parts, sep)
	if len(name) > maxKey {
		return store.Key{}, fmt.Errorf("provider, service, port and address have %d bytes together; the maximum is %d", len(name), maxKey)
	}
	if strings.Count(name, sep) != len(parts)-1 || strings.Contains(name, "\x00") {
		return store.Key{}, fmt.Errorf("%q: names must be printable", name)
	}
	return store.Key{Kind: kind, Name: name}, nil
}

// parseKey undoes keyOf.
func parseKey(k store.Key) (ref provider.Ref, address string, ok bool) {
	parts := strings.Split(k.Name, sep)
	if k.Kind != kind || len(parts) != 4 {
		return ref, "", false
	}
	return provider.Ref{Provider: parts[0], Query: provider.Query{Service: parts[1], Port: parts[2]}}, parts[3], true
}

func encode(e *provider.Endpoint, since time.Time) ([]byte, error) {
	return msgpack.Marshal(&entry{Weight: e.Weight, Priority: e.Priority, Tags: e.Tags, State: uint8(e.State), Since: since.UnixMilli()})
}

// decode returns the endpoint of a stored entry.
func decode(address string, value []byte) (provider.Found, error) {
	var e entry
	if err := msgpack.Unmarshal(value, &e); err != nil {
		return provider.Found{}, err
	}
	endpoint := provider.Endpoint{Address: address, Weight: e.Weight, Priority: e.Priority, Tags: e.Tags, State: provider.State(e.State)}
	return provider.NewFound(endpoint, time.UnixMilli(e.Since)), nil
}
