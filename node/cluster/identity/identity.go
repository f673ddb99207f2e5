// Package identity issues the X.509 SVIDs of workloads, and records and revokes
// them. An entry of the store for each certificate, by serial number, lasts as
// long as any clock may take the certificate for valid; so the entries that are
// revoked are the revocation list, and every node has it.
//
// Issue, List and Revoke run on the leader, Revoked and Stats on any node. What an
// SVID looks like is the business of package trust.
//
//	registry := identity.New(identity.Config{Entries: entries, ...})
//	issued, err := registry.Issue(ctx, &api.IdentityRequest{ID: "/ns/shop/web", CSR: csr})
//	...
//	registry.Follow(snap, last) // on every node, for each snapshot
//	registry.Revoked(leaf)      // at each handshake
package identity

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
	"penstock/routing/resource"
)

const (
	// MaxIdentities bounds the certificates that are recorded, and so the memory and
	// the log that issuers can fill: at most 1 KiB each.
	MaxIdentities = 20_000
	// maxID bounds a SPIFFE ID here, in bytes, below the standard's 2048: every node
	// keeps it in memory.
	maxID = 512
	// maxDNS bounds the DNS names of a certificate.
	maxDNS = 16
	// maxOps bounds the entries that one commit changes.
	maxOps = 500
	// leaveAfter is how long an entry stays after the certificate has expired: a node
	// whose clock is behind would still accept it.
	leaveAfter = trust.SVIDSkew
)

// Config has what a Registry needs. All fields are required.
type Config struct {
	Entries record.Store
	// Path returns the pattern of SPIFFE paths for which a token of role issuer may
	// issue; not ok if there is no such token any more.
	Path func(tokenID string) (pattern string, ok bool)
	// Lacking names the members that do not support workload identities: they would
	// ignore a revocation.
	Lacking func() (nodes []string)
	Log     *slog.Logger
}

// Registry is the workload certificates of a cluster, as one node sees them.
type Registry struct {
	Config
	issuing sync.Mutex // serializes Issue and Revoke, so that the bound holds and each sees what the other did

	mu       sync.RWMutex
	serials  map[string]bool   // of all entries
	revoked  map[string]string // serial -> SPIFFE ID
	followed uint64            // index of the last snapshot that Follow applied
	failures uint64            // certificates refused or not recorded, on this node as the leader
	minted   uint64
}

// New returns the registry of a node.
func New(cfg Config) *Registry {
	return &Registry{Config: cfg, serials: map[string]bool{}, revoked: map[string]string{}}
}

// Stats are the counts of a node.
type Stats struct {
	Recorded, Revoked int    // entries
	Issued, Refused   uint64 // by this node, while it led
}

// Stats returns the counts.
func (g *Registry) Stats() Stats {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return Stats{Recorded: len(g.serials), Revoked: len(g.revoked), Issued: g.minted, Refused: g.failures}
}

// Issue issues a certificate, on the leader, and records it before the caller gets
// it.
func (g *Registry) Issue(ctx context.Context, req *api.IdentityRequest) (*api.IdentityIssued, error) {
	issued, err := g.issue(ctx, req)
	g.tally(err)
	return issued, err
}

// tally counts a request for a certificate.
func (g *Registry) tally(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.failures++
	} else {
		g.minted++
	}
}

func (g *Registry) issue(ctx context.Context, req *api.IdentityRequest) (*api.IdentityIssued, error) {
	id, err := g.parse(req.ID, resource.ReservedPaths)
	if err != nil {
		return nil, err
	}
	by, err := g.authorize(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(req.DNS) > 0 && rpc.Caller(ctx).Role == api.RoleIssuer {
		return nil, api.Errorf(api.Forbidden, "a token of role issuer may not set DNS names: they are not bound to its path")
	}
	return g.mint(ctx, id, by, req, func(store.Snapshot) error { return nil })
}

// mint issues a certificate that the caller may have, unless admit refuses it by the
// current entries.
func (g *Registry) mint(
	ctx context.Context, id resource.SPIFFEID, by string, req *api.IdentityRequest, admit func(store.Snapshot) error,
) (*api.IdentityIssued, error) {
	if err := checkDNS(req.DNS); err != nil {
		return nil, err
	}
	if req.TTL = cmp.Or(req.TTL, trust.SVIDLifetime); req.TTL < trust.MinSVIDLifetime || req.TTL > trust.MaxSVIDLifetime {
		return nil, api.Errorf(api.Invalid, "ttl %v: want %v to %v", req.TTL, trust.MinSVIDLifetime, trust.MaxSVIDLifetime)
	}
	key, err := trust.CheckProxyRequest(req.CSR)
	if err != nil {
		return nil, api.Errorf(api.Invalid, "csr: %v", err)
	}
	if lacking := g.Lacking(); len(lacking) > 0 {
		return nil, api.Errorf(api.Refused, "these nodes run a version that would not notice a revocation: %s; upgrade them first, "+
			"or remove those that no longer exist", strings.Join(lacking[:min(len(lacking), 8)], ", "))
	}
	g.issuing.Lock()
	defer g.issuing.Unlock()
	snap, err := g.Entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	if err := admit(snap); err != nil {
		return nil, err
	}
	if n := count(snap); n >= MaxIdentities {
		return nil, api.Errorf(api.Refused, "%d workload certificates are in force, the limit is %d: use shorter lifetimes (--ttl); "+
			"an entry ends %v after its certificate", n, MaxIdentities, leaveAfter)
	}
	ca, err := g.Entries.Signer(snap)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	uri := &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: id.Path}
	leaf, err := ca.IssueSVID(key, trust.SVID{ID: uri, DNS: req.DNS, TTL: req.TTL}, now)
	if err != nil {
		return nil, err
	}
	serial := SerialText(leaf.SerialNumber)
	r := record.Identity{
		Format: record.Format, Serial: serial, ID: id.String(), By: by, Issued: now.UTC(), Expires: leaf.NotAfter,
	}
	var none uint64
	op := store.Op{Key: record.IdentityKey(serial), Value: record.Marshal(r), IfVersion: &none}
	if err := g.Entries.Commit(ctx, by, "identity issue", []store.Op{op}); err != nil {
		return nil, err
	}
	return &api.IdentityIssued{
		ID: r.ID, Serial: serial, Certificate: leaf.Raw, Chain: ca.Intermediates(), Roots: ca.Roots(), Expires: leaf.NotAfter,
	}, nil
}

// parse parses an ID of the cluster's trust domain, or its path. The path must not
// begin with one of the taken segments.
func (g *Registry) parse(text string, taken []string) (resource.SPIFFEID, error) {
	own := g.Entries.Identity().TrustDomain()
	if strings.HasPrefix(text, "/") {
		text = "spiffe://" + own + text
	}
	id, err := resource.ParseSPIFFEID(text)
	switch first, _, _ := strings.Cut(strings.TrimPrefix(id.Path, "/"), "/"); {
	case err != nil:
		return id, api.Errorf(api.Invalid, "identity %.80q: %v", text, err)
	case len(text) > maxID:
		return id, api.Errorf(api.Invalid, "identity: %d bytes, the limit is %d", len(text), maxID)
	case id.TrustDomain != own:
		return id, api.Errorf(api.Invalid, "identity %.80q: its trust domain is not this cluster's, %s", text, own)
	case id.Path == "":
		return id, api.Errorf(api.Invalid, "identity %q: it needs a path, such as /ns/shop/web: without one it is the trust domain's own", text)
	case slices.Contains(taken, first):
		return id, api.Errorf(api.Invalid, "identity %.80q: paths that begin with /%s belong to the cluster itself: "+
			"proxies get theirs by penstock xds bootstrap", text, first)
	}
	return id, nil
}

// authorize returns the caller's name if it may issue or revoke certificates of an
// ID. A token of role issuer may only do so for its path; its record, not the node
// that forwarded the request, says which that is.
func (g *Registry) authorize(ctx context.Context, id resource.SPIFFEID) (by string, err error) {
	may, err := g.permission(ctx)
	if err != nil {
		return "", err
	}
	return may.by, may.check(id)
}

// permission is what a caller may issue, list and revoke.
type permission struct {
	by      string // the caller
	pattern string // of SPIFFE IDs; "": all
	path    string // that of the token, for errors
}

// permission returns that of the caller. It opens the token's record: callers with many
// IDs ask once.
func (g *Registry) permission(ctx context.Context) (permission, error) {
	p := rpc.Caller(ctx)
	may := permission{by: cmp.Or(p.Name, g.Entries.Identity().Name)}
	if p.Role != api.RoleIssuer {
		return may, nil
	}
	path, ok := g.Path(p.TokenID)
	if !ok {
		return permission{}, api.Errorf(api.Unauthenticated, "the token no longer exists")
	}
	may.path, may.pattern = path, "spiffe://"+g.Entries.Identity().TrustDomain()+path
	return may, nil
}

// check returns an error if the caller may not have certificates of an ID.
func (m permission) check(id resource.SPIFFEID) error {
	if m.pattern != "" && !resource.MatchSPIFFE(m.pattern, id.String()) {
		return api.Errorf(api.Forbidden, "the token %q may issue for %s only, not for %s", m.by, m.path, id.Path)
	}
	return nil
}

// checkDNS checks the DNS names of a certificate.
func checkDNS(names []string) error {
	if len(names) > maxDNS {
		return api.Errorf(api.Invalid, "dns: %d names, the limit is %d", len(names), maxDNS)
	}
	for _, name := range names {
		if !validDNS.MatchString(name) || len(name) > 253 {
			return api.Errorf(api.Invalid, "dns %.80q: want a host name in lower case, without a wildcard", name)
		}
	}
	return nil
}

var validDNS = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// SerialText returns a serial number as entries, lists and logs have it.
func SerialText(n *big.Int) string { return n.Text(16) }

func count(snap store.Snapshot) (n int) {
	for range snap.Kind(record.KindIdentity) {
		n++
	}
	return n
}

// List lists the certificates that the caller may issue, the newest first.
func (g *Registry) List(ctx context.Context, _ *api.Empty) (*api.Identities, error) {
	snap, err := g.Entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	may, err := g.permission(ctx)
	if err != nil {
		return nil, err
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	now, list := time.Now(), api.Identities{}
	for e := range snap.Kind(record.KindIdentity) {
		r, err := record.Unmarshal[record.Identity](e.Key, e.Value)
		if err != nil {
			continue
		}
		// An issuer does not see what its pattern cannot be compared with.
		id, err := resource.ParseSPIFFEID(r.ID)
		if may.pattern != "" && (err != nil || may.check(id) != nil) {
			continue
		}
		list = append(list, api.Identity{
			Serial: r.Serial, ID: r.ID, State: state(r, now), By: r.By, Issued: r.Issued, Expires: r.Expires, Revoked: r.Revoked,
		})
	}
	slices.SortStableFunc(list, func(a, b api.Identity) int { return b.Issued.Compare(a.Issued) })
	return &list, nil
}

func state(r record.Identity, now time.Time) string {
	switch {
	case !r.Revoked.IsZero():
		return "revoked"
	case !now.Before(r.Expires):
		return "expired"
	}
	return "valid"
}

// Revoke revokes the certificate of a serial number, or all of an ID, on the
// leader.
func (g *Registry) Revoke(ctx context.Context, req *api.IdentityRevokeRequest) (*api.IdentityRevoked, error) {
	// Other programs write whole bytes, as 01:AB:...
	serial, id := strings.TrimLeft(strings.ToLower(strings.ReplaceAll(req.Identity, ":", "")), "0"), ""
	if strings.Contains(req.Identity, "/") {
		parsed, err := g.parse(req.Identity, nil)
		if err != nil {
			return nil, err
		}
		id = parsed.String()
	}
	g.issuing.Lock() // a certificate that is being issued would escape
	defer g.issuing.Unlock()
	snap, err := g.Entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	ops, found, by, err := g.revocations(ctx, snap, id, serial)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, api.Errorf(api.NotFound, "no certificate of %.80q is in force: see penstock identity list", req.Identity)
	}
	for part := range slices.Chunk(ops, maxOps) {
		err := g.Entries.Commit(ctx, by, "identity revoke", part)
		if errors.Is(err, store.ErrVersion) {
			return nil, api.Errorf(api.Unavailable, "the certificate has just changed: try again")
		}
		if err != nil {
			return nil, err
		}
	}
	return &api.IdentityRevoked{Count: len(ops)}, nil
}

// revocations returns the changes that revoke what has an ID, or if that is "" a
// serial number. What is revoked already is found but not changed.
func (g *Registry) revocations(
	ctx context.Context, snap store.Snapshot, id, serial string,
) (ops []store.Op, found bool, by string, err error) {
	now := time.Now().UTC()
	may, err := g.permission(ctx)
	if err != nil {
		return nil, false, "", err
	}
	for e := range snap.Kind(record.KindIdentity) {
		r, err := record.Unmarshal[record.Identity](e.Key, e.Value)
		if err != nil || id != "" && r.ID != id || id == "" && r.Serial != serial {
			continue
		}
		parsed, err := resource.ParseSPIFFEID(r.ID)
		if err != nil {
			continue
		}
		if err := may.check(parsed); err != nil {
			return nil, false, "", err
		}
		found = true
		if !r.Revoked.IsZero() {
			continue
		}
		r.Revoked = now
		ops = append(ops, store.Op{Key: e.Key, Value: record.Marshal(r), IfVersion: &e.Version})
	}
	return ops, found, may.by, nil
}

// Outdated returns the changes that delete the entries whose certificates no clock
// takes for valid any more, for the leader's housekeeping.
func Outdated(snap store.Snapshot, now time.Time) (ops []store.Op) {
	for e := range snap.Kind(record.KindIdentity) {
		r, err := record.Unmarshal[record.Identity](e.Key, e.Value)
		if err == nil && now.Sub(r.Expires) > leaveAfter && len(ops) < maxOps {
			ops = append(ops, store.Op{Key: e.Key, IfVersion: &e.Version})
		}
	}
	return ops
}

// Follow applies a snapshot; last is the index of the one before. It reports
// whether a certificate was revoked.
func (g *Registry) Follow(snap store.Snapshot, last uint64) (revoked bool, err error) {
	keys := record.Changed(snap, last, record.KindIdentity)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.followed = snap.Index()
	if len(keys) == 0 {
		return false, nil
	}
	if _, known := snap.Changed(last); !known {
		clear(g.serials) // entries may have been deleted
		clear(g.revoked)
		revoked = true
	}
	for _, k := range keys {
		e, ok := snap.Get(k)
		if !ok {
			delete(g.serials, k.Name)
			delete(g.revoked, k.Name)
			continue
		}
		r, err := record.Unmarshal[record.Identity](k, e.Value)
		if err != nil {
			return revoked, err
		}
		g.serials[r.Serial] = true
		if !r.Revoked.IsZero() && g.revoked[r.Serial] == "" {
			g.revoked[r.Serial] = r.ID
			revoked = true
		}
	}
	return revoked, nil
}

// Revoked reports whether a certificate of this cluster was revoked. Another
// authority's certificate with the same serial number is not: both the number and
// the ID must match.
func (g *Registry) Revoked(leaf *x509.Certificate) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if len(g.revoked) == 0 || len(leaf.URIs) != 1 {
		return false
	}
	id, ok := g.revoked[SerialText(leaf.SerialNumber)]
	return ok && id == leaf.URIs[0].String()
}

// Bundle returns the trust bundle, as this node has it.
func (g *Registry) Bundle(context.Context, *api.Empty) (*api.TrustBundle, error) {
	e, ok := g.Entries.Snapshot().Get(record.KeyCluster)
	if !ok {
		return nil, api.Errorf(api.Unavailable, "this node does not have the cluster's record yet: try again, or use another node")
	}
	r, err := record.Unmarshal[record.Cluster](e.Key, e.Value)
	if err != nil {
		return nil, err
	}
	return &api.TrustBundle{TrustDomain: g.Entries.Identity().TrustDomain(), Sequence: e.Version, Roots: trust.SelfSigned(r.CAs)}, nil
}
