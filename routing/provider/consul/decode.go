package consul

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"penstock/routing/provider"
)

// Bounds of an endpoint's tags. The tags of an instance in Consul are for all
// kinds of software; those that do not fit here are left out, not the instance.
const (
	maxTags     = 64
	maxTagBytes = 256
)

// instance is what is used of an element of the answer.
type instance struct {
	Node    *node    `json:"Node"`
	Service *service `json:"Service"`
	Checks  []check  `json:"Checks"`
}

type node struct {
	Address  string            `json:"Address"`
	Meta     map[string]string `json:"Meta"`
	Locality *locality         `json:"Locality"`
}

type service struct {
	Address  string            `json:"Address"`
	Port     int               `json:"Port"`
	Ports    []port            `json:"Ports"` // since Consul 1.22
	Tags     []string          `json:"Tags"`
	Meta     map[string]string `json:"Meta"`
	Weights  *weights          `json:"Weights"`
	Locality *locality         `json:"Locality"` // since Consul 1.17
}

type port struct {
	Name    string `json:"Name"`
	Port    int    `json:"Port"`
	Default bool   `json:"Default"`
}

type weights struct {
	Passing int `json:"Passing"`
	Warning int `json:"Warning"`
}

type locality struct {
	Zone string `json:"Zone"`
}

type check struct {
	CheckID string `json:"CheckID"`
	Status  string `json:"Status"`
}

// A decoder reads an answer of /v1/health/service.
type decoder struct {
	cfg  *Config
	port string // of the query
}

// decode reads an answer to its end.
func (d decoder) decode(r io.Reader) ([]provider.Endpoint, error) {
	in := jsontext.NewDecoder(r)
	if kind := in.PeekKind(); kind != '[' && kind != 0 {
		return nil, errors.New("the answer is not a list: is there a Consul agent at the address?")
	}
	if _, err := in.ReadToken(); err != nil {
		return nil, malformed(err)
	}
	var endpoints []provider.Endpoint
	n := 0
	for ; in.PeekKind() != ']'; n++ {
		if n == d.cfg.MaxEndpoints {
			return nil, fmt.Errorf("the answer has more than maxEndpoints (%d) instances: raise it, or ask for fewer by tags", n)
		}
		var i instance
		if err := json.UnmarshalDecode(in, &i); err != nil {
			return nil, malformed(err)
		}
		e, ok, err := d.endpoint(&i)
		if err != nil {
			return nil, fmt.Errorf("the answer is malformed: instance %d: %w", n, err)
		}
		if ok {
			endpoints = append(endpoints, e)
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return nil, malformed(err)
	}
	if _, err := in.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the answer is malformed: there is something after the list")
	}
	if n > 0 && len(endpoints) == 0 {
		return nil, fmt.Errorf("no instance has a port named %q: name one of the service's ports, or its number", d.port)
	}
	return endpoints, nil
}

// malformed says where an answer is not what Consul documents.
func malformed(err error) error {
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("the answer is malformed: %.100q (byte %d): %w", string(syntax.JSONPointer), syntax.ByteOffset, syntax.Err)
	case errors.As(err, &semantic):
		return fmt.Errorf("the answer is malformed: %.100q (byte %d): wrong type", string(semantic.JSONPointer), semantic.ByteOffset)
	case errors.Is(err, io.EOF):
		return errors.New("the answer is empty")
	}
	return err
}

// endpoint returns the endpoint of an instance, unless it lacks the port of the
// query.
func (d *decoder) endpoint(i *instance) (e provider.Endpoint, ok bool, err error) {
	if i.Node == nil || i.Service == nil {
		return e, false, errors.New("it has no Node or no Service")
	}
	host := i.Service.Address
	if host == "" {
		host = i.Node.Address
	}
	number, ok := i.Service.port(d.port)
	if !ok {
		return e, false, nil
	}
	weight := weights{Passing: 1, Warning: 1}
	if i.Service.Weights != nil {
		weight = *i.Service.Weights
	}
	e = provider.Endpoint{Address: net.JoinHostPort(host, strconv.Itoa(number)), Weight: weight.Passing, Tags: tags(i)}
	health, err := worst(i.Checks)
	switch {
	case err != nil:
		return e, false, err
	case health == warning && d.cfg.WarningReady:
		e.Weight = weight.Warning
	case health != passing:
		e.State = provider.NotReady
	}
	return e, true, nil
}

// port returns the port that a query names.
func (s *service) port(name string) (number int, ok bool) {
	if n, err := strconv.ParseUint(name, 10, 16); err == nil {
		return int(n), true
	}
	for _, p := range s.Ports {
		if p.Name == name && name != "" || p.Default && name == "" {
			return p.Port, true
		}
	}
	return s.Port, name == ""
}

// health is the state of a check, or of the worst of an instance.
type health uint8

const (
	passing health = iota
	warning
	critical
)

// worst returns the worst state of the checks of an instance and its node.
func worst(checks []check) (health, error) {
	w := passing
	for _, c := range checks {
		var h health
		switch {
		case c.CheckID == "_node_maintenance" || strings.HasPrefix(c.CheckID, "_service_maintenance:"):
			h = critical
		case c.Status == "passing":
			h = passing
		case c.Status == "warning":
			h = warning
		case c.Status == "critical":
			h = critical
		default:
			return 0, fmt.Errorf("check %.60q has the unknown status %.60q", c.CheckID, c.Status)
		}
		w = max(w, h)
	}
	return w, nil
}

// tags returns the tags of an endpoint: its zone, the metadata of the service as
// they are, a Consul tag "k=v" as that, and another Consul tag T as T=true. The
// first one of a key counts, in this order.
func tags(i *instance) map[string]string {
	all := map[string]string{}
	add := func(key, value string) {
		if _, taken := all[key]; !taken && len(all) < provider.MaxTags && provider.TagOK(key, value) {
			all[key] = value
		}
	}
	if zone := zone(i); zone != "" {
		add(provider.ZoneTag, zone)
	}
	for _, key := range slices.Sorted(maps.Keys(i.Service.Meta)) {
		add(key, i.Service.Meta[key])
	}
	for _, tag := range i.Service.Tags {
		if key, value, ok := strings.Cut(tag, "="); ok {
			add(key, value)
		} else {
			add(tag, "true")
		}
	}
	return all
}

// zone returns the zone of an instance: that of the service's metadata or
// locality, else that of the node's.
func zone(i *instance) string {
	zones := []string{i.Service.Meta[provider.ZoneTag]}
	for _, l := range []*locality{i.Service.Locality, i.Node.Locality} {
		if l != nil {
			zones = append(zones, l.Zone)
		}
	}
	return cmp.Or(append(zones, i.Node.Meta[provider.ZoneTag])...)
}
