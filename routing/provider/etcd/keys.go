package etcd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"penstock/routing/provider"
)

// keys is what is known of the keys below the prefix.
type keys struct {
	prefix string
	format Format
	values map[string]value // by key, without the prefix
	// services has the keys of each service; of TiDB there is one service, "".
	services map[string]map[string]bool
}

// value is a key's endpoint.
type value struct {
	endpoint provider.Endpoint
	known    bool  // endpoint is of the last value that could be read
	err      error // of the present one
}

func newKeys(prefix string, format Format) *keys {
	return &keys{prefix: prefix, format: format, values: map[string]value{}, services: map[string]map[string]bool{}}
}

// apply records a key, and returns the service that it belongs to. A value that
// cannot be read leaves the one before in place.
func (k *keys) apply(key string, data []byte, deleted bool) (service string) {
	name := strings.TrimPrefix(key, k.prefix)
	if k.format == JSON {
		slash := strings.LastIndexByte(name, '/')
		if slash < 1 || slash == len(name)-1 {
			return "" // no key of an endpoint
		}
		service = name[:slash]
	}
	of := k.services[service]
	if deleted {
		delete(k.values, name)
		if delete(of, name); len(of) == 0 {
			delete(k.services, service)
		}
		return service
	}
	if of == nil {
		of = map[string]bool{}
		k.services[service] = of
	}
	of[name] = true
	e, err := k.parse(name, data)
	if err != nil {
		before := k.values[name]
		before.err = fmt.Errorf("key %s: %w", key, err)
		k.values[name] = before
	} else {
		k.values[name] = value{endpoint: e, known: true}
	}
	return service
}

// parse returns the endpoint of a key. That of a key without one has no address.
func (k *keys) parse(name string, data []byte) (provider.Endpoint, error) {
	if len(data) > maxValue {
		return provider.Endpoint{}, fmt.Errorf("the value has %d bytes; the maximum is %d", len(data), maxValue)
	}
	if k.format == JSON {
		return parseJSON(data)
	}
	address, isInfo := strings.CutSuffix(name, "/info")
	if !isInfo {
		return provider.Endpoint{}, nil
	}
	return parseTiDB(address, data)
}

// parseJSON reads a value of the format JSON.
func parseJSON(data []byte) (provider.Endpoint, error) {
	var v struct {
		Address  string            `json:"address"`
		Weight   *int              `json:"weight"`
		Priority int               `json:"priority"`
		Tags     map[string]string `json:"tags"`
		State    string            `json:"state"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		return provider.Endpoint{}, fmt.Errorf("not {address, weight, priority, tags, state} as JSON: %w", err)
	}
	if decoder.More() {
		return provider.Endpoint{}, fmt.Errorf("the value goes on after the object, at byte %d", decoder.InputOffset())
	}
	e := provider.Endpoint{Address: v.Address, Weight: 1, Priority: v.Priority, Tags: v.Tags}
	if v.Weight != nil {
		e.Weight = *v.Weight
	}
	var ok bool
	if e.State, ok = provider.ParseState(v.State); !ok {
		return provider.Endpoint{}, fmt.Errorf("state %q must be ready, notReady or terminating", v.State)
	}
	if e.Address == "" {
		return provider.Endpoint{}, fmt.Errorf("address is missing")
	}
	return e, nil
}

// parseTiDB reads what a TiDB server publishes about itself. Its labels become
// tags, and so do its version and status_port.
func parseTiDB(address string, data []byte) (provider.Endpoint, error) {
	var v struct {
		Version    string            `json:"version"`
		StatusPort uint16            `json:"status_port"`
		Labels     map[string]string `json:"labels"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return provider.Endpoint{}, fmt.Errorf("not TiDB's topology as JSON: %w", err)
	}
	e := provider.Endpoint{Address: address, Weight: 1, Tags: v.Labels}
	if e.Tags == nil {
		e.Tags = map[string]string{}
	}
	if v.Version != "" && e.Tags["version"] == "" {
		e.Tags["version"] = v.Version
	}
	if v.StatusPort != 0 && e.Tags["status_port"] == "" {
		e.Tags["status_port"] = strconv.Itoa(int(v.StatusPort))
	}
	return e, nil
}

// report reports the queries whose services are in touched; nil: all. Beside the
// endpoints of a service it names the first of its keys that cannot be read.
func (k *keys) report(sink provider.Sink, queries []provider.Query, touched map[string]bool) {
	for _, q := range queries {
		service := q.Service
		if k.format == TiDB {
			service = "" // there is one list of servers, whatever it is called
		}
		if touched != nil && !touched[service] {
			continue
		}
		endpoints, fault := k.endpoints(service)
		sink.Report(q, endpoints)
		if fault != nil {
			sink.Warn(q, fault)
		}
	}
}

// endpoints returns a service's endpoints and the first fault among its keys.
func (k *keys) endpoints(service string) (list []provider.Endpoint, fault error) {
	names := make([]string, 0, len(k.services[service]))
	for name := range k.services[service] {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := k.values[name]
		if v.err != nil && fault == nil {
			fault = v.err
		}
		if !v.known || v.endpoint.Address == "" {
			continue
		}
		if _, lives := k.values[v.endpoint.Address+"/ttl"]; k.format == JSON || lives {
			list = append(list, v.endpoint)
		}
	}
	return list, fault
}
