package kuma

import (
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// The actions of Kuma's MeshTrafficPermission, in from[].default.action and as
// the lists of rules[].default, and the actions of a TrafficPermission.
var (
	fromActions = map[string]string{
		"Allow": resource.ActionAllow, "Deny": resource.ActionDeny, "AllowWithShadowDeny": resource.ActionShadowDeny,
	}
	ruleActions = map[string]string{
		"allow": resource.ActionAllow, "deny": resource.ActionDeny, "allowWithShadowDeny": resource.ActionShadowDeny,
	}
	ruleLists = []string{"allow", "deny", "allowWithShadowDeny"}
)

const (
	oneAction = "has another action than an entry before it: Kuma lets the more specific one decide, and Penstock lets a deny beat " +
		"every allow; write one document for each action"
	denyAll = "a Deny of everyone is not supported: here it would beat every Allow. Leave it out: a destination that an Allow " +
		"names is closed to all others; or close all by kind: Mesh, spec: {permission: deny}"
)

// policyReader reads the spec of one policy.
type policyReader struct {
	f    *document.Frame
	spec *yaml.Node
	ok   bool // no fault so far
}

func (p *policyReader) fault(n *yaml.Node, path, message string, value any) {
	p.ok = false
	p.f.Fault(n, path, message, value)
}

// fields is document.Frame.Fields for a mapping that may be missing.
func (p *policyReader) fields(n *yaml.Node, path string, known ...string) map[string]*yaml.Node {
	if n == nil {
		return nil
	}
	return p.f.Fields(n, path, nil, known...)
}

// list returns the items of a list that may be missing.
func (p *policyReader) list(n *yaml.Node, path string) []*yaml.Node {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.fault(n, path, "must be a list", nil)
		return nil
	}
	return n.Content
}

// resourceSpec returns a spec as a node whose faults refer to the line of the
// document's spec; nil after a fault.
func (p *policyReader) resourceSpec(s resource.Spec) *yaml.Node {
	if !p.ok {
		return nil
	}
	n := codec.SpecNode(s)
	setLine(n, p.spec.Line)
	return n
}

func setLine(n *yaml.Node, line int) {
	n.Line = line
	for _, c := range n.Content {
		setLine(c, line)
	}
}

// permissionSpec converts the spec of a MeshTrafficPermission to that of a
// TrafficPermission. It reports a fault and returns nil if that cannot say the
// same.
func permissionSpec(f *document.Frame, n *yaml.Node) *yaml.Node {
	if n == nil {
		f.Fault(f.Root, "spec", "is required", nil)
		return nil
	}
	p := &policyReader{f: f, spec: n, ok: true}
	v := p.fields(n, "spec", "targetRef", "from", "rules")
	out := &resource.TrafficPermission{}
	for _, service := range p.destination(v["targetRef"], "spec.targetRef") {
		out.To = []resource.PermissionDestination{{Services: []string{service}}}
	}
	switch {
	case v["from"] != nil && v["rules"] != nil:
		p.fault(v["rules"], "spec.rules", "cannot be combined with from", nil)
	case v["from"] == nil && v["rules"] == nil:
		p.fault(n, "spec", "needs from or rules", nil)
	case v["from"] != nil:
		p.fromForm(out, v["from"])
	default:
		p.rulesForm(out, v["rules"])
	}
	if p.ok && out.Action == "" {
		p.fault(n, "spec", "selects no client: Kuma then denies everyone, which kind: Mesh, spec: {permission: deny} does", nil)
	}
	return p.resourceSpec(out)
}

// destination returns the service that a top-level targetRef selects; none: it
// selects everything.
func (p *policyReader) destination(n *yaml.Node, path string) []string {
	v := p.fields(n, path, "kind", "name", "tags", "labels", "namespace", "sectionName", "mesh", "proxyTypes")
	kind := ""
	if v["kind"] != nil {
		kind = v["kind"].Value
	}
	for _, field := range []string{"labels", "namespace", "sectionName", "mesh", "proxyTypes"} {
		if v[field] != nil {
			p.fault(v[field], path+"."+field, unsupportedFields[field], nil)
		}
	}
	tags := p.tags(v["tags"], path+".tags")
	service, only := tags[tagService], len(tags) == 1
	switch {
	case n == nil || kind == "Mesh" || kind == "Dataplane" && v["name"] == nil:
		if len(tags) > 0 {
			p.fault(v["tags"], path+".tags", "cannot be combined with kind: "+kind, nil)
		}
		return nil
	case kind == "MeshService" && v["name"] != nil && len(tags) == 0:
		return []string{v["name"].Value}
	case kind == "MeshSubset" && only && service != "":
		return []string{service}
	}
	p.fault(n, path, "is not supported: want kind: Mesh, kind: MeshService with a name, or kind: MeshSubset with the tag "+
		tagService+" alone: destinations are whole services", nil)
	return nil
}

// tags reads a mapping of tags.
func (p *policyReader) tags(n *yaml.Node, path string) map[string]string {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		p.fault(n, path, "must be a mapping", nil)
		return nil
	}
	out := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		out[n.Content[i].Value] = n.Content[i+1].Value
	}
	return out
}

// fromForm reads spec.from.
func (p *policyReader) fromForm(out *resource.TrafficPermission, n *yaml.Node) {
	everyone := false
	for i, item := range p.list(n, "spec.from") {
		path := resource.Item("spec.from", i)
		v := p.fields(item, path, "targetRef", "default")
		source, all := p.client(item, v["targetRef"], path+".targetRef")
		action := p.fields(v["default"], path+".default", "action")["action"]
		word := ""
		if action != nil {
			word = fromActions[action.Value]
		}
		switch {
		case word == "":
			p.fault(item, path+".default.action", "is required: Allow, Deny or AllowWithShadowDeny", nil)
			continue
		case out.Action != "" && out.Action != word:
			p.fault(action, path+".default.action", oneAction, action.Value)
			continue
		case all && word == resource.ActionDeny:
			p.fault(action, path+".default.action", denyAll, nil)
			continue
		}
		out.Action = word
		everyone = everyone || all
		out.From = append(out.From, source)
	}
	if everyone {
		out.From = nil
	}
}

// client returns the clients that a targetRef of from selects; all: everyone.
func (p *policyReader) client(item, n *yaml.Node, path string) (source resource.TrafficSource, all bool) {
	if n == nil {
		p.fault(item, path, "is required", nil)
		return source, false
	}
	v := p.fields(n, path, "kind", "name", "tags", "labels", "namespace", "sectionName", "mesh", "proxyTypes")
	for _, field := range []string{"labels", "namespace", "sectionName", "mesh", "proxyTypes"} {
		if v[field] != nil {
			p.fault(v[field], path+"."+field, unsupportedFields[field], nil)
		}
	}
	tags := p.tags(v["tags"], path+".tags")
	name := ""
	if v["name"] != nil {
		name = v["name"].Value
	}
	kind := ""
	if v["kind"] != nil {
		kind = v["kind"].Value
	}
	switch {
	case kind == "Mesh" && name == "" && len(tags) == 0:
		return source, true
	case kind == "MeshSubset" && name == "" && len(tags) > 0:
		source.Tags = tags
	case kind == "MeshService" && name != "" && len(tags) == 0:
		source.Services = []string{name}
	case kind == "MeshServiceSubset" && name != "" && len(tags) > 0:
		source.Services, source.Tags = []string{name}, tags
	default:
		p.fault(n, path, "is not supported: want kind: Mesh, MeshSubset with tags, MeshService with a name, or MeshServiceSubset with both", nil)
	}
	return source, false
}

// rulesForm reads spec.rules.
func (p *policyReader) rulesForm(out *resource.TrafficPermission, n *yaml.Node) {
	var source resource.TrafficSource
	for i, item := range p.list(n, "spec.rules") {
		path := resource.Item("spec.rules", i) + ".default"
		v := p.fields(p.fields(item, resource.Item("spec.rules", i), "default")["default"], path, ruleLists...)
		for _, list := range ruleLists {
			for k, match := range p.list(v[list], path+"."+list) {
				at := resource.Item(path+"."+list, k)
				if out.Action != "" && out.Action != ruleActions[list] {
					p.fault(match, at, oneAction, nil)
					continue
				}
				out.Action = ruleActions[list]
				source.Identities = append(source.Identities, p.identity(match, at)...)
			}
		}
	}
	out.From = []resource.TrafficSource{source}
}

// identity returns the patterns of SPIFFE IDs that a match of rules selects.
func (p *policyReader) identity(n *yaml.Node, path string) []string {
	match := p.fields(n, path, "spiffeID")["spiffeID"]
	if match == nil {
		p.fault(n, path+".spiffeID", "is required: a client is selected by its SPIFFE ID", nil)
		return nil
	}
	v := p.fields(match, path+".spiffeID", "type", "value")
	how, value := "", ""
	if v["type"] != nil {
		how = v["type"].Value
	}
	if v["value"] != nil {
		value = v["value"].Value
	}
	switch {
	case strings.Contains(value, "*"):
		p.fault(v["value"], path+".spiffeID.value", "must have no *: type: Prefix matches what begins with it", value)
		return nil
	case how == "Exact":
		if _, err := resource.ParseSPIFFEID(value); err != nil {
			p.fault(match, path+".spiffeID.value", err.Error(), value)
			return nil
		}
		return []string{value}
	case how != "Prefix":
		p.fault(match, path+".spiffeID.type", "must be Exact or Prefix", how)
		return nil
	}
	patterns := prefixPatterns(value)
	if patterns == nil {
		p.fault(match, path+".spiffeID.value", "must begin with spiffe://, a whole trust domain and /", value)
		return nil
	}
	for _, pattern := range patterns {
		if err := resource.CheckSPIFFEPattern(pattern); err != nil {
			p.fault(match, path+".spiffeID.value", err.Error(), value)
			return nil
		}
	}
	return patterns
}

// prefixPatterns returns the patterns that match the SPIFFE IDs which begin with a
// text; nil if it ends within the trust domain. A text that ends within a segment
// of the path needs two: * does not reach beyond the segment.
func prefixPatterns(prefix string) []string {
	rest, ok := strings.CutPrefix(prefix, "spiffe://")
	switch {
	case !ok || strings.IndexByte(rest, '/') < 1:
		return nil
	case strings.HasSuffix(prefix, "/"):
		return []string{prefix + "**"}
	}
	return []string{prefix + "*", prefix + "*/**"}
}

// prefixOf is the inverse of prefixPatterns for the patterns that begin a list; n
// is how many of them the prefix stands for, 0 if none.
func prefixOf(patterns []string) (prefix string, n int) {
	if p, ok := strings.CutSuffix(patterns[0], "/**"); ok && !strings.Contains(p, "*") {
		return p + "/", 1
	}
	if p, ok := strings.CutSuffix(patterns[0], "*"); ok && len(patterns) > 1 && patterns[1] == p+"*/**" &&
		slices.Equal(prefixPatterns(p), patterns[:2]) && !strings.Contains(p, "*") {
		return p, 2
	}
	return "", 0
}
