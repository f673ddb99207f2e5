package codec

import (
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
)

// Short forms: what a user may write in place of a field's full form, as in
//
//	to: {service: shop}             to: [{services: [shop]}]
//	connectionsPerSecond: 100       connections: {rate: 100}
//	connections: 50                 concurrent: 50
//	by: tag:team                    by: tag, tag: team
//	logs: true                      logs: {}, in a Telemetry; false: left out
//
// They are rewritten before decoding, so faults name the full form, and get prints
// it. A field in both forms is a duplicate key.

// singular has the keys that stand for a list of one.
var singular = map[string]string{
	"identity": "identities", "service": "services", "network": "networks", "principal": "principals", "clientID": "clientIDs",
	"virtualCluster": "virtualClusters", "listener": "listeners",
}

// shortRates has the keys that stand for a rate.
var shortRates = map[string]string{
	"connectionsPerSecond": "connections", "requestsPerSecond": "requests",
	"bytesPerSecondIn": "bytesIn", "bytesPerSecondOut": "bytesOut",
}

// expandShort rewrites the short forms in a spec.
func expandShort(kind string, spec *yaml.Node) {
	switch kind {
	case resource.KindPermission, resource.KindRateLimit, resource.KindTelemetry:
	default:
		return
	}
	if spec.Kind != yaml.MappingNode {
		return
	}
	if kind == resource.KindTelemetry {
		expandSignals(spec)
		return
	}
	expandSelectors(spec)
	if rules := childOf(spec, "rules"); rules != nil && kind == resource.KindPermission {
		for _, rule := range rules.Content {
			if rule.Kind == yaml.MappingNode {
				expandSelectors(rule)
			}
		}
	}
	if kind == resource.KindRateLimit {
		expandRates(spec)
	}
}

// expandSelectors rewrites the entries of from and to.
func expandSelectors(n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i].Value; key != "from" && key != "to" {
			continue
		}
		if n.Content[i+1].Kind == yaml.MappingNode {
			n.Content[i+1] = listOfOne(n.Content[i+1])
		}
		for _, entry := range n.Content[i+1].Content {
			if entry.Kind != yaml.MappingNode {
				continue
			}
			for j := 0; j+1 < len(entry.Content); j += 2 {
				key, value := entry.Content[j], entry.Content[j+1]
				if plural, ok := singular[key.Value]; ok && value.Kind == yaml.ScalarNode && value.Tag != "!!null" {
					entry.Content[j], entry.Content[j+1] = renamed(key, plural), listOfOne(value)
				}
			}
		}
	}
}

// expandRates rewrites the rates of a RateLimit and what it counts by.
func expandRates(spec *yaml.Node) {
	var rates []*yaml.Node
	for i := 0; i+1 < len(spec.Content); i += 2 {
		key, value := spec.Content[i], spec.Content[i+1]
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
			continue
		}
		full, isRate := shortRates[key.Value]
		switch tag, isTag := strings.CutPrefix(value.Value, "tag:"); {
		case isRate:
			rate := mappingOf(key, "rate", value)
			spec.Content[i], spec.Content[i+1] = renamed(key, full), rate
			rates = append(rates, rate)
		case key.Value == "connections":
			spec.Content[i] = renamed(key, "concurrent")
		case key.Value == "by" && isTag:
			spec.Content[i+1] = renamed(value, "tag")
			spec.Content = append(spec.Content, renamed(key, "tag"), renamed(value, tag))
		}
	}
	if len(rates) != 1 {
		return // whose burst it is would be a guess
	}
	for i := 0; i+1 < len(spec.Content); i += 2 {
		if key := spec.Content[i]; key.Value == "burst" {
			rates[0].Content = append(rates[0].Content, key, spec.Content[i+1])
			spec.Content = slices.Delete(spec.Content, i, i+2)
			return
		}
	}
}

// expandSignals rewrites signals of a Telemetry that are only switched on or off.
func expandSignals(spec *yaml.Node) {
	for i := 0; i+1 < len(spec.Content); {
		key, value := spec.Content[i].Value, spec.Content[i+1]
		if key != "traces" && key != "logs" && key != "metrics" || value.Tag != "!!bool" {
			i += 2
			continue
		}
		if on := strings.EqualFold(value.Value, "true"); !on {
			spec.Content = slices.Delete(spec.Content, i, i+2)
			continue
		}
		spec.Content[i+1] = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: value.Line, Column: value.Column}
		i += 2
	}
}

// renamed returns a copy of a scalar, at its place, with another text.
func renamed(n *yaml.Node, text string) *yaml.Node {
	next := *n
	next.Value = text
	return &next
}

// listOfOne returns a list with a value, at its place.
func listOfOne(n *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: n.Line, Column: n.Column, Content: []*yaml.Node{n}}
}

// mappingOf returns a mapping with one key, at the place of at.
func mappingOf(at *yaml.Node, key string, value *yaml.Node) *yaml.Node {
	return &yaml.Node{
		Kind: yaml.MappingNode, Tag: "!!map", Line: at.Line, Column: at.Column,
		Content: []*yaml.Node{renamed(at, key), value},
	}
}
