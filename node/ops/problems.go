package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
)

// problems has the methods that say what is wrong. Each node finds what is wrong on it
// (problemshere.go), the one that is asked what is wrong with the cluster and its traffic.
type problems struct {
	*status
	history  *history
	progress func(context.Context, *api.RolloutsRequest) (*api.Rollouts, error)
	traffic  recent[[]api.Problem]
	warned   recent[[]api.Problem]
}

func (p *problems) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodProblems, api.RoleReader, func(ctx context.Context, _ *api.Empty) (*api.Problems, error) {
		return p.list(ctx, new(api.Empty))
	})
	rpc.Handle(s, api.MethodProblemsHere, api.RoleNode, func(context.Context, *api.Empty) (*api.Problems, error) {
		return p.here(), nil
	})
}

// list returns what is wrong in the cluster.
func (p *problems) list(ctx context.Context, _ *api.Empty) (*api.Problems, error) {
	all := &api.Problems{At: time.Now(), Problems: []api.Problem{}}
	reports, missing := p.ask(ctx)
	all.Missing = missing
	all.Problems = append(all.Problems, p.cluster(reports)...)
	all.Problems = append(all.Problems, mergeProblems(reports)...)
	all.Problems = append(all.Problems, p.unfinished(ctx)...)
	all.Problems = append(all.Problems, p.common()...)
	all.Problems = append(all.Problems, p.traffic.get(trafficAge, func() []api.Problem { return p.failures(ctx) })...)
	sortProblems(all.Problems)
	if over := len(all.Problems) - api.MaxProblems; over > 0 {
		all.Problems, all.More = all.Problems[:api.MaxProblems], over
	}
	return all, nil
}

// undated is list without the time, for those who want to know when something changes.
func (p *problems) undated(ctx context.Context, r *api.Empty) (*api.Problems, error) {
	all, err := p.list(ctx, r)
	if err == nil {
		all.At = time.Time{}
	}
	return all, err
}

// sortProblems puts the gravest first.
func sortProblems(list []api.Problem) {
	slices.SortStableFunc(list, func(a, b api.Problem) int {
		return cmp.Or(strings.Compare(a.Severity, b.Severity), strings.Compare(a.About, b.About), strings.Compare(a.Text, b.Text))
	})
}

// nodeProblems is the answer of one node.
type nodeProblems struct {
	member directory.Member
	list   *api.Problems
	err    error
}

// ask asks all nodes what is wrong on them. The answers are sorted by name; missing says
// which did not answer.
func (p *problems) ask(ctx context.Context) (answers []nodeProblems, missing []string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	members := p.peers.members()
	done := make(chan nodeProblems, len(members))
	for _, m := range members {
		go func() {
			list, err := p.of(ctx, &m)
			done <- nodeProblems{m, list, err}
		}()
	}
	for range members {
		answers = append(answers, <-done)
	}
	slices.SortFunc(answers, func(a, b nodeProblems) int { return strings.Compare(a.member.Name, b.member.Name) })
	for _, a := range answers {
		if a.err != nil {
			missing = append(missing, a.member.Name+": "+a.err.Error())
		}
	}
	return answers, missing
}

// of asks one node.
func (p *problems) of(ctx context.Context, m *directory.Member) (*api.Problems, error) {
	if m.Self {
		return p.here(), nil
	}
	if !m.Up() {
		return nil, errors.New(cmp.Or(m.State, "unreachable"))
	}
	c, err := p.peers.cluster.Directory.Client(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	list, err := rpc.Call[api.Problems](ctx, c, api.MethodProblemsHere, api.Empty{})
	var e *api.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errors.New("did not respond")
	case errors.As(err, &e) && e.Code == api.Unknown:
		return nil, errors.New("runs an older version, which does not say")
	}
	return list, err
}

// mergeProblems adds up what nodes say. What some of them say, but not all that answered,
// names them.
func mergeProblems(answers []nodeProblems) (all []api.Problem) {
	at := map[api.Problem]int{}
	var nodes [][]string
	answered := 0
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		answered++
		for _, one := range a.list.Problems {
			i, ok := at[one]
			if !ok {
				i = len(all)
				at[one] = i
				all, nodes = append(all, one), append(nodes, nil)
			}
			if !slices.Contains(nodes[i], a.member.Name) {
				nodes[i] = append(nodes[i], a.member.Name)
			}
		}
	}
	for i := range all {
		if len(nodes[i]) < answered && all[i].About != "Node/"+nodes[i][0] {
			all[i].Text = strings.TrimSuffix(all[i].Text, ".") + ", on node " + List(nodes[i]) + "."
		}
	}
	return all
}

// cluster returns what is wrong with the nodes and their agreement.
func (p *problems) cluster(answers []nodeProblems) (list []api.Problem) {
	if p.peers.cluster == nil {
		return nil
	}
	const members = "penstock members"
	if why := p.peers.cluster.Directory.Alone(); why != "" {
		list = append(list, api.Problem{
			Severity: api.SeverityError, About: "Cluster", Command: members,
			Text: fmt.Sprintf("Node %s cannot change the configuration: %s.", p.peers.self.Name, strings.TrimSuffix(why, ".")),
		})
	} else if _, leader, _ := p.peers.cluster.Leader(); leader == "" {
		list = append(list, api.Problem{
			Severity: api.SeverityError, About: "Cluster", Text: "The cluster has no leader: changes are refused, traffic is served.", Command: members,
		})
	}
	for _, a := range answers {
		one := api.Problem{Severity: api.SeverityError, About: "Node/" + a.member.Name, Command: members}
		switch {
		case a.err == nil:
			continue
		case a.member.Up():
			one.Text = fmt.Sprintf("Node %s is silent: it %v.", a.member.Name, strings.TrimPrefix(a.err.Error(), "it "))
		case a.member.State == directory.StateLeft:
			one.Severity, one.Text = api.SeverityWarning, fmt.Sprintf("Node %s is stopped, and still a member.", a.member.Name)
		default:
			one.Text = fmt.Sprintf("Node %s is down or cut off: its peers do not reach it.", a.member.Name)
		}
		list = append(list, one)
	}
	return list
}

// common returns what is the same on every node.
func (p *problems) common() (list []api.Problem) {
	now := time.Now()
	for _, text := range slices.Concat(p.acme.Problems(now), p.federation.Unusable(now)) {
		list = append(list, warning(text, "penstock get certificates"))
	}
	set, _ := p.catalog.InForce()
	for _, text := range p.gateways.problems(set) {
		list = append(list, warning(text, "penstock get gateways"))
	}
	return list
}

// unfinished returns the rollouts that were aborted or wait.
func (p *problems) unfinished(ctx context.Context) (list []api.Problem) {
	rollouts, err := p.progress(ctx, new(api.RolloutsRequest))
	if err != nil {
		return nil
	}
	for _, r := range *rollouts {
		one := api.Problem{Severity: api.SeverityWarning, About: "MeshTCPRoute/" + r.Route, Command: "penstock rollout status " + r.Route}
		switch {
		case r.Phase == "aborted":
			one.Text = fmt.Sprintf("The rollout of %s was aborted at step %d of %d: %s.", r.Route, r.Step, r.Steps, strings.TrimSuffix(r.Reason, "."))
		case r.Held != "":
			one.Text = fmt.Sprintf("The rollout of %s waits at step %d of %d: %s.", r.Route, r.Step, r.Steps, strings.TrimSuffix(r.Held, "."))
		default:
			continue
		}
		list = append(list, one)
	}
	return list
}

// warning makes a problem of a text of status. A text that begins with the resource or
// the node that it is about says so.
func warning(text, command string) api.Problem {
	about := "Cluster"
	if subject, _, ok := strings.Cut(text, ": "); ok {
		kind, name, _ := strings.Cut(subject, "/")
		node, isNode := strings.CutPrefix(subject, "node ")
		node, _, _ = strings.Cut(node, " ")
		switch {
		case isNode:
			about = "Node/" + node
		case name != "" && !strings.ContainsAny(subject, " ") && kind[0] >= 'A' && kind[0] <= 'Z':
			about = subject
		}
	}
	return api.Problem{Severity: api.SeverityWarning, About: about, Text: sentence(text), Command: command}
}

// sentence returns a text with a capital letter and a full stop. The name of a resource
// stays as it is.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
