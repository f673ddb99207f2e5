package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/consensus/membership"
	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// FormView is what a node of --expect publishes about itself.
type FormView struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Addr   string `json:"addr"` // of its cluster port
	Expect int    `json:"expect"`
	// TrustDomain is the node's --trust-domain; "": it has none.
	TrustDomain string   `json:"trustDomain,omitempty"`
	Formed      bool     `json:"formed,omitempty"`
	Cluster     string   `json:"cluster,omitempty"` // the ID, if Formed
	PledgedTo   string   `json:"pledgedTo,omitempty"`
	Seen        []string `json:"seen,omitempty"`
	// Addrs are the addresses of the nodes in Seen, in any order, so that join
	// lists need not name all nodes.
	Addrs []string `json:"addrs,omitempty"`
	// Accepted is the charter that the node is bound to, Renounced those that
	// it will never begin.
	Accepted  *membership.Charter    `json:"accepted,omitempty"`
	Renounced []membership.Renounced `json:"renounced,omitempty"`
	// Node is what the node would be as a member; nil once it is in a cluster.
	Node *directory.Candidate `json:"node,omitempty"`
}

// candidate returns the node as a prospective member.
func (v FormView) candidate() directory.Candidate {
	if v.Node == nil {
		return directory.Candidate{ID: v.ID, Name: v.Name, Cluster: v.Addr}
	}
	return *v.Node
}

// FormRequest requests the view of another node of --expect.
type FormRequest struct {
	TokenID string   `json:"tokenID"`
	Proof   []byte   `json:"proof"`
	View    FormView `json:"view"`
}

// FormResult is that node's view.
type FormResult struct {
	Proof []byte   `json:"proof"`
	View  FormView `json:"view"`
}

// formation is a node of --expect until it has a cluster. membership.Form makes
// its decisions; this type exchanges the views and keeps the pledge, which
// depends on no clock but this process's own. Charters are in charter.go.
type formation struct {
	b      *Bootstrap
	token  trust.Token
	key    []byte
	logged directory.LogOnce

	mu           sync.Mutex
	pledged      string                 // ID of the node that it is pledged to; "": none
	pledgedAt    time.Time              // when it made the pledge
	pledgeToldAt time.Time              // when it last answered that node
	views        map[string]peerView    // by node ID; at most directory.MaxPeers
	addrs        []string               // to query in addition to Config.Join; at most directory.MaxPeers
	formed       string                 // the ID of the cluster that it has begun; "": none
	bound        *Founding              // has the charter that it is bound to; nil: none
	joining      bool                   // the last decision was to join a cluster
	boundAt      time.Time              // when it was bound, or this process loaded the charter
	renounced    []membership.Renounced // at most membership.MaxRenounced
	fatal        error                  // ends Form
	wake         chan struct{}          // capacity 1
}

// peerView is a view with the time at which it was requested.
type peerView struct {
	view FormView
	when time.Time
}

// Form finds the other nodes, and forms a cluster with them or joins theirs. With a
// token of a cluster that exists it joins that one.
func (b *Bootstrap) Form(ctx context.Context) error {
	token, err := trust.ParseToken(b.Token)
	switch {
	case err != nil:
		return fmt.Errorf("--token: %w: --expect needs the same token on all nodes: create one with penstock token new", err)
	case token.Kind == trust.Join && len(b.Join) > 0:
		return b.JoinCluster(ctx)
	case token.Kind != trust.Expect:
		return fmt.Errorf("--token: %w: %s is not an --expect token: create one with penstock token new; "+
			"to join an existing cluster, add --join and a token of role join", ErrToken, token)
	}
	f := newFormation(b, token)
	if err := f.restore(); err != nil {
		return err
	}
	stop := func() {}
	defer func() { stop() }()
	f.reportWaiting()
	for serving := false; ; {
		// An earlier process of this node may have made a pledge. This one does
		// not answer until no node acts on that pledge any more. Once a node is
		// bound to a charter, its pledge does not matter.
		if !serving && (b.NewIdentity || f.bound != nil || time.Since(b.Opened) > membership.ActWithin) {
			serving = true
			stop = f.serve()
		}
		f.pollOnce(ctx)
		if err := f.updateRenounced(); err != nil {
			return err
		}
		if done, err := f.decide(ctx); done || err != nil {
			return err
		}
		f.reportWaiting()
		select {
		case <-time.After(b.Retry):
		case <-f.wake:
		case <-ctx.Done():
			return fmt.Errorf("no cluster of %d nodes was formed in time: %w", b.Expect, ctx.Err())
		}
	}
}

func newFormation(b *Bootstrap, token trust.Token) *formation {
	return &formation{
		b: b, token: token, key: token.ProofKey(), logged: directory.LogOnce{},
		views: map[string]peerView{}, wake: make(chan struct{}, 1),
	}
}

// notify wakes Form.
func (f *formation) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// serve answers other nodes until stop is called.
func (f *formation) serve() (stop func()) {
	s := rpc.NewServer(rpc.Config{
		Logger: f.b.Log, Audit: f.b.Audit,
		// This node may lead in Raft while it still waits for the first entries: others then send it requests.
		Otherwise: func(string) *api.Error { return f.notBegunError() },
	})
	rpc.Handle(s, api.MethodForm, api.RoleNone, f.handleForm)
	rpc.Handle(s, api.MethodCharter, api.RoleNone, f.handleCharter, rpc.Changing())
	rpc.Handle(s, api.MethodJoin, api.RoleNone, f.refuseJoin)
	f.b.Serve(s)
	return func() {
		f.b.Serve(nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx) // callers retry requests that are cut short
	}
}

// refuseJoin refuses a node that wants to join: the cluster must agree on its
// first entries before it admits further nodes.
func (f *formation) refuseJoin(context.Context, *JoinRequest) (*JoinResult, error) {
	return nil, f.notBegunError()
}

// notBegunError is the refusal, for now, of requests that need a cluster that
// has begun.
func (f *formation) notBegunError() *api.Error {
	return api.Errorf(api.Unavailable, "this node (%s) is still forming its cluster: try again", f.b.Entries.Identity().Name)
}

// otherToken is the refusal of a node that has not proven that it knows the
// token.
func (f *formation) otherToken() *api.Error {
	return api.Errorf(api.Unauthenticated,
		"this node (%s) is forming a cluster with another token: give all nodes the same one", f.b.Entries.Identity().Name)
}

// ownView returns this node's view. The caller holds f.mu.
func (f *formation) ownView(now time.Time) FormView {
	v := FormView{
		ID: f.b.Directory.ID(), Name: f.b.Entries.Identity().Name, Addr: f.b.Directory.Address, Expect: f.b.Expect, TrustDomain: f.b.TrustDomain,
		PledgedTo: f.pledged, Formed: f.formed != "", Cluster: f.formed, Renounced: f.renounced,
	}
	if f.bound != nil {
		v.Accepted = f.bound.Charter
	}
	if n, err := f.b.Directory.OwnCandidate(); err == nil && f.formed == "" {
		v.Node = &n
	}
	for id, a := range f.views {
		if now.Sub(a.when) <= membership.ActWithin {
			v.Seen = append(v.Seen, id)
			v.Addrs = append(v.Addrs, a.view.Addr)
		}
	}
	slices.Sort(v.Seen)
	return v
}

// handleForm returns this node's view to another node.
func (f *formation) handleForm(ctx context.Context, req *FormRequest) (*FormResult, error) {
	cs := rpc.TLS(ctx)
	if req.TokenID != f.token.ID || trust.Check(f.key, trust.Dialer, cs, req.Proof) != nil {
		return nil, f.otherToken()
	}
	proof, err := trust.Prove(f.key, trust.Acceptor, cs)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.pledged != "" && f.pledged == req.View.ID {
		f.pledgeToldAt = now
	}
	res := &FormResult{Proof: proof, View: f.ownView(now)}
	f.checkExpect(req.View)
	f.addAddresses(req.View)
	return res, nil
}

// addAddresses adds the addresses of further nodes to addrs. The caller holds
// f.mu.
func (f *formation) addAddresses(v FormView) {
	for _, a := range append([]string{v.Addr}, v.Addrs...) {
		known := slices.Contains(f.addrs, a) || slices.Contains(f.b.Join, a) || a == f.b.Directory.Address
		if !known && directory.ValidAddress(a) && len(f.addrs) < directory.MaxPeers {
			f.addrs = append(f.addrs, a)
			f.notify()
		}
	}
}

// checkExpect ends the forming if another node expects a different number or trust
// domain: which of them counts must not depend on which node begins the cluster. The
// caller holds f.mu.
func (f *formation) checkExpect(v FormView) {
	own := f.b.Expect
	switch {
	case v.Formed || f.fatal != nil || v.ID == f.b.Directory.ID():
		return
	case v.Expect == own && v.TrustDomain != f.b.TrustDomain:
		f.fatal = fmt.Errorf("%w: this node (%s) was started with --trust-domain %q, %s at %s with %q: start all with the same name",
			ErrTrustDomain, f.b.Entries.Identity().Name, f.b.TrustDomain, v.Name, v.Addr, v.TrustDomain)
		f.notify()
		return
	case v.Expect == own:
		return
	}
	f.fatal = fmt.Errorf("%w: this node (%s) was started with --expect %d, %s at %s with --expect %d: start all with the same number",
		ErrExpect, f.b.Entries.Identity().Name, own, v.Name, v.Addr, v.Expect)
	f.notify()
}

// pollPeers queries the other nodes again and again until ctx ends, and sends
// after each round; for a nil f it returns nil. While this node knows no
// leader, it also announces itself to the members: they may serve already and
// look for it at an old address, or have removed it.
func (f *formation) pollPeers(ctx context.Context) <-chan struct{} {
	if f == nil {
		return nil
	}
	rounds := make(chan struct{})
	go func() {
		for {
			f.pollOnce(ctx)
			if f.b.Entries.Replica().Leadership().Leader == "" {
				f.announce(ctx)
			}
			select {
			case rounds <- struct{}{}:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(f.b.Retry):
			case <-ctx.Done():
				return
			}
		}
	}()
	return rounds
}

// announce announces this node to the other members of the cluster that it has
// begun. Members without a cluster refuse the method.
func (f *formation) announce(ctx context.Context) {
	f.mu.Lock()
	members := f.bound.Members
	f.mu.Unlock()
	var all sync.WaitGroup
	for _, m := range members {
		if m.ID == f.b.Directory.ID() {
			continue
		}
		all.Go(func() {
			if err := f.b.AnnounceTo(ctx, m.ID); err != nil {
				f.b.Log.Debug("announcement failed", "to", m.Name, "error", err)
			}
		})
	}
	all.Wait()
}

// pollOnce queries all addresses at once, within half the age that a view may
// have.
func (f *formation) pollOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, membership.ActWithin/2)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	f.mu.Lock()
	addrs := slices.Concat(f.b.Join, f.addrs)
	f.mu.Unlock()
	for _, addr := range addrs {
		if addr == f.b.Directory.Address {
			continue
		}
		all.Go(func() {
			if err := f.poll(ctx, addr); err != nil {
				mu.Lock()
				defer mu.Unlock()
				f.logged.Warn(f.b.Log, "no valid answer yet from a node to form a cluster with", addr, err)
			}
		})
	}
	all.Wait()
}

// poll requests the view of the node at an address. If that node refuses the
// token, forming ends.
func (f *formation) poll(ctx context.Context, addr string) error {
	when := time.Now()
	client, err := rpc.DialConfig{TLS: trust.JoinConfig()}.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer client.Close()
	_, _, err = f.exchange(ctx, client, when)
	var refusal *api.Error
	if errors.As(err, &refusal) && refusal.Code == api.Unauthenticated {
		f.mu.Lock()
		if f.fatal == nil {
			f.fatal = fmt.Errorf("%w by %s: %w", ErrToken, addr, refusal)
		}
		f.mu.Unlock()
	}
	return err
}

// exchange requests the view of the node at the other end of a connection, and
// stores it once that node has proven that it knows the token. The returned
// proof is this node's own, for further requests on the connection.
func (f *formation) exchange(ctx context.Context, client *rpc.Client, when time.Time) (view FormView, proof []byte, err error) {
	proof, err = trust.Prove(f.key, trust.Dialer, client.TLS())
	if err != nil {
		return view, nil, err
	}
	f.mu.Lock()
	req := &FormRequest{TokenID: f.token.ID, Proof: proof, View: f.ownView(when)}
	f.mu.Unlock()
	res, err := rpc.Call[FormResult](ctx, client, api.MethodForm, req)
	if err != nil {
		return view, nil, err
	}
	if err := trust.Check(f.key, trust.Acceptor, client.TLS(), res.Proof); err != nil {
		return view, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.views) >= directory.MaxPeers || len(res.View.Seen) > directory.MaxPeers || len(res.View.Renounced) > membership.MaxRenounced {
		return view, nil, fmt.Errorf("too many nodes: the limit is %d", directory.MaxPeers)
	}
	if res.View.ID != f.b.Directory.ID() { // else it is this node, under another address
		f.views[res.View.ID] = peerView{res.View, when}
		f.checkExpect(res.View)
		f.addAddresses(res.View)
	}
	return res.View, proof, nil
}

// decide acts on the views; done: the node has a cluster.
func (f *formation) decide(ctx context.Context) (done bool, err error) {
	for {
		d, addr, fatal := f.nextAction()
		if fatal != nil {
			return false, fatal
		}
		switch d.Action {
		case membership.FormPledge:
			continue // next has recorded the pledge
		case membership.FormBootstrap:
			f.b.Log.Info("founding the cluster", "why", d.Why)
			if err := f.b.Found(ctx, f.token); err != nil {
				return false, err
			}
			return true, nil
		case membership.FormDraw:
			if err := f.createCharter(d.Peers); err != nil {
				f.logged.Warn(f.b.Log, "cannot choose the first members of the cluster", "all", err)
				return false, nil
			}
			f.b.Log.Info("chose the first members of the cluster", "why", d.Why)
			continue
		case membership.FormOffer:
			if !f.offerAll(ctx, d.Peers) {
				return false, nil
			}
			continue
		case membership.FormRenounce:
			f.b.Log.Warn("abandoning a cluster that did not start", "cluster", d.Charter.Cluster, "why", d.Why)
			if err := f.renounce(*d.Charter); err != nil {
				return false, err
			}
			continue
		case membership.FormBegin:
			return true, f.begin(ctx)
		case membership.FormJoin:
			err := f.b.joinAt(ctx, addr, f.token)
			if err == nil || errors.Is(err, errFinal) {
				return err == nil, err
			}
			f.logged.Warn(f.b.Log, "cannot join yet; retrying", addr, err)
		case membership.FormRefuse:
			f.logged.Warn(f.b.Log, "cannot form a cluster", "all", errors.New(d.Why))
		default:
			if f.logged["wait"] != d.Why {
				f.logged["wait"] = d.Why
				f.b.Log.Info("waiting for the other nodes", "expect", f.b.Expect, "why", d.Why)
			}
		}
		return false, nil
	}
}

// nextAction decides what to do, and returns the address of the peer concerned.
// It records a pledge at once: no answer may go out between a decision and its
// pledge. Nor may an offer be accepted between the decision to join and its end
// (joining).
func (f *formation) nextAction() (d membership.Decision, addr string, fatal error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	d = f.decision(now)
	f.joining = d.Action == membership.FormJoin
	if d.Action == membership.FormPledge {
		f.pledged, f.pledgedAt = d.Peer, now
	}
	return d, f.views[d.Peer].view.Addr, f.fatal
}

// decision returns what to do next. The caller holds f.mu.
func (f *formation) decision(now time.Time) membership.Decision {
	return membership.Form(f.asPeer(now), f.peers(now))
}

// asPeer returns this node as input of a decision. The caller holds f.mu.
func (f *formation) asPeer(now time.Time) membership.Peer {
	self := asPeer(f.ownView(now))
	if f.pledged != "" {
		self.PledgedFor = now.Sub(f.pledgedAt)
		self.SinceTold = min(self.PledgedFor, now.Sub(f.pledgeToldAt))
	}
	if f.bound != nil {
		self.BoundFor = now.Sub(f.boundAt)
	}
	return self
}

// peers returns the views of the other nodes, by ID. The caller holds f.mu.
func (f *formation) peers(now time.Time) []membership.Peer {
	peers := make([]membership.Peer, 0, len(f.views))
	for _, a := range f.views {
		p := asPeer(a.view)
		p.Age = now.Sub(a.when)
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(a, b membership.Peer) int { return cmp.Compare(a.ID, b.ID) })
	return peers
}

func asPeer(v FormView) membership.Peer {
	return membership.Peer{
		ID: v.ID, Addr: v.Addr, Expect: v.Expect, Formed: v.Formed, Cluster: v.Cluster, PledgedTo: v.PledgedTo, Seen: v.Seen,
		Accepted: v.Accepted, Renounced: v.Renounced,
	}
}
