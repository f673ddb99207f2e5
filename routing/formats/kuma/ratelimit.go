package kuma

import (
	"strconv"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
)

// rateLimitSpec converts the spec of a MeshRateLimit to that of a RateLimit. It
// reports a fault and returns nil if that cannot say the same.
//
// Kuma's limit is of each proxy of the destination, Penstock's of each node: for
// one service all clients of the node share the budget, and without a service each
// service has one of its own.
func rateLimitSpec(f *document.Frame, n *yaml.Node) *yaml.Node {
	if n == nil {
		f.Fault(f.Root, "spec", "is required", nil)
		return nil
	}
	p := &policyReader{f: f, spec: n, ok: true}
	v := p.fields(n, "spec", "targetRef", "from", "rules")
	out := &resource.RateLimit{By: "destination"}
	for _, service := range p.destination(v["targetRef"], "spec.targetRef") {
		out.To, out.By = []resource.TrafficDestination{{Services: []string{service}}}, "all"
	}
	list, path := v["from"], "spec.from"
	switch {
	case v["from"] != nil && v["rules"] != nil:
		p.fault(v["rules"], "spec.rules", "cannot be combined with from", nil)
		return nil
	case v["rules"] != nil:
		list, path = v["rules"], "spec.rules"
	}
	items := p.list(list, path)
	if len(items) != 1 {
		p.fault(n, path, "must have one entry: the limit is for all clients", nil)
		return nil
	}
	known := []string{"default"}
	if path == "spec.from" {
		known = []string{"targetRef", "default"}
	}
	entry := p.fields(items[0], resource.Item(path, 0), known...)
	if path == "spec.from" {
		if _, all := p.client(items[0], entry["targetRef"], resource.Item(path, 0)+".targetRef"); !all && p.ok {
			p.fault(entry["targetRef"], resource.Item(path, 0)+".targetRef", "must be kind: Mesh, as in Kuma", nil)
		}
	}
	path = resource.Item(path, 0) + ".default"
	local := p.fields(p.fields(entry["default"], path, "local")["local"], path+".local", "http", "tcp")
	http := p.fields(local["http"], path+".local.http", "requestRate", "onRateLimit", "disabled")
	tcp := p.fields(local["tcp"], path+".local.tcp", "connectionRate", "disabled")
	p.notDisabled(http["disabled"], path+".local.http.disabled")
	p.notDisabled(tcp["disabled"], path+".local.tcp.disabled")
	p.onRateLimit(http["onRateLimit"], path+".local.http.onRateLimit")
	out.Requests = p.rate(http["requestRate"], path+".local.http.requestRate")
	out.Connections = p.rate(tcp["connectionRate"], path+".local.tcp.connectionRate")
	if p.ok && out.Requests == nil && out.Connections == nil {
		p.fault(items[0], path, "needs local.http.requestRate or local.tcp.connectionRate", nil)
	}
	return p.resourceSpec(out)
}

// notDisabled refuses a limit that is switched off.
func (p *policyReader) notDisabled(n *yaml.Node, path string) {
	if n != nil && n.Value != "false" {
		p.fault(n, path, "is not supported: leave out the limit", n.Value)
	}
}

// onRateLimit refuses what a node does not do: it answers 429 with Retry-After.
func (p *policyReader) onRateLimit(n *yaml.Node, path string) {
	v := p.fields(n, path, "status", "headers")
	if status := v["status"]; status != nil && status.Value != "429" {
		p.fault(status, path+".status", "is not supported: requests over the limit are answered 429", status.Value)
	}
	if v["headers"] != nil {
		p.fault(v["headers"], path+".headers", "is not supported: the answer has Retry-After and no other fields", nil)
	}
}

// rate reads Kuma's rate, whose burst is the number.
func (p *policyReader) rate(n *yaml.Node, path string) *resource.Rate {
	if n == nil {
		return nil
	}
	v := p.fields(n, path, "num", "interval")
	out := &resource.Rate{}
	var err error
	if num := v["num"]; num == nil {
		p.fault(n, path+".num", "is required", nil)
	} else if out.Rate, err = strconv.Atoi(num.Value); err != nil || out.Rate < 1 {
		p.fault(num, path+".num", "must be a number, 1 or more", num.Value)
	}
	if interval := v["interval"]; interval == nil {
		p.fault(n, path+".interval", "is required", nil)
	} else if out.Per, err = resource.ParseDuration(interval.Value); err != nil || out.Per < 1 {
		p.fault(interval, path+".interval", "must be a duration, such as 10s", interval.Value)
	}
	return out
}
