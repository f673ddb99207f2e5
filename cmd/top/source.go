package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/node/telemetry"
)

// source asks a node of the cluster for what the model wants. If that node no longer
// answers, it asks another one whose address it has learned.
type source struct {
	cfg Config
	out chan<- any // to the model

	mu      sync.Mutex
	want    want
	changed chan struct{} // closed at the next change of want
	members api.Members   // the last ones
}

func newSource(cfg Config, out chan<- any) *source {
	return &source{cfg: cfg, out: out, changed: make(chan struct{})}
}

// setWant sets what to ask for.
func (s *source) setWant(w want) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w != s.want {
		s.want = w
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// current returns what to ask for, and a channel that is closed when that changes.
func (s *source) current() (want, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want, s.changed
}

// send sends a message to the model.
func (s *source) send(ctx context.Context, msg any) {
	select {
	case s.out <- msg:
	case <-ctx.Done():
	}
}

// peer is a connection to a node.
type peer struct {
	client *rpc.Client
	addr   string // as Config.Dial takes it; "": the one that the user named
	node   string // its name
}

// How long a node may take to be reached, and to answer. A node that asks others gives
// those two seconds.
const (
	dialTimeout = 5 * time.Second
	askTimeout  = 10 * time.Second
)

// connect connects to a node that answers.
func (s *source) connect(ctx context.Context, addr string) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := s.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	p := &peer{client: c, addr: addr}
	members, err := rpc.Call[api.Members](ctx, c, api.MethodMembers, api.Empty{})
	if err == nil {
		s.learn(members)
		// A sample of a single node has its name.
		one := api.TopRequest{Interval: minInterval, Count: 1}
		err = rpc.Stream(ctx, c, api.MethodTop, one, func(t *api.TopSample) error { p.node = t.Node; return nil })
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return p, nil
}

// learn keeps the members, whose addresses are where to go on.
func (s *source) learn(members *api.Members) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = *members
}

// addresses returns where to go on after a node, in order: nodes that serve, other ones,
// the address that the user named, and that of the node itself.
func (s *source) addresses(after *peer) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.members)
	slices.SortStableFunc(list, func(a, b api.Member) int { return cmp.Compare(stateRank(a.State), stateRank(b.State)) })
	var addrs []string
	for _, m := range list {
		if m.Name != after.node && m.Address != "" {
			addrs = append(addrs, m.Address)
		}
	}
	if addrs = append(addrs, ""); after.addr != "" {
		addrs = append(addrs, after.addr)
	}
	return addrs
}

func stateRank(state string) int {
	switch state {
	case "serving", "up":
		return 0
	case "unreachable", "stopped":
		return 2
	}
	return 1
}

// addrText is how an address is shown.
func (s *source) addrText(addr string) string { return cmp.Or(addr, s.cfg.Addr) }

// run asks until ctx ends, beginning with a peer that answered.
func (s *source) run(ctx context.Context, p *peer) {
	why := ""
	for {
		s.send(ctx, link{node: p.node, addr: s.addrText(p.addr), up: true, why: why})
		began := time.Now()
		err := s.serve(ctx, p)
		p.client.Close()
		if ctx.Err() != nil {
			return
		}
		why = fmt.Sprintf("%s no longer answers", cmp.Or(p.node, s.addrText(p.addr)))
		if time.Since(began) < minBackoff { // it answers, and is lost at once: not in a busy loop
			pause(ctx, minBackoff, nil)
		}
		next, ok := s.another(ctx, p, why, err)
		if !ok {
			return
		}
		if next.node == p.node {
			why = ""
		}
		p = next
	}
}

// Bounds of the pauses after all nodes have been tried.
const minBackoff, maxBackoff = 500 * time.Millisecond, 5 * time.Second

// another connects to the next node that answers. false: ctx ended.
func (s *source) another(ctx context.Context, lost *peer, why string, err error) (*peer, bool) {
	for wait := minBackoff; ctx.Err() == nil; wait = min(2*wait, maxBackoff) {
		for _, addr := range s.addresses(lost) {
			s.send(ctx, link{node: s.nameOf(addr), addr: s.addrText(addr), why: why})
			var p *peer
			if p, err = s.connect(ctx, addr); err == nil {
				return p, true
			}
			if ctx.Err() != nil {
				return nil, false
			}
		}
		s.send(ctx, link{addr: s.addrText(""), why: err.Error(), wait: wait})
		pause(ctx, wait, nil)
	}
	return nil, false
}

// nameOf returns the name of the member at an address, if there is one.
func (s *source) nameOf(addr string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.Address == addr {
			return m.Name
		}
	}
	return ""
}

// pause waits; a closed wake ends it.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// errSilent ends a connection to a node that stopped sending samples.
var errSilent = errors.New("it sent nothing for too long")

// serve asks one node until the connection to it is lost, and returns why.
func (s *source) serve(ctx context.Context, p *peer) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	var all sync.WaitGroup
	all.Go(func() { s.sampling(ctx, p.client, lose) })
	for i := range askers {
		all.Go(func() { s.asking(ctx, p.client, &askers[i], lose) })
	}
	all.Wait()
	return context.Cause(ctx)
}

// sampling streams samples of what is wanted.
func (s *source) sampling(ctx context.Context, c *rpc.Client, lose context.CancelCauseFunc) {
	for ctx.Err() == nil {
		w, changed := s.current()
		if w.paused {
			pause(ctx, time.Hour, changed)
			continue
		}
		req := api.TopRequest{Cluster: w.node == "", Node: w.node, Interval: s.cfg.Interval, Connections: w.latest}
		same := func(now want) bool { return now.node == w.node && now.latest == w.latest && now.paused == w.paused }
		limit := s.cfg.Interval + askTimeout
		silent := time.AfterFunc(limit, func() { lose(errSilent) })
		err := s.while(ctx, same, func(ctx context.Context) error {
			return rpc.Stream(ctx, c, api.MethodTop, req, func(sample *api.TopSample) error {
				silent.Reset(limit)
				s.send(ctx, answer{topic: topicSample, to: w, value: sample})
				return nil
			})
		})
		silent.Stop()
		s.judge(ctx, answer{topic: topicSample, to: w, err: err}, lose)
		if err != nil {
			pause(ctx, s.cfg.Interval, changed)
		}
	}
}

// while calls do with a context that ends when the want is no longer the same. It
// returns nil in that case.
func (s *source) while(ctx context.Context, same func(want) bool, do func(context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() {
		for inner.Err() == nil {
			w, changed := s.current()
			if !same(w) {
				cancel()
				return
			}
			select {
			case <-changed:
			case <-inner.Done():
			}
		}
	})
	err := do(inner)
	ended := inner.Err() != nil && ctx.Err() == nil
	cancel()
	watch.Wait()
	if ended {
		return nil
	}
	return err
}

// judge loses the connection after an error of it, and tells the model of any other.
func (s *source) judge(ctx context.Context, a answer, lose context.CancelCauseFunc) {
	var refusal *api.Error
	switch {
	case a.err == nil, ctx.Err() != nil:
	case errors.As(a.err, &refusal):
		s.send(ctx, a)
	case errors.Is(a.err, context.DeadlineExceeded) && a.topic != topicMembers:
		a.err = errors.New("no answer in time")
		s.send(ctx, a)
	default:
		lose(a.err)
	}
}

// refused reports whether a node answered with that code.
func refused(err error, code api.Code) bool {
	var refusal *api.Error
	return errors.As(err, &refusal) && refusal.Code == code
}

// asking asks for one topic, again and again while it is wanted.
func (s *source) asking(ctx context.Context, c *rpc.Client, a *asker, lose context.CancelCauseFunc) {
	for ctx.Err() == nil {
		w, changed := s.current()
		every := a.every(&w)
		if every == 0 {
			pause(ctx, time.Hour, changed)
			continue
		}
		same := func(now want) bool { return a.every(&now) > 0 && a.question(&now) == a.question(&w) }
		var value any
		err := s.while(ctx, same, func(ctx context.Context) (err error) {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			value, err = a.ask(asking, c, &w)
			return err
		})
		switch {
		case err != nil:
			s.judge(ctx, answer{topic: a.topic, to: w, err: err}, lose)
			if refused(err, api.Unknown) {
				every = time.Minute
			}
		case value != nil:
			if members, ok := value.(*api.Members); ok {
				s.learn(members)
			}
			s.send(ctx, answer{topic: a.topic, to: w, value: value})
		}
		// Ignores changes of what does not matter here.
		_ = s.while(ctx, same, func(ctx context.Context) error { pause(ctx, every, nil); return nil })
	}
}

// asker knows how to ask for a topic.
type asker struct {
	topic    topic
	every    func(*want) time.Duration // 0: not wanted
	question func(*want) any           // comparable: asked at once when it changes
	ask      func(context.Context, *rpc.Client, *want) (any, error)
}

// call makes a request, and returns a nil value rather than a nil pointer.
func call[Resp any](ctx context.Context, c *rpc.Client, method string, req any) (any, error) {
	r, err := rpc.Call[Resp](ctx, c, method, req)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// when returns a period if something is wanted.
func when(wanted bool, every time.Duration) time.Duration {
	if !wanted {
		return 0
	}
	return every
}

// viewInterval is the time between two looks at what a view shows in full.
const viewInterval = time.Second

func always(*want) any { return nil }

var askers = []asker{
	{topicMembers, func(*want) time.Duration { return statusBeside }, always,
		func(ctx context.Context, c *rpc.Client, _ *want) (any, error) {
			return call[api.Members](ctx, c, api.MethodMembers, api.Empty{})
		}},
	{topicHistory, func(w *want) time.Duration { return when(!w.paused, 24*time.Hour) },
		func(w *want) any { return [2]any{w.node, w.history} }, askHistory},
	{topicStatus, func(w *want) time.Duration { return w.status }, always,
		func(ctx context.Context, c *rpc.Client, _ *want) (any, error) {
			return call[api.Status](ctx, c, api.MethodStatus, api.Empty{})
		}},
	{topicProblems, func(w *want) time.Duration { return w.problems }, always,
		func(ctx context.Context, c *rpc.Client, _ *want) (any, error) {
			return call[api.Problems](ctx, c, api.MethodProblems, api.Empty{})
		}},
	{topicEndpoints, func(w *want) time.Duration { return when(w.endpoints, statusInView) },
		func(w *want) any { return w.service },
		func(ctx context.Context, c *rpc.Client, w *want) (any, error) {
			return call[api.Endpoints](ctx, c, api.MethodEndpoints, api.EndpointsRequest{Service: w.service})
		}},
	{topicFlow, func(w *want) time.Duration { return when(w.endpoints, viewInterval) },
		func(w *want) any { return [2]string{w.service, w.node} },
		func(ctx context.Context, c *rpc.Client, w *want) (any, error) {
			return call[api.FlowResult](ctx, c, api.MethodFlow, api.FlowRequest{Service: w.service, Node: w.node})
		}},
	{topicConnections, func(w *want) time.Duration { return when(w.connections.Limit > 0, viewInterval) },
		func(w *want) any { return w.connections },
		func(ctx context.Context, c *rpc.Client, w *want) (any, error) {
			return call[api.Connections](ctx, c, api.MethodConnections, w.connections)
		}},
	{topicTrace, func(w *want) time.Duration { return when(w.trace.ID > 0, viewInterval) },
		func(w *want) any { return w.trace },
		func(ctx context.Context, c *rpc.Client, w *want) (any, error) {
			return call[api.Trace](ctx, c, api.MethodTrace, w.trace)
		}},
}

// askHistory asks for the rates of the last two minutes. A metric that was never
// recorded is left out.
func askHistory(ctx context.Context, c *rpc.Client, w *want) (any, error) {
	frames := []api.TelemetryFrame{}
	for _, q := range historyQueries(w.node) {
		r, err := rpc.Call[api.TelemetryResult](ctx, c, api.MethodTelemetry, api.TelemetryRequest{Queries: []telemetry.Query{q}})
		switch {
		case refused(err, api.NotFound):
		case err != nil:
			return nil, err
		default:
			frames = append(frames, r.Frames...)
		}
	}
	return frames, nil
}

// nodeNamed reports whether there is a member with that name or ID, or an error that
// lists them.
func nodeNamed(members api.Members, node string) error {
	var names []string
	for _, m := range members {
		if m.Name == node || m.ID == node {
			return nil
		}
		names = append(names, m.Name)
	}
	return fmt.Errorf("--node %s: there is no such node; there are: %s", node, strings.Join(names, ", "))
}
