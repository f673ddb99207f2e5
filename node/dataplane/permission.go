package dataplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/kafka"
	"penstock/kafka/filter/authorize"
	"penstock/kafka/model"
	"penstock/netio"
	"penstock/netio/web"
	"penstock/node/accesslog"
	"penstock/node/audit"
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/permit"
	"penstock/routing/resource"
)

// denied is the plan of a connection that no permission admits. It has no endpoint.
type denied struct {
	service string // or virtual cluster
	rule    string // "": the mesh's default
	err     error
}

var _ netio.Plan = (*denied)(nil)

// Next implements netio.Plan. It is never called: Route returns a reason as well.
func (*denied) Next(*netio.Conn, error) (netio.Target, netio.Reason) {
	return netio.Target{}, netio.PermissionDenied
}

// Connected implements netio.Plan.
func (*denied) Connected(*netio.Conn, time.Duration) {}

func newDenied(service string, v *permit.Verdict) *denied {
	return &denied{service: service, rule: v.Rule, err: errors.New(routing.Denial(v))}
}

// closedDenied handles Closed for connections that were denied.
func (t *traffic) closedDenied(c *netio.Conn, d *denied, why netio.Reason) {
	t.flows.get(c.Listener(), d.service).end(why)
	if t.audit != nil {
		in := inputOf(c)
		t.audit(&audit.Denial{
			Act: "connect", Who: routing.IdentityOf(&in), From: in.Client.String(), What: d.service + " at " + c.Listener(),
			Rule: d.rule, Error: d.err.Error(),
		})
	}
	if t.access.Wants(string(why)) {
		r := t.record(c, nil, accesslog.Closed, why)
		r.Service, r.Permission, r.Error = d.service, d.rule, d.err
		t.access.Write(r)
	}
}

// auditKafka reports a denial of a request to a virtual cluster, which Kafka's own
// log has a line about.
func auditKafka(report func(*audit.Denial)) func(cluster string, d *authorize.Denial) {
	if report == nil {
		return nil
	}
	return func(cluster string, d *authorize.Denial) {
		if d.Shadow {
			return
		}
		report(&audit.Denial{
			Act: "kafka", Who: cmp.Or(d.Client.Principal, d.Client.Identity), From: d.Client.Address.String(), Rule: d.Rule, Said: true,
			What: cluster + ": " + d.Operation.String() + " " + d.Type.String() + " " + d.Name,
		})
	}
}

// inputOf returns what routing may know of a connection.
func inputOf(c *netio.Conn) routing.Input {
	if m := c.Mesh(); m != nil {
		return meshInput(c, m)
	}
	state := c.TLS()
	in := routing.Input{Listener: c.Listener(), Client: c.Client().Addr(), Tags: identity(state)}
	in.IdentityUndecided = undecided(state, in.Tags)
	return in
}

// undecided reports whether a client has proven SPIFFE IDs of which none may be
// used: several, or one that the standard forbids or that is too long for a tag.
func undecided(state *tls.ConnectionState, tags map[string]string) bool {
	leaf := verifiedLeaf(state)
	if leaf == nil || !tlsconfig.ClaimsSPIFFE(leaf) {
		return false
	}
	_, err := resource.ParseSPIFFEID(tags[tagSPIFFE])
	return err != nil
}

// permitCluster returns the plan and the reason of a Kafka client that may not
// connect to a virtual cluster, or OK.
func (r *reconciler) permitCluster(c *netio.Conn, v *model.Virtual) (netio.Plan, netio.Reason) {
	table := r.router.Table()
	if !table.Restricts() {
		return nil, netio.OK
	}
	in := inputOf(c)
	verdict := table.ClusterPermission(&in, v.Name())
	verdict.Count()
	if verdict.Allowed() {
		return nil, netio.OK
	}
	return newDenied(v.Name(), &verdict), netio.PermissionDenied
}

// shadow returns the shadowDeny that would deny an established connection, or "".
func (t *traffic) shadow(c *netio.Conn, service string) string {
	table := t.router.Table()
	if !table.Shadows() {
		return ""
	}
	in := inputOf(c)
	v := table.Permission(&in, service)
	return v.Shadow
}

// permissionChange says which established connections a change denies: of the
// permissions, or of the tags by which these know clients.
type permissionChange struct {
	before, after *routing.Table
	retagged      []string // the listeners with other tags
}

// newPermissionChange returns the change from one table to another that changes these
// listeners, and whether it may deny anything.
func newPermissionChange(before, after *routing.Table, listeners []string) (p permissionChange, any bool) {
	p = permissionChange{before, after, before.Retagged(after, listeners)}
	return p, !before.SamePermissions(after) || len(p.retagged) > 0 && after.Restricts()
}

// concerns reports whether the change may deny connections of a listener.
func (p *permissionChange) concerns(listener string) bool {
	return !p.before.SamePermissions(p.after) || slices.Contains(p.retagged, listener)
}

// connection returns whether a connection is denied now and was allowed before,
// and the window over which it is to be closed. It runs on the connection's loop.
func (p *permissionChange) connection(c *netio.Conn) (over time.Duration, leave bool) {
	if !p.concerns(c.Listener()) {
		return 0, false
	}
	if routed := planOf(c.Plan()); routed != nil {
		destination := routed.decision.Destination()
		return p.ask(c, func(t *routing.Table, in *routing.Input) permit.Verdict { return t.Permission(in, destination) })
	}
	k, ok := kafka.Of(c.Plan())
	if !ok {
		return 0, false
	}
	return p.ask(c, func(t *routing.Table, in *routing.Input) permit.Verdict { return t.ClusterPermission(in, k.Cluster()) })
}

func (p *permissionChange) ask(
	c *netio.Conn, of func(*routing.Table, *routing.Input) permit.Verdict,
) (over time.Duration, leave bool) {
	in := inputOf(c)
	after := of(p.after, &in)
	if after.Allowed() {
		return 0, false
	}
	before := of(p.before, &in)
	return revocation(&before, &after)
}

// revocation says whether a connection with these verdicts is closed, and over
// which window: as the permission says that denies it, or else the one that
// allowed it until now. One that was denied before was established still earlier,
// under a permission that let it stay.
func revocation(before, after *permit.Verdict) (over time.Duration, leave bool) {
	if after.Allowed() || !before.Allowed() {
		return 0, false
	}
	decides := after
	if after.Why != permit.ByDeny && before.Why == permit.ByAllow {
		decides = before
	}
	switch action, window := decides.OnChange(); action {
	case resource.OnChangeKeep:
		return 0, false
	case resource.OnChangeClose:
		return 0, true
	default:
		return window, true
	}
}

// reviewPermissions closes the connections and requests that a new table denies
// and the old one allowed. listeners are those that have changed.
func (r *reconciler) reviewPermissions(before, after *routing.Table, listeners []string) {
	change, any := newPermissionChange(before, after, listeners)
	if !any && len(change.retagged) == 0 {
		return
	}
	r.engine.Review(netio.PermissionRevoked, func(c *netio.Conn) (time.Duration, bool) {
		if k, ok := kafka.Of(c.Plan()); ok && slices.Contains(change.retagged, c.Listener()) {
			k.Reidentify(c) // permissions for requests know the client by these tags
		}
		if p, ok := c.Plan().(*httpPlan); ok {
			if change.concerns(c.Listener()) {
				p.client.revoke(&change)
			}
			return 0, false
		}
		if now := r.router.Table(); now != change.after { // it may have been permitted again meanwhile
			later := change
			later.after = now
			return later.connection(c)
		}
		return change.connection(c)
	}, nil)
}

// CountRevoked returns how many connections of this node a change from one table
// to another would close, of which these listeners are changed. It fails if ctx ends
// before all are counted. Requests that are routed one by one are not counted.
func (d *Dataplane) CountRevoked(ctx context.Context, before, after *routing.Table, listeners []string) (int64, error) {
	change, any := newPermissionChange(before, after, listeners)
	if !any {
		return 0, nil
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	wg.Add(d.Engine.Loops())
	d.Engine.Review(netio.PermissionRevoked, func(c *netio.Conn) (time.Duration, bool) {
		if _, leave := change.connection(c); leave {
			n.Add(1)
		}
		return 0, false
	}, wg.Done)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return n.Load(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// MayRevoke reports whether a change from one table to another, of which these
// listeners are changed, may close connections that are denied then.
func MayRevoke(before, after *routing.Table, listeners []string) bool {
	_, any := newPermissionChange(before, after, listeners)
	return any
}

// forwarded are the requests of a client that endpoints are answering.
type forwarded struct {
	mu   sync.Mutex
	list []*request
}

func (f *forwarded) add(q *request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, q)
}

func (f *forwarded) remove(q *request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.list, q); i >= 0 {
		f.list = slices.Delete(f.list, i, i+1)
	}
}

func (f *forwarded) all() []*request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

// revoke ends the client's requests that the change denies: each at a random
// moment of the window. Most end by themselves before.
func (c *httpClient) revoke(change *permissionChange) {
	for _, q := range c.forwarded.all() {
		before, after := q.verdict(change.before), q.verdict(change.after)
		over, leave := revocation(&before, &after)
		if !leave {
			continue
		}
		wait := time.Duration(0)
		if over > 0 {
			wait = rand.N(over)
		}
		time.AfterFunc(wait, func() {
			if v := q.verdict(q.requests.router.Table()); v.Allowed() {
				return // permitted again
			}
			if r := q.place.running.Load(); r != nil {
				(*r).End(web.ErrRevoked)
			}
		})
	}
}

// verdict decides about the request on a table.
func (q *request) verdict(t *routing.Table) permit.Verdict {
	return t.RequestPermission(&q.client.in, q.client.destination, q.method, q.normal)
}
