package routing

import (
	"slices"
	"strings"
	"time"

	"penstock/routing/resource"
)

// WhatIf is a change applied to a clone of the table in force, which stays as
// it is. It can simulate and describe the effect on connections.
//
//	whatIf, err := router.Table().WhatIf(changes, hosts, now)
//	whatIf.DiffSummary(nil)   // "canary: 10 % of new connections to apps move from v1 to v2"
//	whatIf.Simulate(ctx, &routing.SimulateRequest{Connections: 10_000})
type WhatIf struct {
	table            *Table // in force
	after            *Table // of the clone
	newClones        func() (before, after *Router)
	changedListeners []string // their names, sorted
	changedServices  []string // services that change or are routed differently, by name
	routes           []string // changed MeshTCPRoutes, in the order of the changes
	// names are the hellos that may be routed differently, by listener.
	names map[string][]sentHello
}

// sentHello is what a client may send to a listener.
type sentHello struct {
	name string // "": none
	alpn string // "": none
	user string // of a mysql client
}

// ChangedListeners returns the sorted names of the listeners that the change affects.
func (w *WhatIf) ChangedListeners() []string { return w.changedListeners }

// After returns the table with the change, of a clone.
func (w *WhatIf) After() *Table { return w.after }

// WhatIf applies changes to a clone. The error names resources that do not
// compile.
func (t *Table) WhatIf(changes []resource.Change, hosts Hosts, now time.Time) (*WhatIf, error) {
	clone := t.clone(hosts, now)
	done, err := clone.Apply(changes, now)
	w := &WhatIf{table: t, after: done.Table, changedServices: done.Services, changedListeners: done.Listeners, names: map[string][]sentHello{}}
	w.newClones = func() (before, after *Router) {
		before, after = t.clone(hosts, now), t.clone(hosts, now)
		_, _ = after.Apply(changes, now) // clone.Apply has returned its error
		return before, after
	}
	for _, name := range done.Listeners {
		if isGatewayName(name) {
			w.addHellosOf(&resource.Change{Object: resource.Object{Key: resource.Key{Kind: "Listener", Name: name}}})
		}
	}
	for i := range changes {
		w.addHellosOf(&changes[i])
		if changes[i].Kind == "MeshTCPRoute" {
			w.routes = append(w.routes, changes[i].Name)
		}
	}
	return w, err
}

// addHellosOf records the names that a change of a listener or Host affects.
func (w *WhatIf) addHellosOf(ch *resource.Change) {
	switch ch.Kind {
	case "Listener":
		for _, t := range []*Table{w.table, w.after} {
			l, ok := t.listeners.Get(ch.Name)
			if !ok || l.spec.Protocol == "kafka" {
				continue
			}
			w.addHellos(ch.Name, nil, nil)
			for i := range l.spec.Hosts {
				w.addHellos(ch.Name, l.spec.Hosts[i].Names, l.spec.Hosts[i].ALPN)
			}
			w.addUsers(l)
		}
	case "Host":
		for _, t := range []*Table{w.table, w.after} {
			if h, ok := t.hosts.Get(ch.Name); ok {
				w.addHellos(h.Listener, h.Names, h.ALPN)
			}
		}
	}
}

// anyLabel stands for the label that a wildcard matches.
const anyLabel = "any-name"

// addHellos records the hellos that a rule matches. Without names it records a
// hello without a server name.
func (w *WhatIf) addHellos(listener string, names, alpn []string) {
	protocol := ""
	if len(alpn) > 0 {
		protocol = alpn[0]
	}
	if len(names) == 0 {
		w.names[listener] = append(w.names[listener], sentHello{})
	}
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, "*."); ok {
			name = anyLabel + "." + rest
		}
		w.names[listener] = append(w.names[listener], sentHello{name: name, alpn: protocol})
	}
}

// anyUser stands for the end of a user name that a pattern matches.
const anyUser = "any-user"

// addUsers records the user names of a mysql listener's rules.
func (w *WhatIf) addUsers(l *Listener) {
	for i := range l.spec.MySQL.Users {
		for _, user := range l.spec.MySQL.Users[i].Names {
			if prefix, isPattern := resource.UserPrefix(user); isPattern {
				user = prefix + anyUser
			}
			w.names[l.name] = append(w.names[l.name], sentHello{user: user})
		}
	}
}

// nameMove is a hello whose destination changes.
type nameMove struct {
	listener      string
	hello         sentHello
	before, after string // destinations, or ""
	closed        Reason // the reason of the side without a destination
}

// input returns a connection that sends the hello.
func (m *nameMove) input() *Input {
	in := &Input{Listener: m.listener, ServerName: m.hello.name, HasServerName: m.hello.name != "", User: m.hello.user}
	if m.hello.alpn != "" {
		in.ALPN = []string{m.hello.alpn}
	}
	return in
}

// nameMoves lists the hellos whose destination changes, by listener and name.
func (w *WhatIf) nameMoves() (list []nameMove) {
	for listener, hellos := range w.names {
		before, was := w.table.listeners.Get(listener)
		after, is := w.after.listeners.Get(listener)
		if !was || !is {
			continue // the whole listener is added or removed
		}
		seen := map[sentHello]bool{}
		for _, h := range hellos {
			if seen[h] {
				continue
			}
			seen[h] = true
			m := nameMove{listener: listener, hello: h}
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
	slices.SortFunc(list, func(a, b nameMove) int {
		if c := strings.Compare(a.listener, b.listener); c != 0 {
			return c
		}
		return strings.Compare(a.hello.user+a.hello.name+a.hello.alpn, b.hello.user+b.hello.name+b.hello.alpn)
	})
	return list
}

// classesOf returns the distinct sources of a destination before and after the
// change, in order of precedence after it; those that exist only before come
// last.
func (w *WhatIf) classesOf(destination string) (all []class) {
	seen := map[string]bool{}
	for _, t := range []*Table{w.after, w.table} {
		s, ok := t.services.Get(destination)
		if !ok {
			continue
		}
		for _, c := range s.classes() {
			if c.ref != nil && !c.sample.matches(c.ref) { // no source can match
				continue
			}
			if name := c.name(); !seen[name] {
				seen[name] = true
				all = append(all, c)
			}
		}
	}
	// Mesh already includes all other sources.
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
