package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/rpc"
)

// named starts the first node of a cluster whose trust domain has a name.
func named(t *testing.T) *machine {
	t.Helper()
	a := newMachine(t, "a")
	a.cfg.Init, a.cfg.TrustDomain = true, "prod.example.com"
	a.start()
	return a
}

// A cluster keeps the trust domain that it was formed with: in nodes that join, after a
// restart, after a rotation of the CA, and in whatever it issues.
func TestTrustDomainIsThatOfTheFounder(t *testing.T) {
	t.Parallel()
	a := named(t)
	b := newJoiner(t, "b", a.token(), a)
	b.start()
	again := newJoiner(t, "c", a.token(), a)
	again.cfg.TrustDomain = "prod.example.com"
	again.start()
	check := func(m *machine) {
		t.Helper()
		if got := m.c.TrustDomain(); got != "prod.example.com" || got == m.c.ClusterID() {
			t.Errorf("%s has the trust domain %q", m.cfg.Name, got)
		}
		var bundle *api.TrustBundle
		ok := pollUntil(waitLimit, func() bool { // the record comes with the log
			var err error
			bundle, err = m.c.Identities.Bundle(t.Context(), &api.Empty{})
			return err == nil
		})
		if !ok || bundle.TrustDomain != "prod.example.com" {
			t.Errorf("%s has the bundle of %v", m.cfg.Name, bundle)
		}
	}
	for _, m := range []*machine{a, b, again} {
		check(m)
	}
	waitVoters(t, 3, a)
	if leaf := mustIssue(t, a, "/ns/web"); leaf.URIs[0].String() != "spiffe://prod.example.com/ns/web" {
		t.Errorf("issued %v", leaf.URIs)
	}
	if err := a.rotate("ca"); err != nil {
		t.Fatal(err)
	}
	if leaf := mustIssue(t, a, "spiffe://prod.example.com/ns/web"); leaf.URIs[0].Host != "prod.example.com" {
		t.Errorf("issued %v after the rotation", leaf.URIs)
	}
	_, err := a.c.Identities.Issue(t.Context(), requestFor(t, "spiffe://"+a.c.ClusterID()+"/ns/web"))
	if !refusedAs(err, api.Invalid) || !contains(err, "prod.example.com") {
		t.Errorf("an ID of the cluster's ID: %v", err)
	}
	if issued, err := a.c.IssueProxy(t.Context(), proxyRequest(t)); err != nil ||
		issued.ID != "spiffe://prod.example.com/service/web" || issued.ServerID != "spiffe://prod.example.com/xds" {
		t.Errorf("a proxy's certificate: %+v, %v", issued, err)
	}
	b.stop()
	b.cfg.TrustDomain = "" // its flag, or none, makes no difference
	b.listen("127.0.0.1")
	b.start()
	check(b)
}

// proxyRequest requests a certificate for a proxy of the service web.
func proxyRequest(t *testing.T) *api.ProxyCertificateRequest {
	t.Helper()
	return &api.ProxyCertificateRequest{Service: "web", CSR: requestFor(t, "/web").CSR, TTL: 2 * time.Hour}
}

// A token of role issuer is bound to its path in the trust domain by its name.
func TestIssuerIsBoundToItsPathInANamedTrustDomain(t *testing.T) {
	t.Parallel()
	a := named(t)
	client := a.dialAsIssuer("/shop/**")
	issue := func(id string) error {
		_, err := rpc.Call[api.IdentityIssued](t.Context(), client, api.MethodIdentityIssue, requestFor(t, id))
		return err
	}
	if err := issue("spiffe://prod.example.com/shop/web"); err != nil {
		t.Error(err)
	}
	if err := issue("/bank/web"); !refusedAs(err, api.Forbidden) {
		t.Errorf("a path of another: %v", err)
	}
	mustIssue(t, a, "/bank/web")
	list, err := rpc.Call[api.Identities](t.Context(), client, api.MethodIdentities, api.Empty{})
	if err != nil || len(*list) != 1 || (*list)[0].ID != "spiffe://prod.example.com/shop/web" {
		t.Errorf("it lists %v, %v", list, err)
	}
}

// A node that is started with another name is refused, and says what to do. It does
// not become a member.
func TestAnotherTrustDomainIsRefused(t *testing.T) {
	t.Parallel()
	a := named(t)
	says := func(err error) {
		t.Helper()
		for _, want := range []string{"--trust-domain other.example", "prod.example.com", "cannot be changed", "leave the flag out"} {
			if !contains(err, want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
	}
	b := newJoiner(t, "b", a.token(), a)
	b.cfg.TrustDomain = "other.example"
	says(b.refused(bootstrap.ErrRefused))
	if n := len(a.c.Directory.Members()); n != 1 {
		t.Errorf("%d members", n)
	}
	b.cfg.TrustDomain = ""
	b.listen("127.0.0.1")
	b.start()

	a.stop()
	a.listen("127.0.0.1")
	a.cfg.TrustDomain = "other.example"
	says(a.refused(bootstrap.ErrTrustDomain))
	// A cluster without a name has its ID, and gets none later.
	z := startSingle(t, "z")
	id := z.c.ClusterID()
	z.stop()
	z.listen("127.0.0.1")
	z.cfg.TrustDomain = "other.example"
	if err := z.refused(bootstrap.ErrTrustDomain); !contains(err, "has the trust domain "+id) {
		t.Error(err)
	}
}

func TestExpectedNodesAgreeOnTheTrustDomain(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "b", "c")
	for _, m := range all {
		m.cfg.TrustDomain = "prod.example.com"
	}
	startAll(t, all)
	for _, m := range all {
		if got := m.c.TrustDomain(); got != "prod.example.com" {
			t.Errorf("%s has the trust domain %q", m.cfg.Name, got)
		}
	}
	differ := expectingMachines(t, "d", "e")
	differ[0].cfg.TrustDomain = "prod.example.com"
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	got := make(chan error, len(differ))
	for _, m := range differ {
		go func() { got <- m.open(ctx) }()
	}
	for range differ {
		if err := <-got; !errors.Is(err, bootstrap.ErrTrustDomain) || !strings.Contains(err.Error(), "start all with the same name") {
			t.Errorf("got %v", err)
		}
	}
}
