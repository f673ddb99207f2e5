package model

import (
	"fmt"
	"strings"

	"penstock/routing"
)

// Explanation is how a connection is led, step by step, down to the physical
// broker and the filters in between. It is made by the same code that leads
// connections.
type Explanation struct {
	Steps []routing.Step `json:"steps"`
	// Cluster, Broker and Address are where it leads; of a bootstrap Address
	// is one of several.
	Cluster string `json:"virtualCluster,omitempty"`
	Broker  string `json:"broker,omitempty"`
	Address string `json:"address,omitempty"`
	// Reason is "" where there is a way.
	Reason routing.Reason `json:"reason,omitempty"`
}

// HasListener reports whether a listener is one of Kafka's.
func (t *Table) HasListener(listener string) bool {
	if _, ok := t.ports.Get(listener); ok {
		return true
	}
	_, ok := t.listeners.Get(listener)
	return ok
}

// Explain tells how a connection would be led.
func (t *Table) Explain(listener, serverName string, has bool) Explanation {
	e := &Explanation{}
	e.add("listener", listener, t.listenerText(listener))
	sent := "none"
	if has {
		sent = fmt.Sprintf("%q", serverName)
	}
	route, reason := t.Resolve(listener, serverName, has)
	if reason != routing.OK {
		e.add("name", sent, reasonText(reason))
		return e.closed(reason)
	}
	v, b := route.Cluster, route.Broker
	e.Cluster, e.Broker = v.Name(), b.name
	if _, port := t.ports.Get(listener); port || b.listed != nil && b.listed.SNIMatchAddress == "" {
		e.add("name", sent, "the endpoint serves only one broker")
	} else {
		e.add("name", sent, v.matchText(b))
	}
	e.add("cluster", "VirtualCluster "+v.Name(), v.brokerText(b))
	if v.speaksTLS(t, listener) {
		if b.certificate == "" {
			e.add("certificate", b.name, "none")
			return e.closed(routing.NoCertificate)
		}
		e.add("certificate", b.name, b.certificate)
	}
	e.add("filters", fmt.Sprintf("%d, in request order", len(v.chain)), v.chainText())
	targets, reason := v.Targets(b)
	looked := "PhysicalCluster " + v.physical.Name()
	if reason != routing.OK {
		e.add("physical", looked, fmt.Sprintf("broker %d has not been discovered: closed (%s)", b.node, reason))
		return e.closed(reason)
	}
	e.Address = targets[0].Address
	e.add("physical", looked, v.physicalText(b, targets))
	e.add("outcome", "decision", "connect to "+e.Address)
	return *e
}

func (e *Explanation) add(name, looked, result string) {
	e.Steps = append(e.Steps, routing.Step{Name: name, Looked: looked, Result: result})
}

func (e *Explanation) closed(reason routing.Reason) Explanation {
	e.Reason = reason
	e.add("outcome", "decision", "closed ("+string(reason)+")")
	return *e
}

// Text renders the explanation for people, a line for each step.
func (e *Explanation) Text() string {
	var b strings.Builder
	for _, s := range e.Steps {
		fmt.Fprintf(&b, "%-12s %s: %s\n", s.Name, s.Looked, s.Result)
	}
	return b.String()
}

func (t *Table) listenerText(name string) string {
	if p, ok := t.ports.Get(name); ok {
		return fmt.Sprintf("kafka%s at %s, a port of the virtual cluster", withTLS(p.TLS), p.Address)
	}
	if l, ok := t.listeners.Get(name); ok {
		return fmt.Sprintf("kafka%s at %s", withTLS(l.spec.TLS != nil), l.spec.Address)
	}
	return "unknown kafka listener"
}

func withTLS(tls bool) string {
	if tls {
		return " with TLS"
	}
	return " in the clear"
}

func reasonText(reason routing.Reason) string {
	why := map[routing.Reason]string{
		routing.NoListener:    "unknown listener",
		routing.NoServerName:  "the server name selects the broker, but the client sent none",
		routing.BadServerName: "invalid server name",
		routing.NoRoute:       "no virtual broker matches",
	}[reason]
	return fmt.Sprintf("%s: closed (%s)", why, reason)
}

func (v *Virtual) matchText(b *Broker) string {
	switch {
	case b.listed != nil:
		return "sniMatchAddress " + b.listed.SNIMatchAddress
	case b.Bootstrap():
		return "bootstrap " + v.spec.Brokers.Discover.Bootstrap
	}
	return fmt.Sprintf("sniPattern %s with node id %d", v.spec.Brokers.Discover.SNIPattern, b.node)
}

func (v *Virtual) brokerText(b *Broker) string {
	what := "broker " + b.name
	if b.Bootstrap() {
		what = "any broker"
	}
	if at := v.Advertised(b); at != "" {
		return what + ", advertised as " + at
	}
	return what + ", not advertised"
}

// speaksTLS reports whether clients speak TLS at a listener.
func (v *Virtual) speaksTLS(t *Table, listener string) bool {
	if p, ok := t.ports.Get(listener); ok {
		return p.TLS
	}
	l, ok := t.listeners.Get(listener)
	return ok && l.spec.TLS != nil
}

func (v *Virtual) chainText() string {
	words := make([]string, len(v.chain))
	for i, s := range v.chain {
		words[i] = s.Type
		switch {
		case s.Implied:
			words[i] += " (by default)"
		case s.Physical:
			words[i] += " (of the physical cluster)"
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func (v *Virtual) physicalText(b *Broker, targets []Target) string {
	at := targets[0]
	text := at.Address
	switch {
	case b.physical != nil:
		text = "broker " + b.physical.Name + " at " + text
	case !b.Bootstrap():
		text = fmt.Sprintf("broker %d at %s", b.node, text)
	case len(targets) > 1:
		text = fmt.Sprintf("any of %d brokers, for example %s", len(targets), text)
	}
	if at.TLS != nil {
		return text + ", with TLS"
	}
	return text + ", in the clear"
}
