package kuma

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
)

// exporter builds the spec of a policy in Kuma's form.
type exporter struct{ root *yaml.Node }

// mapping returns a mapping with the pairs of a key and a node or a text.
func (e exporter) mapping(pairs ...any) *yaml.Node {
	m := document.NewMapping(e.root)
	for i := 0; i+1 < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case string:
			m.Put(e.root, pairs[i].(string), document.Text(e.root, v)) //nolint:forcetypeassert // written below
		case *yaml.Node:
			m.Put(e.root, pairs[i].(string), v) //nolint:forcetypeassert // written below
		}
	}
	return m.Node
}

// targetRef returns the top-level targetRef of the only service, or of everything.
func (e exporter) targetRef(services []string) *yaml.Node {
	if len(services) == 0 {
		return e.mapping("kind", "Mesh")
	}
	return e.mapping("kind", "MeshService", "name", services[0])
}

// permission returns the spec of a MeshTrafficPermission; why says what Kuma
// cannot.
func (e exporter) permission(p *resource.TrafficPermission) (spec *yaml.Node, why string) {
	if len(p.Rules) > 0 {
		return nil, "Kuma has one action for each destination: write one permission for each rule"
	}
	var services []string
	if len(p.To) > 0 {
		services = p.To[0].Services
	}
	same := &resource.TrafficPermission{From: p.From, Action: p.Action}
	if len(services) > 0 {
		same.To = []resource.PermissionDestination{{Services: services}}
	}
	switch {
	case len(services) > 1 || len(p.To) > 0 && len(services) == 0 || !reflect.DeepEqual(p.WithDefaults(), same.WithDefaults()):
		return nil, "Kuma has no destinations but one service or all, no onChange and no window"
	case len(p.From) == 0 && p.Action == resource.ActionDeny:
		return nil, "it denies everyone, which a more specific Allow overrides in Kuma"
	}
	ref := e.targetRef(services)
	if len(p.From) == 1 && len(p.From[0].Identities) > 0 {
		matches, why := e.matches(&p.From[0])
		if why != "" {
			return nil, why
		}
		rule := e.mapping("default", e.mapping(wordOf(ruleActions, p.Action), matches))
		return e.mapping("targetRef", ref, "rules", document.List(e.root, rule)), ""
	}
	sources := p.From
	if len(sources) == 0 {
		sources = []resource.TrafficSource{{}}
	}
	from := document.List(e.root)
	for i := range sources {
		client, why := e.client(&sources[i], len(p.From) == 0)
		if why != "" {
			return nil, why
		}
		from.Content = append(from.Content, e.mapping("targetRef", client, "default", e.mapping("action", wordOf(fromActions, p.Action))))
	}
	return e.mapping("targetRef", ref, "from", from), ""
}

// wordOf returns Kuma's word for an action.
func wordOf(words map[string]string, action string) string {
	for word, a := range words {
		if a == action {
			return word
		}
	}
	return ""
}

// matches returns the matches of SPIFFE IDs that a source stands for.
func (e exporter) matches(s *resource.TrafficSource) (list *yaml.Node, why string) {
	if !reflect.DeepEqual(s, &resource.TrafficSource{Identities: s.Identities}) {
		return nil, "Kuma has no clients with an identity and something else"
	}
	list = document.List(e.root)
	add := func(how, value string) {
		id := e.mapping("spiffeID", e.mapping("type", how, "value", value))
		list.Content = append(list.Content, id)
	}
	for left := s.Identities; len(left) > 0; {
		if !strings.Contains(left[0], "*") {
			add("Exact", left[0])
			left = left[1:]
			continue
		}
		prefix, n := prefixOf(left)
		if n == 0 {
			return nil, "Kuma has no pattern like " + strconv.Quote(left[0])
		}
		add("Prefix", prefix)
		left = left[n:]
	}
	return list, ""
}

// client returns the targetRef of from for a source.
func (e exporter) client(s *resource.TrafficSource, everyone bool) (ref *yaml.Node, why string) {
	if !reflect.DeepEqual(s, &resource.TrafficSource{Services: s.Services, Tags: s.Tags}) || len(s.Services) > 1 {
		return nil, "Kuma has no clients by networks, principals, client ids or several services, and identities only without other clients"
	}
	tags := document.NewMapping(e.root)
	for _, k := range slices.Sorted(maps.Keys(s.Tags)) {
		tags.Put(e.root, k, document.Text(e.root, s.Tags[k]))
	}
	switch {
	case len(s.Services) == 1 && len(s.Tags) > 0:
		return e.mapping("kind", "MeshServiceSubset", "name", s.Services[0], "tags", tags.Node), ""
	case len(s.Services) == 1:
		return e.mapping("kind", "MeshService", "name", s.Services[0]), ""
	case len(s.Tags) > 0:
		return e.mapping("kind", "MeshSubset", "tags", tags.Node), ""
	case everyone:
		return e.mapping("kind", "Mesh"), ""
	}
	return nil, "an entry of from selects everyone"
}

// rateLimit returns the spec of a MeshRateLimit; why says what Kuma cannot.
func (e exporter) rateLimit(r *resource.RateLimit) (spec *yaml.Node, why string) {
	var services []string
	same := &resource.RateLimit{By: "destination", Requests: r.Requests, Connections: r.Connections}
	if len(r.To) > 0 {
		services = r.To[0].Services
		same.To, same.By = []resource.TrafficDestination{{Services: services}}, "all"
	}
	full := r.WithDefaults()
	switch {
	case len(services) > 1 || len(r.To) > 0 && len(services) == 0 || !reflect.DeepEqual(full, same.WithDefaults()):
		return nil, "Kuma has rates of connections and requests alone, for one service or for each, of each node"
	case r.Requests == nil && r.Connections == nil:
		return nil, "it has no rate of connections or requests"
	}
	local := document.NewMapping(e.root)
	for _, x := range []struct {
		protocol, field string
		rate            *resource.Rate
	}{{"http", "requestRate", full.Requests}, {"tcp", "connectionRate", full.Connections}} {
		if x.rate == nil {
			continue
		}
		if x.rate.Burst != x.rate.Rate {
			return nil, "Kuma has no burst"
		}
		num := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(x.rate.Rate)}
		per := time.Duration(x.rate.Per).String()
		local.Put(e.root, x.protocol, e.mapping(x.field, e.mapping("num", num, "interval", per)))
	}
	from := e.mapping("targetRef", e.mapping("kind", "Mesh"), "default", e.mapping("local", local.Node))
	return e.mapping("targetRef", e.targetRef(services), "from", document.List(e.root, from)), ""
}
