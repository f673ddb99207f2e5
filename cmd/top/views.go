package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"penstock/cmd/plaintext"
	"penstock/node/api"
)

// table returns the table of what is shown.
func (m *Model) table() *table {
	switch m.level().view {
	case viewNodes:
		return m.nodesTable()
	case viewListeners:
		return m.listenersTable()
	case viewConnections:
		return m.connectionsTable()
	case viewKafka:
		return m.kafkaTable()
	case viewBrokers:
		return m.brokersTable()
	case viewProblems:
		return m.problemsTable()
	case viewEndpoints:
		return m.endpointsTable()
	}
	return m.servicesTable()
}

// everything selects all flows.
func everything(*api.Flow) bool { return true }

// trafficColumns are the columns of numbers that views of traffic share.
func trafficColumns() []column {
	return []column{
		{title: "CONN", width: 6, right: true, descending: true},
		{title: "NEW/S", width: 6, right: true, descending: true, rank: 2},
		{title: "IN/S", width: 9, right: true, descending: true, rank: 1},
		{title: "OUT/S", width: 9, right: true, descending: true, rank: 1},
	}
}

// trafficFields are the fields of trafficColumns.
func trafficFields(f *api.Flow) []field {
	return []field{
		count(f.Connections), rate(f.NewRate),
		number(plaintext.Bytes(f.InRate), f.InRate), number(plaintext.Bytes(f.OutRate), f.OutRate),
	}
}

// waiting is what an empty table says.
func waiting(known bool, none string) string {
	if !known {
		return "waiting for an answer"
	}
	return none
}

// A row of services is a flow: what goes from one listener to one service. A service
// without traffic has a row as well.
func (m *Model) servicesTable() *table {
	t := &table{columns: slices.Concat([]column{
		{title: "SERVICE", width: 12, max: 40},
		{title: "LISTENER", width: 8, max: 30, rank: 3},
	}, trafficColumns(), []column{
		{title: "TOTAL", width: 8, right: true, descending: true, rank: 6},
		{title: "UP", width: 5, max: 9, rank: 4},
		{title: m.pictureTitle(), width: 9, max: historyPoints, rank: 5, spark: true},
	}), empty: waiting(m.sample != nil, "no service")}
	states := map[string]api.ServiceStatus{}
	if m.status != nil {
		for _, s := range m.status.Services {
			states[s.Name] = s
		}
	}
	seen := map[string]bool{}
	add := func(f *api.Flow) {
		s := states[f.Service]
		var detail []string
		if s.Waiting > 0 {
			detail = append(detail, fmt.Sprintf("%d wait in the queue of its circuit breaker", s.Waiting))
		}
		t.rows = append(t.rows, row{
			id: f.Listener + " " + f.Service, detail: detail,
			fields: slices.Concat([]field{text(plaintext.Line(f.Service)), text(cmp.Or(plaintext.Line(f.Listener), "-"))}, trafficFields(f),
				[]field{number(fmt.Sprint(f.Total), float64(f.Total)), usable(s.State), {}}),
			points: m.points(ofFlow, f.Listener, f.Service),
			open: func(m *Model) {
				m.open(&level{view: viewEndpoints, title: plaintext.Line(f.Service), service: f.Service})
			},
			connections: &level{view: viewConnections, title: plaintext.Line(f.Service), service: f.Service, listener: f.Listener},
		})
		seen[f.Service] = true
	}
	if m.sample != nil {
		for i := range m.sample.Flows {
			add(&m.sample.Flows[i])
		}
	}
	for name := range states {
		if !seen[name] {
			add(&api.Flow{Service: name})
		}
	}
	return t
}

// usable is the state of a service, such as "2/3 usable", as "2/3".
func usable(state string) field {
	short, _ := strings.CutSuffix(state, " usable")
	f := text(cmp.Or(plaintext.Line(short), "-"))
	var n, of int
	if got, _ := fmt.Sscanf(state, "%d/%d", &n, &of); got == 2 {
		switch {
		case n == 0:
			f.style = bad
		case n < of:
			f.style = warn
		default:
			f.style = good
		}
	}
	return f
}

func (m *Model) nodesTable() *table {
	t := &table{columns: slices.Concat([]column{
		{title: "NODE", width: 12, max: 40},
		{title: "ROLE", width: 9, rank: 4},
		{title: "STATE", width: 11},
	}, trafficColumns(), []column{
		{title: "LAG", width: 5, right: true, descending: true, rank: 5},
		{title: "VERSION", width: 10, max: 20, rank: 7},
		{title: m.pictureTitle(), width: 12, max: historyPoints, rank: 6, spark: true},
	}), empty: waiting(m.members != nil, "no node")}
	for i := range m.members {
		n := &m.members[i]
		traffic, left := m.trafficOf(n)
		numbers := []field{count(n.Connections), unknown(), unknown(), unknown()}
		if traffic != nil {
			numbers = trafficFields(traffic)
		}
		detail := []string{fmt.Sprintf("%s, ID %s, at %s", plaintext.Untrusted(n.Name), plaintext.Untrusted(n.ID), plaintext.Untrusted(n.Address))}
		if left != "" {
			detail = append(detail, "its numbers are left out: "+plaintext.Line(left))
		}
		lag := unknown()
		if m.status != nil {
			if at := slices.IndexFunc(m.status.Nodes, func(s api.NodeStatus) bool { return s.ID == n.ID }); at >= 0 {
				lag = count(int64(m.status.Nodes[at].Lag))
				detail[0] += ", up " + plaintext.Line(m.status.Nodes[at].Uptime)
			}
		}
		t.rows = append(t.rows, row{
			id: n.ID, detail: detail, points: m.points(ofNode, n.Name),
			fields: slices.Concat([]field{text(plaintext.Untrusted(n.Name)), text(n.Role), nodeState(n.State)}, numbers,
				[]field{lag, text(plaintext.Untrusted(n.Version)), {}}),
			open: func(m *Model) { m.setNode(n.Name); m.show(viewServices) },
		})
	}
	return t
}

// trafficOf returns the traffic of a node, or nil if it is not known, and why it is not
// in the sum.
func (m *Model) trafficOf(n *api.Member) (*api.Flow, string) {
	switch {
	case m.sample == nil:
		return nil, ""
	case m.sample.Node == n.Name:
		sum := m.traffic(everything)
		sum.Connections = m.sample.Connections
		return &sum, ""
	}
	for _, s := range m.sample.Nodes {
		switch {
		case s.Name != n.Name:
		case s.Error != "":
			return nil, s.Error
		default:
			return &api.Flow{Connections: s.Connections, NewRate: s.NewRate, InRate: s.InRate, OutRate: s.OutRate}, ""
		}
	}
	return nil, ""
}

func nodeState(state string) field {
	f := text(plaintext.Line(state))
	switch state {
	case "serving", "up":
		f.style = good
	case "unreachable", "stopped", "suspect":
		f.style = bad
	default:
		f.style = warn
	}
	return f
}

// A row of listeners sums up a listener on all nodes that run it.
func (m *Model) listenersTable() *table {
	t := &table{columns: slices.Concat([]column{
		{title: "LISTENER", width: 14, max: 40},
		{title: "UP", width: 5},
		{title: "ADDRESS", width: 16, max: 30, rank: 4},
	}, trafficColumns(), []column{
		{title: m.pictureTitle(), width: 10, max: historyPoints, rank: 5, spark: true},
	}), empty: waiting(m.status != nil, "no listener")}
	if m.status == nil {
		return t
	}
	byName := map[string][]api.ListenerStatus{}
	for _, l := range m.status.Listeners {
		if m.node == "" || l.Node == "" || l.Node == m.node {
			byName[l.Name] = append(byName[l.Name], l)
		}
	}
	for name, all := range byName {
		sum := m.traffic(func(f *api.Flow) bool { return f.Listener == name })
		sum.Connections = 0
		up, address := 0, all[0].Address
		var detail []string
		for _, l := range all {
			sum.Connections += l.Connections
			if l.Error == "" {
				up++
			} else {
				detail = append(detail, plaintext.Untrusted(cmp.Or(l.Node, "this node"))+": "+plaintext.Line(l.Error))
			}
			if l.Address != address {
				address = portOf(l.Address, address)
			}
		}
		state := field{text: fmt.Sprintf("%d/%d", up, len(all)), number: float64(up) / float64(len(all)), style: good}
		if up < len(all) {
			state.style = bad
		}
		of := &level{view: viewConnections, title: plaintext.Line(name), listener: name}
		t.rows = append(t.rows, row{
			id: name, detail: detail, points: m.points(ofListener, name),
			fields: slices.Concat([]field{text(plaintext.Line(name)), state, text(plaintext.Line(address))}, trafficFields(&sum), []field{{}}),
			open:   func(m *Model) { m.open(of) }, connections: of,
		})
	}
	return t
}

// portOf is what two addresses of a listener have in common: the port.
func portOf(a, b string) string {
	if i := strings.LastIndexByte(a, ':'); i >= 0 && strings.HasSuffix(b, a[i:]) {
		return "*" + a[i:]
	}
	return "several"
}

func (m *Model) kafkaTable() *table {
	t := &table{columns: []column{
		{title: "VIRTUAL CLUSTER", width: 16, max: 40},
		{title: "REQUESTS/S", width: 11, right: true, descending: true},
		{title: "ERRORS/S", width: 9, right: true, descending: true},
		{title: "THROTTLED/S", width: 12, right: true, descending: true, rank: 2},
		{title: "BROKERS", width: 8, rank: 1},
		{title: "PHYSICAL", width: 12, max: 30, rank: 4},
		{title: "REQUESTS 2M", width: 20, max: historyPoints, rank: 3, spark: true},
	}, empty: waiting(m.status != nil && m.sample != nil, "no virtual cluster")}
	rates := map[string]api.ClusterRate{}
	states := map[string]*api.VirtualClusterStatus{}
	if m.sample != nil {
		for _, c := range m.sample.VirtualClusters {
			rates[c.Name] = c
			states[c.Name] = &api.VirtualClusterStatus{Name: c.Name}
		}
	}
	if m.status != nil {
		for i := range m.status.VirtualClusters {
			states[m.status.VirtualClusters[i].Name] = &m.status.VirtualClusters[i]
		}
	}
	for name, s := range states {
		up := 0
		for _, b := range s.Brokers {
			if b.Error == "" {
				up++
			}
		}
		brokers := number(fmt.Sprintf("%d/%d", up, len(s.Brokers)), float64(up))
		if up < len(s.Brokers) {
			brokers.style = bad
		}
		var detail []string
		if len(s.Filters) > 0 {
			detail = append(detail, "filters: "+plaintext.Line(strings.Join(s.Filters, ", ")))
		}
		if s.Error != "" {
			detail = append(detail, plaintext.Line(s.Error))
		}
		r := rates[name]
		t.rows = append(t.rows, row{
			id: name, detail: detail, points: m.points(ofCluster, name),
			fields: []field{
				text(plaintext.Line(name)), rate(r.Requests), rate(r.Errors), rate(r.Throttled), brokers,
				text(cmp.Or(plaintext.Line(s.PhysicalCluster), "-")), {},
			},
			open: func(m *Model) { m.open(&level{view: viewBrokers, title: plaintext.Line(name), cluster: name}) },
		})
	}
	return t
}

func (m *Model) brokersTable() *table {
	t := &table{columns: []column{
		{title: "BROKER", width: 12, max: 30},
		{title: "ENDPOINT", width: 24, max: 60},
		{title: "ADDRESS", width: 20, max: 60, rank: 1},
		{title: "CONN HERE", width: 9, right: true, descending: true, rank: 2},
		{title: "STATE", width: 8},
	}, empty: waiting(m.status != nil, "no broker")}
	if m.status == nil {
		return t
	}
	for _, c := range m.status.VirtualClusters {
		if c.Name != m.level().cluster {
			continue
		}
		for _, b := range c.Brokers {
			state := field{text: "up", style: good}
			r := row{id: b.Name}
			if b.Error != "" {
				state = field{text: "down", style: bad}
				r.detail = []string{plaintext.Line(b.Error)}
			}
			r.fields = []field{
				text(plaintext.Line(b.Name)), text(plaintext.Line(b.Endpoint)), text(cmp.Or(plaintext.Line(b.Address), "unknown")),
				count(b.Connections), state,
			}
			if b.Address != "" {
				r.connections = &level{view: viewConnections, title: plaintext.Line(b.Name), endpoint: b.Address}
				r.open = func(m *Model) { m.open(r.connections) }
			}
			t.rows = append(t.rows, r)
		}
	}
	return t
}

func (m *Model) problemsTable() *table {
	t := &table{columns: []column{
		{title: "SEVERITY", width: 9},
		{title: "ABOUT", width: 20, max: 40},
		{title: "WHAT", width: 30, max: 200},
	}, empty: waiting(m.problems != nil, "nothing is wrong")}
	if m.problems == nil {
		return t
	}
	for i, p := range m.problems.Problems {
		severity := field{text: plaintext.Line(p.Severity), number: float64(i), style: warn} // the order is the node's
		if p.Severity == api.SeverityError {
			severity.style = bad
		}
		detail := []string{plaintext.Line(p.Text)}
		if p.Command != "" {
			detail = append(detail, "more: "+plaintext.Line(p.Command))
		}
		t.rows = append(t.rows, row{
			id: p.About + " " + p.Text, detail: detail,
			fields: []field{severity, text(plaintext.Line(p.About)), text(plaintext.Line(p.Text))},
		})
	}
	return t
}
