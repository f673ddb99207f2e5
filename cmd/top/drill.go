package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/cmd/plaintext"
	"penstock/node/api"
)

// endpointsTable has the endpoints of a service: their health as the node that was
// asked sees it, their traffic on all nodes.
func (m *Model) endpointsTable() *table {
	l := m.level()
	connections := "CONN"
	if m.flow == nil {
		connections = "CONN HERE" // of the node that was asked alone
	}
	t := &table{columns: []column{
		{title: "ENDPOINT", width: 20, max: 60},
		{title: "HEALTH", width: 10},
		{title: connections, width: 10, right: true, descending: true},
		{title: "IN/S", width: 9, right: true, descending: true, rank: 1},
		{title: "OUT/S", width: 9, right: true, descending: true, rank: 1},
		{title: "WEIGHT", width: 6, right: true, descending: true, rank: 3},
		{title: "SOURCE", width: 10, max: 24, rank: 5},
		{title: "TAGS", width: 12, max: 60, rank: 4},
	}, empty: waiting(m.endpoints != nil, "no endpoint")}
	for i := range m.endpoints {
		e := &m.endpoints[i]
		if e.Service != l.service {
			continue
		}
		rates := []field{count(e.Connections), unknown(), unknown()}
		if m.flow != nil {
			rates = m.flowOf(e)
		}
		of := &level{view: viewConnections, title: plaintext.Line(e.Address), service: l.service, endpoint: e.Address}
		t.rows = append(t.rows, row{
			id: e.Address, detail: m.endpointDetail(e),
			fields: slices.Concat([]field{text(plaintext.Line(e.Address)), health(e)}, rates, []field{
				number(fmt.Sprint(e.Weight), float64(e.Weight)), text(plaintext.Line(e.Source)), text(plaintext.Line(tagsText(e.Tags))),
			}),
			open: func(m *Model) { m.open(of) }, connections: of,
		})
	}
	return t
}

// flowOf sums up the streams to an endpoint.
func (m *Model) flowOf(e *api.Endpoint) []field {
	var open int64
	var in, out float64
	for i := range m.flow.Streams {
		s := &m.flow.Streams[i]
		if s.Service == e.Service && (s.Endpoint == e.Address || s.Endpoint == e.Resolved && s.Endpoint != "") {
			open, in, out = open+s.Connections, in+s.InRate, out+s.OutRate
		}
	}
	return []field{count(open), number(plaintext.Bytes(in), in), number(plaintext.Bytes(out), out)}
}

// health is the health of an endpoint, or why it gets no connections whatever that is.
func health(e *api.Endpoint) field {
	switch {
	case e.State != "" && e.State != "ready":
		return field{text: plaintext.Line(e.State), style: warn}
	case e.Health == "healthy":
		return field{text: e.Health, style: good}
	case e.Health == "unchecked":
		return field{text: e.Health}
	}
	return field{text: plaintext.Line(e.Health), style: bad}
}

// endpointDetail is what else is known about an endpoint.
func (m *Model) endpointDetail(e *api.Endpoint) []string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if e.Resolved != "" && e.Resolved != e.Address {
		add("resolved to %s", plaintext.Line(e.Resolved))
	}
	if e.Zone != "" {
		add("zone %s", plaintext.Line(e.Zone))
	}
	if e.Priority > 0 || e.Backup {
		add("priority %d", e.Priority)
	}
	if e.Load != "" {
		add("load %s", plaintext.Line(e.Load))
	}
	if e.Since != nil {
		add("known since %s", e.Since.In(m.zone).Format(time.DateTime))
	}
	if m.status != nil {
		for _, s := range m.status.Services {
			for _, x := range s.Endpoints {
				if s.Name != e.Service || x.Address != e.Address {
					continue
				}
				if x.Reason != "" {
					add("%s", plaintext.Line(x.Reason))
				}
				if x.Error != "" {
					add("last error: %s", plaintext.Line(x.Error))
				}
			}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{strings.Join(parts, "; ")}
}

func tagsText(tags map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, k+"="+tags[k])
	}
	return strings.Join(parts, ",")
}

// The columns of connections that nodes can sort by: they decide which ones come if
// there are more than maxListed.
const (
	columnIn   = 7
	columnOut  = 8
	columnAge  = 9
	columnIdle = 10
)

// connectionOrder is the order in which nodes are asked for connections.
func (l *level) connectionOrder() string {
	switch {
	case l.sort == columnIdle && !l.reverse:
		return api.SortIdle
	case (l.sort == columnIn || l.sort == columnOut) && !l.reverse:
		return api.SortBytes
	case l.sort == columnAge && l.reverse:
		return api.SortAge
	}
	return api.SortNewest
}

// connectionList returns the connections of the view, and how many there are in all.
func (m *Model) connectionList() (list []api.Connection, total int, known bool) {
	switch {
	case !m.withoutList && m.connections != nil:
		return m.connections.Connections, m.connections.Total, true
	case m.withoutList && m.sample != nil:
		l := m.level()
		for _, c := range m.sample.Latest {
			if (l.listener == "" || c.Listener == l.listener) && (l.service == "" || c.Service == l.service) &&
				(l.endpoint == "" || c.Endpoint == l.endpoint) {
				list = append(list, c)
			}
		}
		return list, len(list), true
	}
	return nil, 0, false
}

// connectionsText says which connections are listed.
func (m *Model) connectionsText(l *level) string {
	list, total, known := m.connectionList()
	if !known {
		return ""
	}
	what := []string{"open", "ended", "failed"}[l.ends]
	if len(list) < total {
		return fmt.Sprintf("%d of %d %s", len(list), total, what)
	}
	if m.withoutList {
		what = "of the latest"
	}
	return fmt.Sprintf("%d %s", total, what)
}

func (m *Model) connectionsTable() *table {
	l := m.level()
	list, _, known := m.connectionList()
	phase := "PHASE"
	if l.ends != openOnes {
		phase = "REASON"
	}
	t := &table{columns: []column{
		{title: "CLIENT", width: 17, max: 47},
		{title: "WHO", width: 10, max: 50, rank: 4},
		{title: "LISTENER", width: 8, max: 24, rank: 6},
		{title: "SERVICE", width: 8, max: 24, rank: 2},
		{title: "ENDPOINT", width: 16, max: 47, rank: 3},
		{title: "NODE", width: 6, max: 20, rank: 5},
		{title: phase, width: 8, max: 24},
		{title: "IN", width: 8, right: true, descending: true, rank: 1},
		{title: "OUT", width: 8, right: true, descending: true, rank: 1},
		{title: "AGE", width: 6, right: true},
		{title: "IDLE", width: 6, right: true, descending: true, rank: 7},
	}, empty: waiting(known, "no connection")}
	for i := range list {
		c := &list[i]
		node := cmp.Or(c.Node, m.node, m.sampleNode())
		state := field{text: plaintext.Line(c.Phase)}
		if l.ends != openOnes {
			state = field{text: plaintext.Line(c.Reason)}
		}
		if c.Error != "" {
			state.style = bad
		}
		title := fmt.Sprintf("%s/%d", plaintext.Untrusted(node), c.ID)
		t.rows = append(t.rows, row{
			id: title, detail: connectionDetail(c),
			fields: []field{
				text(plaintext.Untrusted(c.Client)), text(cmp.Or(whoText(c), "-")), text(plaintext.Line(c.Listener)),
				text(cmp.Or(plaintext.Line(c.Service), "-")), text(cmp.Or(plaintext.Line(c.Endpoint), "-")), text(plaintext.Untrusted(node)), state,
				number(plaintext.Bytes(float64(c.BytesIn)), float64(c.BytesIn)), number(plaintext.Bytes(float64(c.BytesOut)), float64(c.BytesOut)),
				number(plaintext.Age(c.Age), float64(c.Age)), number(plaintext.Age(c.Idle), float64(c.Idle)),
			},
			open: func(m *Model) { m.open(&level{view: viewTrace, title: title, node: node, id: c.ID}) },
		})
	}
	return t
}

// sampleNode is the node whose sample is shown, if it is of one node.
func (m *Model) sampleNode() string {
	if m.sample == nil {
		return ""
	}
	return m.sample.Node
}

// whoText says who a client is, by the best that is known.
func whoText(c *api.Connection) string {
	return plaintext.Untrusted(cmp.Or(c.User, c.Identity, c.ClientID, c.SNI))
}

// connectionDetail is what else is known about a connection.
func connectionDetail(c *api.Connection) []string {
	var parts []string
	for _, one := range []struct{ name, value string }{
		{"server name", c.SNI}, {"TLS", c.TLS}, {"identity", c.Identity}, {"user", c.User}, {"client ID", c.ClientID}, {"error", c.Error},
	} {
		if one.value != "" {
			parts = append(parts, one.name+" "+plaintext.Untrusted(one.value))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{strings.Join(parts, ", ")}
}
