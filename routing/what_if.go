package routing

import (
	"slices"
	"strings"
	"time"

	"penstock/routing/resource"
)

// WhatIf is a change that is tried beside the table that is in force, which it
// does not touch: what would become of connections can be played and told.
//
//	whatIf, err := router.Table().WhatIf(changes, hosts, now)
//	whatIf.DiffSummary(nil)   // "canary: 10 % of new connections to apps move from v1 to v2"
//	whatIf.Simulate(ctx, &routing.SimulateRequest{Connections: 10_000})
type WhatIf struct {
	table   *Table // in force
	after   *Table // of a fork
	again   func() (before, after *Router)
	touched []string // services that would be others, or decide otherwise, by name
	routes  []string // MeshTCPRoutes that would, as they come
	// listeners of which names may lead elsewhere, by name; and the names.
	names map[string][]sentHello
}

// sentHello is what a client may send to a listener.
type sentHello struct {
	name string // "": none
	alpn string // "": none
}

// WhatIf tries changes. The error names what cannot be compiled.
func (t *Table) WhatIf(changes []resource.Change, hosts Hosts, now time.Time) (*WhatIf, error) {
	fork := t.clone(hosts, now)
	done, err := fork.Apply(changes, now)
	tr := &WhatIf{table: t, after: done.Table, touched: done.Services, names: map[string][]sentHello{}}
	tr.again = func() (before, after *Router) {
		before, after = t.clone(hosts, now), t.clone(hosts, now)
		_, _ = after.Apply(changes, now) // its faults are known
		return before, after
	}
	for _, name := range done.Listeners {
		if isBound(name) {
			tr.noteNames(&resource.Change{Object: resource.Object{Key: resource.Key{Kind: "Listener", Name: name}}})
		}
	}
	for i := range changes {
		tr.noteNames(&changes[i])
		if changes[i].Kind == "MeshTCPRoute" {
			tr.routes = append(tr.routes, changes[i].Name)
		}
	}
	return tr, err
}

// noteNames notes the names that a change of a listener or of a Host speaks of.
func (tr *WhatIf) noteNames(ch *resource.Change) {
	switch ch.Kind {
	case "Listener":
		for _, t := range []*Table{tr.table, tr.after} {
			l, ok := t.listeners.Get(ch.Name)
			if !ok || l.spec.Protocol == "kafka" {
				continue
			}
			tr.note(ch.Name, nil, nil)
			for i := range l.spec.Hosts {
				tr.note(ch.Name, l.spec.Hosts[i].Names, l.spec.Hosts[i].ALPN)
			}
		}
	case "Host":
		for _, t := range []*Table{tr.table, tr.after} {
			if h, ok := t.hosts.Get(ch.Name); ok {
				tr.note(h.Listener, h.Names, h.ALPN)
			}
		}
	}
}

// anyLabel stands for the label that a wildcard leaves open.
const anyLabel = "any-name"

// note adds what clients may send for a rule; without names, that they send none.
func (tr *WhatIf) note(listener string, names, alpn []string) {
	protocol := ""
	if len(alpn) > 0 {
		protocol = alpn[0]
	}
	if len(names) == 0 {
		tr.names[listener] = append(tr.names[listener], sentHello{})
	}
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, "*."); ok {
			name = anyLabel + "." + rest
		}
		tr.names[listener] = append(tr.names[listener], sentHello{name, protocol})
	}
}

// moved is a hello that a listener would lead elsewhere.
type moved struct {
	listener      string
	hello         sentHello
	before, after string // destinations; "": none
	closed        Reason // before, where that has none; after, where that has none
}

// input is the connection that sends the hello.
func (m *moved) input() *Input {
	in := &Input{Listener: m.listener, ServerName: m.hello.name, HasServerName: m.hello.name != ""}
	if m.hello.alpn != "" {
		in.ALPN = []string{m.hello.alpn}
	}
	return in
}

// moves lists the hellos that would be led elsewhere, by listener and name.
func (tr *WhatIf) moves() (list []moved) {
	for listener, hellos := range tr.names {
		before, was := tr.table.listeners.Get(listener)
		after, is := tr.after.listeners.Get(listener)
		if !was || !is {
			continue // it begins or ends as a whole
		}
		seen := map[sentHello]bool{}
		for _, h := range hellos {
			if seen[h] {
				continue
			}
			seen[h] = true
			m := moved{listener: listener, hello: h}
			var from, to Reason
			m.before, from = before.destination(m.input(), nil)
			m.after, to = after.destination(m.input(), nil)
			if m.before == m.after && from == to {
				continue
			}
			if m.closed = to; from != OK {
				m.closed = from
			}
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b moved) int {
		if c := strings.Compare(a.listener, b.listener); c != 0 {
			return c
		}
		return strings.Compare(a.hello.name+a.hello.alpn, b.hello.name+b.hello.alpn)
	})
	return list
}

// classesOf are the distinct sources of a destination before and after, each
// once, in order of precedence after the change, and at the end those that are
// only there before.
func (tr *WhatIf) classesOf(destination string) (all []class) {
	seen := map[string]bool{}
	for _, t := range []*Table{tr.after, tr.table} {
		s, ok := t.services.Get(destination)
		if !ok {
			continue
		}
		for _, c := range s.classes() {
			if c.ref != nil && !c.like.matches(c.ref) { // nobody is
				continue
			}
			if name := c.name(); !seen[name] {
				seen[name] = true
				all = append(all, c)
			}
		}
	}
	// Mesh and whoever is left over are the same.
	if seen[kindMesh] && seen[OtherSources] {
		all = slices.DeleteFunc(all, func(c class) bool { return c.ref == nil })
	}
	return all
}

func (c *class) name() string {
	if c.ref == nil {
		return OtherSources
	}
	return refText(c.ref)
}
