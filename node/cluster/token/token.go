// Package token keeps a cluster's tokens, which are entries of its store: it
// creates, lists and revokes them, and verifies those that callers show. Create
// and Revoke run on the leader, everything else on any node. What a token is
// and how a node proves that it knows one is the business of package trust.
package token

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
	"penstock/routing/resource"
)

const (
	// defaultTTL is the lifetime of a token that is created without one.
	defaultTTL = 24 * time.Hour
	// maxTokens bounds the tokens that are kept.
	maxTokens = 1000
	// lookupTimeout bounds the query to the leader for a token that this node
	// lacks.
	lookupTimeout = 2 * time.Second
)

// Config has what a Registry needs. All fields are required.
type Config struct {
	Entries record.Store
	// Now returns the time by which tokens expire: the leader's.
	Now func() time.Time
	// Read returns the index that a snapshot must reach to show every token
	// that any node has acknowledged.
	Read func(context.Context) (uint64, error)
	Log  *slog.Logger
}

// Registry is the tokens of a cluster, as one node sees them.
type Registry struct {
	Config
	lookups chan struct{} // semaphore: reads at the leader for unknown tokens
}

// New returns the registry of a node.
func New(cfg Config) *Registry { return &Registry{cfg, make(chan struct{}, 4)} }

// find finds a token by ID. A token that this node lacks may be new, so
// the node catches up with the leader and looks again; since any stranger can
// send any ID, it does that for a few callers at once (lookups). An error
// means that the token may be valid: the node could not catch up, or too many
// callers wait.
func (g *Registry) find(ctx context.Context, id string) (t trust.TokenRecord, ok bool, err error) {
	if len(id) > 64 || id == "" {
		return t, false, nil
	}
	if t, ok = g.findIn(g.Entries.Snapshot(), id); ok {
		return t, true, nil
	}
	select {
	case g.lookups <- struct{}{}:
		defer func() { <-g.lookups }()
	default:
		return t, false, api.Errorf(api.Unavailable,
			"this node does not have the token, and is busy looking up others: try again, or use another node")
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	index, err := g.Read(ctx)
	snap := store.Snapshot{}
	if err == nil {
		snap, err = g.Entries.WaitIndex(ctx, index)
	}
	if err != nil {
		g.Log.Debug("cannot look up a token", "id", id, "error", err)
		return t, false, api.Errorf(api.Unavailable,
			"this node does not have the token, and cannot look it up at the leader now: try again, or use another node")
	}
	t, ok = g.findIn(snap, id)
	return t, ok, nil
}

func (g *Registry) findIn(snap store.Snapshot, id string) (trust.TokenRecord, bool) {
	e, ok := snap.Get(record.TokenKey(id))
	if !ok {
		return trust.TokenRecord{}, false
	}
	t, err := trust.ParseTokenRecord(g.Entries.Sealer(), e.Value)
	if err != nil {
		g.Log.Warn("cannot read a token record", "id", id, "error", err)
	}
	return t, err == nil
}

// Authenticate returns the principal of a token. Its errors do not contain any
// of the token.
func (g *Registry) Authenticate(ctx context.Context, text string) (api.Principal, error) {
	refuse := func(format string, args ...any) (api.Principal, error) {
		return api.Principal{}, api.Errorf(api.Unauthenticated, format, args...)
	}
	t, err := trust.ParseToken(text)
	switch {
	case err != nil:
		return refuse("%v", err)
	case t.Kind != trust.Admin:
		return refuse("%s is for nodes; commands need a token of role reader, operator or admin: create one with penstock token create", t)
	case t.ClusterID != g.Entries.Identity().ClusterID:
		return refuse("the token is for cluster %s, this is %s", t.ClusterID, g.Entries.Identity().ClusterID)
	}
	r, ok, err := g.find(ctx, t.ID)
	if err != nil {
		return api.Principal{}, err
	}
	if !ok {
		return refuse("unknown token: it never existed, or expired or was revoked long ago")
	}
	if err := r.Authenticate(t, g.Now()); err != nil {
		return refuse("%v: create another with penstock token create", err)
	}
	return api.Principal{Name: r.Name, Role: api.Role(r.Role), TokenID: r.ID}, nil
}

// Holder returns the principal of the token with this ID, for a caller that has shown
// the token before.
func (g *Registry) Holder(ctx context.Context, id string) (api.Principal, error) {
	r, ok, err := g.find(ctx, id)
	switch {
	case err != nil:
		return api.Principal{}, err
	case !ok || r.Kind != trust.Admin:
		return api.Principal{}, api.Errorf(api.Unauthenticated, "the token no longer exists")
	}
	if err := r.Valid(g.Now()); err != nil {
		return api.Principal{}, api.Errorf(api.Unauthenticated, "%v", err)
	}
	return api.Principal{Name: r.Name, Role: api.Role(r.Role), TokenID: r.ID}, nil
}

// Check returns an error if a principal's token is no longer valid, as far as
// this node knows. It sends no requests.
func (g *Registry) Check(p api.Principal) error {
	if p.TokenID == "" {
		return nil
	}
	r, ok := g.findIn(g.Entries.Snapshot(), p.TokenID)
	if !ok {
		return api.Errorf(api.Unauthenticated, "the token no longer exists")
	}
	if err := r.Valid(g.Now()); err != nil {
		return api.Errorf(api.Unauthenticated, "%v", err)
	}
	return nil
}

// validName matches the valid names of tokens; "" is replaced by the role and a
// random suffix.
var validName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)

// checkName makes sure that history and logs can tell tokens apart by name,
// and that there are fewer than maxTokens.
func (g *Registry) checkName(snap store.Snapshot, name string) error {
	n := 0
	for e := range snap.Kind(record.KindToken) {
		n++
		r, err := trust.ParseTokenRecord(g.Entries.Sealer(), e.Value)
		if err == nil && name != "" && r.Name == name && r.Valid(time.Now()) == nil {
			return api.Errorf(api.Refused, "token %q already exists: revoke it, or choose another name", name)
		}
	}
	if n >= maxTokens {
		return api.Errorf(api.Refused, "%d tokens, the limit is %d: revoke some, or create them with a shorter lifetime", n, maxTokens)
	}
	return nil
}

// Create creates a token, on the leader.
func (g *Registry) Create(ctx context.Context, req *api.TokenCreateRequest) (*api.TokenCreated, error) {
	kind := trust.Admin
	switch req.Role {
	case api.RoleJoin:
		kind = trust.Join
	case api.RoleReader, api.RoleOperator, api.RoleAdmin, api.RoleIssuer:
	default:
		return nil, api.Errorf(api.Invalid, "role %.40q: want join, reader, operator, admin or issuer", req.Role)
	}
	if err := checkPath(req); err != nil {
		return nil, err
	}
	if req.TTL == 0 {
		req.TTL = defaultTTL
	}
	if !validName.MatchString(req.Name) {
		return nil, api.Errorf(api.Invalid, "name %.80q: want up to 64 letters, digits and . _ -", req.Name)
	}
	if req.Name == "" {
		req.Name = string(req.Role) + "-" + trust.NewNodeID()[:4]
	}
	snap, err := g.Entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.checkName(snap, req.Name); err != nil {
		return nil, err
	}
	ca, err := g.Entries.Signer(snap)
	if err != nil {
		return nil, err
	}
	by := cmp.Or(rpc.Caller(ctx).Name, g.Entries.Identity().Name)
	t, r, err := trust.Mint(kind, string(req.Role), req.Name, by, req.TTL, g.Entries.Identity().ClusterID, ca.Digest(), time.Now())
	if err != nil {
		return nil, api.Errorf(api.Invalid, "%v", err)
	}
	r.Path = req.Path
	value, err := r.Marshal(g.Entries.Sealer())
	if err != nil {
		return nil, err
	}
	var none uint64
	op := store.Op{Key: record.TokenKey(r.ID), Value: value, IfVersion: &none}
	if err := g.Entries.Commit(ctx, by, "token create", []store.Op{op}); err != nil {
		return nil, err
	}
	return &api.TokenCreated{ID: r.ID, Token: t.Reveal()}, nil
}

// checkPath checks the path of a token of role issuer, which must have one.
func checkPath(req *api.TokenCreateRequest) error {
	switch {
	case req.Role != api.RoleIssuer && req.Path != "":
		return api.Errorf(api.Invalid, "path %.80q: only a token of role issuer has one", req.Path)
	case req.Role != api.RoleIssuer:
		return nil
	case !strings.HasPrefix(req.Path, "/"):
		return api.Errorf(api.Invalid, "path %.80q: want the SPIFFE paths for which the token may issue, such as /ns/shop/**", req.Path)
	}
	if err := resource.CheckSPIFFEPattern("spiffe://any" + req.Path); err != nil {
		return api.Errorf(api.Invalid, "path %.80q: %v", req.Path, err)
	}
	return nil
}

// Path returns the path for which a token of role issuer may issue, as far as this
// node knows; not ok if the token is not valid any more.
func (g *Registry) Path(id string) (pattern string, ok bool) {
	r, ok := g.findIn(g.Entries.Snapshot(), id)
	if !ok || r.Valid(g.Now()) != nil || api.Role(r.Role) != api.RoleIssuer {
		return "", false
	}
	return r.Path, true
}

// List lists the tokens that this node knows, the newest first.
func (g *Registry) List() api.Tokens {
	now := g.Now()
	list := api.Tokens{}
	for e := range g.Entries.Snapshot().Kind(record.KindToken) {
		r, err := trust.ParseTokenRecord(g.Entries.Sealer(), e.Value)
		if err != nil {
			continue
		}
		list = append(list, api.Token{
			ID: r.ID, Name: r.Name, Role: api.Role(r.Role), Created: r.Created, By: r.By, Expires: r.Expires, State: r.State(now),
			Path: r.Path,
		})
	}
	slices.SortStableFunc(list, func(a, b api.Token) int { return b.Created.Compare(a.Created) })
	return list
}

// Revoke revokes a token, by ID or name, on the leader; if several have the name,
// all that are valid.
func (g *Registry) Revoke(ctx context.Context, req *api.TokenRevokeRequest) (*api.Empty, error) {
	want := strings.TrimSpace(req.Token)
	if t, err := trust.ParseToken(want); err == nil { // the whole token works as well
		want = t.ID
	}
	snap, err := g.Entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var ops []store.Op
	found := false
	for e := range snap.Kind(record.KindToken) {
		r, err := trust.ParseTokenRecord(g.Entries.Sealer(), e.Value)
		if err != nil || r.ID != want && r.Name != want {
			continue
		}
		found = true
		if r.Valid(now) != nil {
			continue // it has ended already
		}
		value, err := r.Revoke(now).Marshal(g.Entries.Sealer())
		if err != nil {
			return nil, err
		}
		ops = append(ops, store.Op{Key: e.Key, Value: value, IfVersion: &e.Version})
	}
	switch {
	case !found:
		return nil, api.Errorf(api.NotFound, "no token with that ID or name: see penstock token list")
	case len(ops) == 0:
		return &api.Empty{}, nil
	}
	err = g.Entries.Commit(ctx, cmp.Or(rpc.Caller(ctx).Name, g.Entries.Identity().Name), "token revoke", ops)
	if errors.Is(err, store.ErrVersion) {
		return nil, api.Errorf(api.Unavailable, "the token has just changed: try again")
	}
	return &api.Empty{}, err
}

// VerifyProof verifies the caller's proof that it knows a join token.
func (g *Registry) VerifyProof(ctx context.Context, tokenID string, proof []byte) (key []byte, t trust.TokenRecord, err error) {
	unknown := api.Errorf(api.Unauthenticated, "unknown token: it is for another cluster, "+
		"or expired or was revoked long ago: create one with penstock token create --role join")
	t, ok, err := g.find(ctx, tokenID)
	if err != nil {
		return nil, t, err
	}
	if !ok {
		return nil, t, unknown
	}
	key, ok = t.ProofKey()
	if !ok || trust.Check(key, trust.Dialer, rpc.TLS(ctx), proof) != nil {
		return nil, t, unknown
	}
	if err := t.Valid(g.Now()); err != nil {
		return nil, t, api.Errorf(api.Unauthenticated, "%v: create another with penstock token create --role join", err)
	}
	return key, t, nil
}
