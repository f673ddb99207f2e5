package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/routing/balance"
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// trace records the steps of a decision. It is nil on the data path, where the
// methods that decisions call do nothing: see trace_steps.go.
type trace struct {
	explanation Explanation
	discovered  Discovered // nil: no providers
}

func (tr *trace) add(s Step) {
	tr.explanation.Steps = append(tr.explanation.Steps, s)
}

func (tr *trace) addListener(in *Input, l *Listener) {
	s := Step{Name: "listener", Looked: in.Listener}
	switch {
	case l == nil:
		s.Result = "no such listener"
	case l.runsHere:
		s.Result = fmt.Sprintf("%s at %s", l.spec.Protocol, l.spec.Address)
	default:
		s.Result = fmt.Sprintf("%s at %s, not on this node", l.spec.Protocol, l.spec.Address)
	}
	if l != nil && l.spec.Originates() != nil {
		s.Result += "; TLS to the endpoints by tls.originate, in place of the Service's own"
	}
	if l != nil && l.spec.TLS != nil && l.spec.TLS.StartTLS != "" {
		s.Result += "; clients and endpoints begin with PostgreSQL's SSLRequest"
	}
	tr.add(s)
}

func (tr *trace) addName(in *Input) { tr.add(Step{Name: "name", Looked: sentName(in)}) }

// misfit adds that only one of a listener and a backend speaks MySQL's protocol.
func (tr *trace) misfit(l *Listener, b *backend) {
	tr.add(Step{Name: "backend", Looked: b.text(), Result: fmt.Sprintf("a service with protocol %s, "+
		"which a listener with protocol %s does not lead to: closed (%s)", b.spec.Protocol, l.spec.Protocol, NoBackend)})
}

// addUser adds the step of a mysql listener with users; pattern is "" if none matches.
func (tr *trace) addUser(in *Input, l *Listener, pattern, service string) {
	if len(l.spec.MySQL.Users) == 0 {
		return
	}
	step := Step{Name: "user", Looked: fmt.Sprintf("%q", in.User)}
	switch {
	case service == "":
		step.Result = "no rule matches the user name"
	case pattern == in.User:
		step.Result = "exact name: " + service
	default:
		step.Result = fmt.Sprintf("longest pattern %s: %s", pattern, service)
	}
	tr.add(step)
}

// certificate inserts the certificate step after the listener. Without a
// certificate it drops all steps after the listener.
func (tr *trace) certificate(in *Input, refs []string, reason Reason) {
	name := *in
	name.ALPN = nil
	step := Step{Name: "certificate", Looked: sentName(&name), Result: strings.Join(refs, ", ")}
	steps := &tr.explanation.Steps
	if reason != OK {
		step.Result = fmt.Sprintf("no certificate of the listener covers it: closed (%s)", reason)
		*steps = (*steps)[:1]
	}
	*steps = slices.Insert(*steps, 1, step)
}

func sentName(in *Input) string {
	s := "none"
	if in.HasServerName {
		s = fmt.Sprintf("%q", in.ServerName)
	}
	if len(in.ALPN) > 0 {
		s += ", ALPN " + strings.Join(in.ALPN, " ")
	}
	return s
}

// result sets the result of the last step.
func (tr *trace) result(format string, args ...any) {
	steps := tr.explanation.Steps
	steps[len(steps)-1].Result = fmt.Sprintf(format, args...)
}

func (tr *trace) addNameRefused(reason Reason, why string) {
	tr.result("%s: closed (%s)", why, reason)
}

func (tr *trace) addDefaultService(service string, reason Reason, why string) {
	if reason != OK {
		tr.result("%s, and the listener has no default service: closed (%s)", why, reason)
		return
	}
	tr.result("%s: the listener's service, %s", why, service)
}

func (tr *trace) addMatch(m *hostname.Match[*target], service, protocol string) {
	how := "exact name " + m.Suffix
	if m.Wildcard {
		how = "longest wildcard " + m.Pattern()
	}
	if host := m.Value.hostFor(protocol); host != "" && service != "" {
		how += " of Host " + host
	}
	switch {
	case service == "" && len(m.Value.limited) == 0:
		tr.result("%s, which no route serves: closed (%s)", how, NoRoute)
	case service == "":
		tr.result("%s, which has rules only for other protocols (%s): closed (%s)", how, protocolsOf(m.Value), NoRoute)
	case protocol != "":
		tr.result("%s with ALPN %s: %s", how, protocol, service)
	default:
		tr.result("%s: %s", how, service)
	}
}

func protocolsOf(t *target) string {
	var all []string
	for _, l := range t.limited {
		all = append(all, l.alpn...)
	}
	return strings.Join(all, " ")
}

func (tr *trace) addDestination(name string, s *Service) {
	step := Step{Name: "destination", Looked: name}
	switch {
	case s == nil:
		step.Result = fmt.Sprintf("no such service: closed (%s)", NoBackend)
	case isGatewayName(name):
		step.Result = "a Gateway API route"
	default:
		step.Result = fmt.Sprintf("%s service with %s", s.spec.Protocol, count(len(s.Members()), "endpoint"))
		if s.spec.Mesh {
			step.Result += " on nodes of the mesh: TLS 1.3, and the client's identity goes along"
		}
	}
	tr.add(step)
}

func (tr *trace) addNoPolicy(s *Service) {
	tr.add(Step{Name: "policy", Looked: "routes to " + s.name, Result: "none: the destination itself"})
}

func (tr *trace) addSource(s *source) {
	isSource := func(s Step) bool { return s.Name == "source" }
	if slices.ContainsFunc(tr.explanation.Steps, isSource) {
		return // recorded for MeshHTTPRoutes
	}
	all := s.all()
	result := "no tags"
	if len(all) > 0 {
		result = count(len(all), "tag")
	}
	tr.add(Step{Name: "source", Looked: "tags of the client, its network, the listener and the node", Result: result, Tags: all})
}

func (tr *trace) addPolicies(s *Service, src *source, chosen *policy) {
	step := Step{Name: "policy", Looked: "routes to " + s.name, Result: "none matches this source: the destination itself"}
	if chosen != nil {
		step.Result = policyText(chosen.route)
	}
	for _, p := range s.policies {
		step.Policies = append(step.Policies, PolicyState{
			Name: p.route, Source: refText(&p.source), Matches: src.matches(&p.source), Wins: p == chosen,
		})
	}
	tr.add(step)
}

// policyText returns the name of a route's policy for display.
func policyText(route string) string {
	if isGatewayName(route) {
		return route
	}
	return "MeshTCPRoute " + route
}

func refText(r *resource.TargetRef) string {
	return resource.SubsetText(strings.TrimSpace(r.Kind+" "+r.Name), r.Tags)
}

func (tr *trace) addSplit(of string, sh *shares, turn int) {
	step := Step{Name: "backend", Looked: "backends of " + of}
	sum, live := 0, 0
	for _, w := range sh.weight {
		sum += w
	}
	for _, r := range sh.refs {
		x := BackendState{Service: r.Name, Tags: tagList(r.Tags), Weight: *r.Weight, Skipped: r.skipped, Closed: r.closed}
		if r.skipped == "" {
			x.Share = float64(*r.Weight) / float64(sum)
			x.Next = live == turn
			live++
		}
		step.Backends = append(step.Backends, x)
	}
	if turn == noTurn {
		step.Result = fmt.Sprintf("no backend has both weight and endpoints: closed (%s)", NoBackend)
	} else {
		step.Result = sh.live[turn].text()
		if why := sh.live[turn].closed; why != "" {
			step.Result += fmt.Sprintf(": %s: closed (%s)", why, NoBackend)
		}
	}
	tr.add(step)
}

// addRollout adds to the last step that its weights are those of a rollout.
func (tr *trace) addRollout(o *rollout) {
	if place := o.current(); place != nil {
		step := &tr.explanation.Steps[len(tr.explanation.Steps)-1]
		step.Looked += ", with the " + place.String()
	}
}

// text returns a backend's name for display.
func (b *backend) text() string {
	return resource.SubsetText(b.name, b.tags)
}

func (tr *trace) endpoints(b *backend, chosen int, now time.Time) {
	cfg := b.pool.Config()
	step := Step{Name: "endpoint", Looked: b.text() + " by " + cfg.Policy.String()}
	if share := b.pool.NearShare(now); cfg.ZoneTag != "" && cfg.Zone != "" {
		step.Looked += fmt.Sprintf(", %.4g %% in zone %s=%s", share*100, cfg.ZoneTag, cfg.Zone)
	}
	if cfg.MatchTag != "" && cfg.MatchValue != "" {
		step.Looked += fmt.Sprintf(", only those with %s=%s", cfg.MatchTag, cfg.MatchValue)
	}
	eligible := 0
	var origins map[string]Origin
	if tr.discovered != nil {
		origins = originsOf(b.name, b.spec, tr.discovered)
	}
	for i := range b.pool.Members() {
		x := b.state(i, now)
		x.setOrigin(origins[x.Address])
		if x.Eligible {
			eligible++
		}
		step.Endpoints = append(step.Endpoints, x)
	}
	switch chosen {
	case balance.Full:
		step.Result = "the service, or each endpoint that would be used, is at the bounds of its circuit breaker; " + b.queue.text()
	case balance.None:
		step.Result = fmt.Sprintf("none of %d is eligible: closed (%s)", len(step.Endpoints), b.unavailable())
	default:
		x := step.Endpoints[chosen]
		tr.explanation.Endpoint = x.Address
		step.Result = x.Address
		if x.At != "" {
			tr.explanation.Endpoint = x.At
			step.Result += " at " + x.At
		}
		if eligible == 0 {
			step.Result += "; " + b.pool.Source(now).Text()
		}
	}
	tr.add(step)
}

func (tr *trace) outcome(reason Reason) {
	e := &tr.explanation
	e.Reason = reason
	step := Step{Name: "outcome", Looked: "decision", Result: "connect to " + e.Endpoint}
	if reason != OK {
		step.Result = "closed (" + string(reason) + ")"
	}
	tr.add(step)
}

// tagList renders tags as k=v,..., sorted by key.
func tagList(tags map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, k+"="+tags[k])
	}
	return strings.Join(parts, ",")
}
