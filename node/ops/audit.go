package ops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/audit"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
)

const (
	// auditInterval is the time between two looks at what is new.
	auditInterval = time.Second
	// auditPart bounds the entries of one item.
	auditPart = 500
)

// auditLog has the methods of the audit log.
type auditLog struct {
	peers *Peers
	log   *audit.Log
}

func (a auditLog) register(s *rpc.Server) {
	rpc.HandleStream(s, api.MethodAudit, api.RoleAdmin, a.read)
	rpc.Handle(s, api.MethodAuditKept, api.RoleNode, a.log.Kept)
	rpc.Handle(s, api.MethodAuditRecord, api.RoleNode, atLeader(a.peers, a.log.Add))
}

// auditReader is one request to read the audit log.
type auditReader struct {
	auditLog
	r       *api.AuditRequest
	index   uint64            // of the store, up to which entries were sent
	at      map[string]uint64 // node ID -> AuditKept.Position of its last answer
	missing []string          // as last sent
}

// read sends the audit log in order of time: the replicated entries, and what each
// node keeps to itself.
func (a auditLog) read(ctx context.Context, r *api.AuditRequest, send func(*api.AuditItem) error) error {
	if r.Node != "" && !slices.ContainsFunc(a.members(), func(m directory.Member) bool { return m.Name == r.Node || m.ID == r.Node }) {
		return api.Errorf(api.NotFound, "there is no node %q: see penstock members", r.Node)
	}
	if err := a.peers.ReadBarrier(ctx); err != nil && !r.Follow {
		return err
	}
	reader := &auditReader{auditLog: a, r: r, at: map[string]uint64{}}
	tick := time.NewTicker(auditInterval)
	defer tick.Stop()
	for first := true; ; first = false {
		entries, missing := reader.next(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := sendAudit(ctx, entries, missing, first, send); err != nil || !r.Follow {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendAudit sends entries in parts.
func sendAudit(ctx context.Context, entries []api.AuditEntry, missing []string, first bool, send func(*api.AuditItem) error) error {
	for first || len(entries) > 0 || len(missing) > 0 {
		first = false
		if err := rpc.LargeResponse(ctx); err != nil {
			return err
		}
		part := entries[:min(len(entries), auditPart)]
		entries = entries[len(part):]
		if err := send(&api.AuditItem{Entries: part, More: len(entries) > 0, Missing: missing}); err != nil {
			return err
		}
		missing = nil
	}
	return nil
}

// next returns what is new: the entries in order of time, and the nodes that did not
// answer if these are others than before.
func (a *auditReader) next(ctx context.Context) (entries []api.AuditEntry, missing []string) {
	_, view := a.peers.catalog.InForce()
	for _, e := range audit.Entries(view, a.index, a.r.Since) {
		if a.wants(e.Node) {
			entries = append(entries, e)
		}
	}
	a.index = view.Index()
	kept, missing := a.kept(ctx)
	for _, e := range kept {
		if !e.At.Before(a.r.Since) {
			entries = append(entries, e)
		}
	}
	audit.Sort(entries)
	if slices.Equal(missing, a.missing) {
		return entries, nil
	}
	a.missing = missing
	return entries, missing
}

// wants reports whether the entries of a node are asked for, by name.
func (a *auditReader) wants(node string) bool {
	return a.r.Node == "" || node == a.r.Node ||
		slices.ContainsFunc(a.members(), func(m directory.Member) bool { return m.ID == a.r.Node && m.Name == node })
}

// members returns the members, this node among them.
func (a auditLog) members() []directory.Member { return a.peers.members() }

// keptAnswer is the answer of one node.
type keptAnswer struct {
	member directory.Member
	kept   *api.AuditKept
	err    error
}

// kept asks all nodes that are asked for what they refused and denied since their
// last answers.
func (a *auditReader) kept(ctx context.Context) (entries []api.AuditEntry, missing []string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	members := slices.DeleteFunc(a.members(), func(m directory.Member) bool { return !a.wants(m.Name) })
	answers := make(chan keptAnswer, len(members))
	for _, m := range members {
		r := &api.AuditKeptRequest{After: a.at[m.ID]}
		go func() {
			kept, err := a.keptOf(ctx, m, r)
			answers <- keptAnswer{m, kept, err}
		}()
	}
	for range members {
		switch n := <-answers; {
		case n.err != nil:
			missing = append(missing, n.member.Name+": "+n.err.Error())
		default:
			entries = append(entries, n.kept.Entries...)
			a.at[n.member.ID] = n.kept.Position
		}
	}
	slices.SortFunc(missing, strings.Compare)
	return entries, missing
}

// keptOf asks one node.
func (a *auditReader) keptOf(ctx context.Context, m directory.Member, r *api.AuditKeptRequest) (*api.AuditKept, error) {
	if m.Self {
		return a.log.Kept(ctx, r)
	}
	if !m.Up() {
		return nil, errors.New(cmp.Or(m.State, "unreachable"))
	}
	client, err := a.peers.cluster.Directory.Pool.Get(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	kept, err := rpc.Call[api.AuditKept](ctx, client, api.MethodAuditKept, r)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("did not respond")
	}
	return kept, err
}
