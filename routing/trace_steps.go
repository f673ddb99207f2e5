package routing

import (
	"penstock/routing/hostname"
	"penstock/routing/httprule"
	"penstock/routing/permit"
	"penstock/routing/resource"
)

// The methods of trace that decisions call. With a nil trace, as on the data
// path, they do nothing. Each is small enough for the compiler to inline it, so
// that this costs one comparison, and takes values that exist anyway.

// enabled reports whether steps are recorded.
func (tr *trace) enabled() bool { return tr != nil }

func (tr *trace) listener(in *Input, l *Listener) {
	if tr != nil {
		tr.addListener(in, l)
	}
}

func (tr *trace) name(in *Input) {
	if tr != nil {
		tr.addName(in)
	}
}

func (tr *trace) user(in *Input, l *Listener, pattern, service string) {
	if tr != nil {
		tr.addUser(in, l, pattern, service)
	}
}

func (tr *trace) permission(service string, q *Request, v *permit.Verdict) {
	if tr != nil {
		tr.addPermission(service, q, v)
	}
}

func (tr *trace) nameRefused(reason Reason, why string) {
	if tr != nil {
		tr.addNameRefused(reason, why)
	}
}

func (tr *trace) defaultService(service string, reason Reason, why string) {
	if tr != nil {
		tr.addDefaultService(service, reason, why)
	}
}

func (tr *trace) match(m *hostname.Match[*target], service, protocol string) {
	if tr != nil {
		tr.addMatch(m, service, protocol)
	}
}

func (tr *trace) destination(name string, s *Service) {
	if tr != nil {
		tr.addDestination(name, s)
	}
}

func (tr *trace) noPolicy(s *Service) {
	if tr != nil {
		tr.addNoPolicy(s)
	}
}

func (tr *trace) source(s *source) {
	if tr != nil {
		tr.addSource(s)
	}
}

func (tr *trace) policies(s *Service, src *source, chosen *policy) {
	if tr != nil {
		tr.addPolicies(s, src, chosen)
	}
}

func (tr *trace) split(of string, sh *shares, turn int) {
	if tr != nil {
		tr.addSplit(of, sh, turn)
	}
}

func (tr *trace) rollout(o *rollout) {
	if tr != nil {
		tr.addRollout(o)
	}
}

func (tr *trace) rule(p *policy, q *Request, m httprule.Match, fits bool) {
	if tr != nil {
		tr.addRule(p, q, m, fits)
	}
}

func (tr *trace) redirect(a *RequestDecision) {
	if tr != nil {
		tr.addRedirect(a)
	}
}

func (tr *trace) ruleSplit(route string, rule int, sh *shares, turn int) {
	if tr != nil {
		tr.addRuleSplit(route, rule, sh, turn)
	}
}

func (tr *trace) filters(rule *resource.HTTPRule, a *RequestDecision, q *Request) {
	if tr != nil {
		tr.addFilters(rule, a, q)
	}
}
