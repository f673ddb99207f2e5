package ops

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/routing"
	"penstock/routing/endpoint"
)

const (
	// budgetUsed is the part of the memory budget from which it is nearly used up.
	budgetUsed = 0.9
	// maxNamed bounds the endpoints that a problem names.
	maxNamed = 3
	// warningAge is how old the warnings of status may be: they cost more than everything
	// else together, and change slowly.
	warningAge = 5 * time.Second
)

// here returns what is wrong on this node.
func (p *problems) here() *api.Problems {
	list := p.lifecycle()
	list = append(list, p.listeners()...)
	for _, s := range p.data.Services() {
		list = append(list, serviceProblems(s, time.Now())...)
	}
	for _, s := range providerStatus(p.peers.self.Name, p.providers) {
		list = append(list, providerProblems(&s)...)
	}
	for _, c := range virtualClusters(p.data.Kafka) {
		list = append(list, virtualClusterProblems(&c)...)
	}
	list = append(list, p.warned.get(warningAge, p.warnings)...)
	if x := p.xds.Status(); x != nil && x.Refusing+x.Behind > 0 {
		list = append(list, api.Problem{
			Severity: api.SeverityWarning, About: "Node/" + p.peers.self.Name, Command: "penstock get proxies",
			Text: fmt.Sprintf("Of the proxies of node %s, %d refuse resources and %d have not accepted what there is for them.", x.Node, x.Refusing, x.Behind),
		})
	}
	sortProblems(list)
	more := max(0, len(list)-api.MaxProblems)
	return &api.Problems{At: time.Now(), Problems: list[:len(list)-more], More: more}
}

// lifecycle returns what is wrong with the node itself.
func (p *problems) lifecycle() (list []api.Problem) {
	name := p.peers.self.Name
	one := api.Problem{Severity: api.SeverityWarning, About: "Node/" + name, Command: "penstock status"}
	if s := p.state.NotReady(); s != "" && p.state.Leaving() {
		one.Text = fmt.Sprintf("Node %s is %s: load balancers are told to send it no new connections.", name, s)
		list = append(list, one)
	}
	if e := p.data.Engine.Stats(); e.Budget > 0 && float64(e.BudgetUsed) > budgetUsed*float64(e.Budget) {
		one.Text = fmt.Sprintf("Node %s has used %d %% of its memory budget: at its end, connections are refused.", name, 100*e.BudgetUsed/e.Budget)
		list = append(list, one)
	}
	return list
}

// listeners returns the listeners that do not listen.
func (p *problems) listeners() (list []api.Problem) {
	for _, l := range p.data.Engine.Listeners() {
		if l.Err != nil {
			list = append(list, api.Problem{
				Severity: api.SeverityError, About: "Listener/" + l.Name, Command: "penstock status",
				Text: fmt.Sprintf("Listener %s does not listen: %v.", l.Name, l.Err),
			})
		}
	}
	return list
}

// serviceProblems returns what is wrong with the endpoints of a service.
func serviceProblems(s *routing.Service, now time.Time) (list []api.Problem) {
	members := s.Members()
	total := len(members) + len(s.Unresolved())
	one := api.Problem{Severity: api.SeverityError, About: "Service/" + s.Name(), Command: "penstock get endpoints " + s.Name()}
	if total == 0 {
		one.Text = fmt.Sprintf("Service %s has no endpoint.", s.Name())
		return []api.Problem{one}
	}
	usable, first := 0, -1
	for i, m := range members {
		if m.Usable(now) {
			usable++
		} else if first < 0 {
			first = i
		}
	}
	switch usable {
	case 0:
		one.Text = fmt.Sprintf("Service %s has no healthy endpoint of %d%s.", s.Name(), total, firstFault(s, first, now))
		return []api.Problem{one}
	case total:
		return nil
	}
	one.Severity = api.SeverityWarning
	by := map[endpoint.State][]string{}
	for _, m := range members {
		if !m.Usable(now) {
			state := s.Group().Condition(m.Endpoint, now).State
			by[state] = append(by[state], m.Address)
		}
	}
	by["unresolved"] = s.Unresolved()
	for _, state := range []endpoint.State{endpoint.StateEjected, endpoint.StateUnhealthy, endpoint.StatePaused, "unresolved"} {
		if len(by[state]) > 0 {
			one.Text = fmt.Sprintf("%d of %d endpoints of Service %s %s %s: %s.", len(by[state]), total, s.Name(), isAre(len(by[state])), state, few(by[state]))
			list = append(list, one)
		}
	}
	return list
}

// firstFault says what is wrong with the first endpoint that is not usable.
func firstFault(s *routing.Service, first int, now time.Time) string {
	if first < 0 {
		return fmt.Sprintf(": the name of %s has no address", few(s.Unresolved()))
	}
	m := s.Members()[first]
	c := s.Group().Condition(m.Endpoint, now)
	if why := cmp.Or(c.Error, c.Reason); why != "" {
		return fmt.Sprintf(": %s is %s (%s)", m.Address, c.State, why)
	}
	return fmt.Sprintf(": %s is %s", m.Address, c.State)
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// few lists the first of some addresses.
func few(all []string) string {
	if len(all) > maxNamed {
		all = append(slices.Clone(all[:maxNamed]), fmt.Sprintf("and %d more", len(all)-maxNamed))
	}
	return List(all)
}

// providerProblems returns what is wrong with an endpoint provider.
func providerProblems(s *api.ProviderStatus) (list []api.Problem) {
	one := api.Problem{Severity: api.SeverityWarning, About: "EndpointProvider/" + s.Name, Command: "penstock get endpoints"}
	if s.State == api.ProviderFailed {
		one.Text = fmt.Sprintf("EndpointProvider %s fails: %s.", s.Name, cmp.Or(s.Error, "its settings cannot be used"))
		list = append(list, one)
	}
	for _, q := range s.Services {
		if q.Stale {
			one.Text = fmt.Sprintf("EndpointProvider %s does not answer for Service %s: %s; the endpoints of before stay in use.",
				s.Name, q.Service, cmp.Or(q.Error, "no answer"))
			list = append(list, one)
		}
	}
	return list
}

// virtualClusterProblems returns what is wrong with a virtual cluster.
func virtualClusterProblems(c *api.VirtualClusterStatus) (list []api.Problem) {
	one := api.Problem{Severity: api.SeverityError, About: "VirtualCluster/" + c.Name, Command: "penstock get virtualclusters"}
	if c.Error != "" {
		one.Text = fmt.Sprintf("VirtualCluster %s does not work: %s.", c.Name, c.Error)
		list = append(list, one)
	}
	for _, b := range c.Brokers {
		if b.Error != "" {
			one.Text = fmt.Sprintf("Broker %s of VirtualCluster %s is down: %s.", b.Name, c.Name, b.Error)
			list = append(list, one)
		}
	}
	return list
}

// warnings returns what status warns of on this node.
func (p *problems) warnings() (list []api.Problem) {
	name := p.peers.self.Name
	for _, group := range []struct {
		texts   []string
		command string
	}{
		{p.data.PortUse().Warnings(name), "penstock status"},
		{p.shareWarnings(), "penstock members"},
		{p.limitWarnings(), "penstock get ratelimits"},
		{p.meshWarnings(), "penstock get services"},
		{p.identityWarnings(), "penstock identity list"},
		{p.followed.Problems(name), "penstock status"},
		{p.sources.Problems(name), "penstock get certificates"},
		{p.expiry.Problems(name, time.Now()), "penstock get certificates"},
		{p.federation.Faults(), "penstock status"},
		{p.kubernetes.State().Problems, "penstock status"},
	} {
		for _, text := range group.texts {
			list = append(list, warning(text, group.command))
		}
	}
	return list
}

// recent keeps a value that is costly to compute for a moment.
type recent[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time
}

// get returns the value of at most that age, or computes it. Callers meanwhile wait.
func (r *recent[T]) get(age time.Duration, compute func() T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= age {
		r.value, r.at = compute(), time.Now()
	}
	return r.value
}
