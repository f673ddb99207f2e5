package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/identity"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// requestFor returns a request for the certificate of a workload.
func requestFor(t *testing.T, id string) *api.IdentityRequest {
	t.Helper()
	_, csr, err := trust.NewWorkloadRequest()
	if err != nil {
		t.Fatal(err)
	}
	return &api.IdentityRequest{ID: id, CSR: csr}
}

// mustIssue issues the certificate of a workload on a leader.
func mustIssue(t *testing.T, m *machine, id string) *x509.Certificate {
	t.Helper()
	issued, err := m.c.Identities.Issue(t.Context(), requestFor(t, id))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(issued.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestRevocationReachesAllNodes(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	waitVoters(t, 1, a)
	web, other, single := mustIssue(t, a, "/ns/shop/web"), mustIssue(t, a, "/ns/shop/other"), mustIssue(t, a, "/ns/shop/single")
	again := mustIssue(t, a, "spiffe://"+a.c.ClusterID()+"/ns/shop/web")
	if a.c.Identities.Revoked(web) {
		t.Error("revoked before")
	}
	for what, want := range map[string]int{"/ns/shop/web": 2, fmt.Sprintf("%X", single.SerialNumber.Bytes()): 1} {
		r, err := a.c.Identities.Revoke(t.Context(), &api.IdentityRevokeRequest{Identity: what})
		if err != nil || r.Count != want {
			t.Fatalf("%s: %+v, %v", what, r, err)
		}
	}
	for _, m := range []*machine{a, b} {
		eventually(t, "revoked on "+m.cfg.Name, func() string {
			for _, leaf := range []*x509.Certificate{web, again, single} {
				if !m.c.Identities.Revoked(leaf) {
					return leaf.URIs[0].String()
				}
			}
			return ""
		})
		if m.c.Identities.Revoked(other) {
			t.Error("another identity is revoked as well")
		}
		if s := m.c.Identities.Stats(); s.Recorded != 4 || s.Revoked != 3 {
			t.Errorf("%s: %+v", m.cfg.Name, s)
		}
	}
	foreign := &x509.Certificate{SerialNumber: web.SerialNumber, URIs: []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/web"}}}
	if a.c.Identities.Revoked(foreign) {
		t.Error("a serial number alone revokes another authority's certificate")
	}
	list, err := a.c.Identities.List(t.Context(), &api.Empty{})
	if err != nil || len(*list) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	r, err := a.c.Identities.Revoke(t.Context(), &api.IdentityRevokeRequest{Identity: "/ns/shop/web"})
	if err != nil || r.Count != 0 {
		t.Errorf("once more: %+v, %v", r, err)
	}
	for _, what := range []string{"/ns/shop/nobody", "ff", ""} {
		if _, err := a.c.Identities.Revoke(t.Context(), &api.IdentityRevokeRequest{Identity: what}); !refusedAs(err, api.NotFound) {
			t.Errorf("%q: %v", what, err)
		}
	}
}

func refusedAs(err error, code api.Code) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == code
}

func TestBadIdentitiesAreRefused(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	own := "spiffe://" + a.c.ClusterID()
	for _, id := range []string{
		"", "web", own, own + "/", "/", "/a/", "/a//b", "/a/../b", "/./a", "/a?b", "/a#b", "/a%2fb", "/a b", "/" + strings.Repeat("a", 600),
		"spiffe://example.org/web", "SPIFFE://" + a.c.ClusterID() + "/web", "spiffe://user@" + a.c.ClusterID() + "/web", own + ":80/web",
		"/service/web", "/service", "/xds", "/penstock/node/1",
	} {
		if _, err := a.c.Identities.Issue(t.Context(), requestFor(t, id)); !refusedAs(err, api.Invalid) {
			t.Errorf("%.80q: %v", id, err)
		}
	}
	for what, change := range map[string]func(r *api.IdentityRequest){
		"too short":   func(r *api.IdentityRequest) { r.TTL = time.Minute },
		"too long":    func(r *api.IdentityRequest) { r.TTL = 8 * 24 * time.Hour },
		"no key":      func(r *api.IdentityRequest) { r.CSR = nil },
		"a wildcard":  func(r *api.IdentityRequest) { r.DNS = []string{"*.example"} },
		"upper case":  func(r *api.IdentityRequest) { r.DNS = []string{"Web.example"} },
		"many names":  func(r *api.IdentityRequest) { r.DNS = strings.Split(strings.Repeat("a ", 16)+"a", " ") },
		"not its key": func(r *api.IdentityRequest) { r.CSR[len(r.CSR)-1] ^= 1 },
	} {
		r := requestFor(t, "/web")
		change(r)
		if _, err := a.c.Identities.Issue(t.Context(), r); !refusedAs(err, api.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s := a.c.Identities.Stats(); s.Recorded != 0 || s.Issued != 0 || s.Refused != 29 {
		t.Errorf("%+v", s)
	}
}

// An issuer's token works at any node, for its path only.
func TestIssuerIsBoundToItsPath(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	waitVoters(t, 1, a)
	mustIssue(t, a, "/ns/bank/web")
	made, err := a.c.Tokens.Create(t.Context(), &api.TokenCreateRequest{Role: api.RoleIssuer, Path: "/ns/shop/**"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lookUpToken(t, b, made.Token); err != nil {
		t.Fatal(err)
	}
	token, err := trust.ParseToken(made.Token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for _, m := range []*machine{a, b} {
		client, err := rpc.DialConfig{TLS: trust.TokenConfig(token), Token: made.Token}.Dial(ctx, m.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		issue := func(r *api.IdentityRequest) error {
			_, err := rpc.Call[api.IdentityIssued](ctx, client, api.MethodIdentityIssue, r)
			return err
		}
		if err := issue(requestFor(t, "/ns/shop/web")); err != nil {
			t.Errorf("%s: %v", m.cfg.Name, err)
		}
		named := requestFor(t, "/ns/shop/web")
		named.DNS = []string{"bank.example"}
		_, asNode := rpc.Call[api.IdentityIssued](ctx, client, api.MethodIdentityNode, requestFor(t, "/ns/shop/web"))
		_, revoke := rpc.Call[api.IdentityRevoked](ctx, client, api.MethodIdentityRevoke, api.IdentityRevokeRequest{Identity: "/ns/bank/web"})
		_, tokens := rpc.Call[api.Tokens](ctx, client, api.MethodTokens, api.Empty{})
		_, read := rpc.Call[api.ReadResult](ctx, client, api.MethodRead, api.Empty{})
		for what, err := range map[string]error{
			"another path": issue(requestFor(t, "/ns/bank/web")), "a longer name": issue(requestFor(t, "/ns/shopping/web")),
			"DNS names": issue(named), "as a node": asNode, "a revocation": revoke, "tokens": tokens, "reading": read,
		} {
			if !refusedAs(err, api.Forbidden) {
				t.Errorf("%s, %s: %v", m.cfg.Name, what, err)
			}
		}
		list, err := rpc.Call[api.Identities](ctx, client, api.MethodIdentities, api.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range *list {
			if !strings.Contains(i.ID, "/ns/shop/") {
				t.Errorf("%s: it sees %s", m.cfg.Name, i.ID)
			}
		}
	}
	for _, r := range []api.TokenCreateRequest{
		{Role: api.RoleIssuer}, {Role: api.RoleIssuer, Path: "ns"}, {Role: api.RoleIssuer, Path: "/a/../b"}, {Role: api.RoleAdmin, Path: "/a"},
		{Role: api.RoleIssuer, Path: "/**/a"}, {Role: api.RoleIssuer, Path: "/"},
	} {
		if _, err := a.c.Tokens.Create(t.Context(), &r); !refusedAs(err, api.Invalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// What no clock takes for valid any more is deleted by the leader, and the rest stays.
func TestExpiredIdentitiesAreDeleted(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	keep := mustIssue(t, a, "/ns/shop/web")
	now := time.Now()
	snap := a.c.Store().Snapshot()
	if ops := identity.Outdated(snap, now.Add(time.Hour+time.Minute)); len(ops) != 0 {
		t.Errorf("deleted while late clocks accept it: %v", ops)
	}
	ops := identity.Outdated(snap, now.Add(time.Hour+trust.SVIDSkew+time.Minute))
	if len(ops) != 1 || ops[0].Key != record.IdentityKey(identity.SerialText(keep.SerialNumber)) || ops[0].Value != nil {
		t.Fatalf("%+v", ops)
	}
	if err := a.c.entries.Commit(t.Context(), "test", "tidy", ops); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the entry to be gone", func() string {
		if s := a.c.Identities.Stats(); s.Recorded != 0 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

func TestIdentitiesAreBounded(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	expires := time.Now().Add(time.Hour)
	for base := 0; base < identity.MaxIdentities; base += 1000 {
		var ops []store.Op
		for i := range 1000 {
			serial := identity.SerialText(big.NewInt(int64(base + i + 1)))
			r := record.Identity{Format: record.Format, Serial: serial, ID: "spiffe://x/a", Expires: expires}
			ops = append(ops, store.Op{Key: record.IdentityKey(serial), Value: record.Marshal(r)})
		}
		if err := a.c.entries.Commit(t.Context(), "test", "fill", ops); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.c.Identities.Issue(t.Context(), requestFor(t, "/web"))
	if !refusedAs(err, api.Refused) || !strings.Contains(err.Error(), "20000") {
		t.Errorf("beyond the bound: %v", err)
	}
}

// A node gets identities of services and workloads from the leader, but none by
// which nodes know each other, and none after a revocation unless it says so.
// Nodes renew an identity while it is revoked: in whichever order the leader takes the
// requests, no certificate of it stays in force, and none is issued afterwards.
func TestRevocationRacesRenewals(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	for round := range 20 {
		id := fmt.Sprintf("/ns/shop/w%d", round)
		if _, err := a.c.IssueIdentity(t.Context(), requestFor(t, id)); err != nil {
			t.Fatal(err)
		}
		requests := make([]*api.IdentityRequest, 8) // keys take time
		for i := range requests {
			requests[i] = requestFor(t, id)
		}
		var all sync.WaitGroup
		start := make(chan struct{})
		for _, r := range requests {
			all.Go(func() {
				<-start
				if _, err := a.c.IssueIdentity(t.Context(), r); err != nil && !refusedAs(err, api.Forbidden) {
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			<-start
			if _, err := a.c.Identities.Revoke(t.Context(), &api.IdentityRevokeRequest{Identity: id}); err != nil {
				t.Error(err)
			}
		})
		close(start)
		all.Wait()
		list, err := a.c.Identities.List(t.Context(), &api.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range *list {
			if strings.HasSuffix(i.ID, id) && i.State != "revoked" {
				t.Errorf("%s, serial %s, is %s after the revocation", i.ID, i.Serial, i.State)
			}
		}
		if _, err := a.c.IssueIdentity(t.Context(), requestFor(t, id)); !refusedAs(err, api.Forbidden) {
			t.Errorf("a renewal after the revocation: %v", err)
		}
	}
}

// dialAsIssuer returns a client with a new token of role issuer, for the paths of a pattern.
func (m *machine) dialAsIssuer(path string) *rpc.Client {
	m.t.Helper()
	made, err := m.c.Tokens.Create(m.t.Context(), &api.TokenCreateRequest{Role: api.RoleIssuer, Path: path})
	if err != nil {
		m.t.Fatal(err)
	}
	token, err := trust.ParseToken(made.Token)
	if err != nil {
		m.t.Fatal(err)
	}
	client, err := rpc.DialConfig{TLS: trust.TokenConfig(token), Token: made.Token}.Dial(m.t.Context(), m.addr())
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { client.Close() })
	return client
}

// A list opens the token of its caller once, whatever it lists.
func TestListOpensTheTokenOnce(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	for i := range 5 {
		mustIssue(t, a, fmt.Sprintf("/ns/shop/w%d", i))
	}
	client := a.dialAsIssuer("/ns/shop/**")
	var opened atomic.Int32
	path := a.c.Identities.Path
	a.c.Identities.Path = func(id string) (string, bool) { opened.Add(1); return path(id) }
	list, err := rpc.Call[api.Identities](t.Context(), client, api.MethodIdentities, api.Empty{})
	if err != nil || len(*list) != 5 || opened.Load() != 1 {
		t.Errorf("%v, %v; the token was opened %d times", list, err, opened.Load())
	}
}

func TestNodesHoldIdentities(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	waitVoters(t, 1, a)
	for _, m := range []*machine{a, b} {
		for _, id := range []string{"/service/web", "/ns/shop/web"} {
			issued, err := m.c.IssueIdentity(t.Context(), requestFor(t, id))
			if err != nil || issued.ID != "spiffe://"+a.c.ClusterID()+id {
				t.Errorf("%s, %s: %+v, %v", m.cfg.Name, id, issued, err)
			}
		}
		for _, id := range []string{"/xds", "/penstock/node/1", "spiffe://example.org/web"} {
			if _, err := m.c.IssueIdentity(t.Context(), requestFor(t, id)); !refusedAs(err, api.Invalid) {
				t.Errorf("%s, %s: %v", m.cfg.Name, id, err)
			}
		}
	}
	list, err := a.c.Identities.List(t.Context(), &api.Empty{})
	if err != nil || len(*list) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, i := range *list {
		if i.By != "a" && i.By != "b" {
			t.Errorf("%s was issued by %q", i.ID, i.By)
		}
	}
	for _, id := range []string{"/ns/shop/web", "/service/web"} {
		if r, err := a.c.Identities.Revoke(t.Context(), &api.IdentityRevokeRequest{Identity: id}); err != nil || r.Count != 2 {
			t.Fatalf("%s: %+v, %v", id, r, err)
		}
		for _, m := range []*machine{a, b} {
			again := requestFor(t, id)
			if _, err := m.c.IssueIdentity(t.Context(), again); !refusedAs(err, api.Forbidden) {
				t.Errorf("%s, after the revocation: %v", m.cfg.Name, err)
			}
			again.Reissue = true
			if _, err := m.c.IssueIdentity(t.Context(), again); err != nil {
				t.Errorf("%s, issued again: %v", m.cfg.Name, err)
			}
		}
	}
	if _, err := b.c.IssueIdentity(t.Context(), requestFor(t, "/ns/shop/other")); err != nil {
		t.Errorf("another identity: %v", err)
	}
}
