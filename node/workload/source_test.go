package workload

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/trust"
)

// issuer stands for the leader. Its fields are for one goroutine at a time, except
// during Issue.
type issuer struct {
	behind time.Duration // of the issuer's clock

	mu      sync.Mutex
	ca      *trust.CA
	err     error       // of each request
	at      []time.Time // of each request
	revoked map[string]bool
	log     testkit.Log
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	ca, err := trust.NewCA(trust.NewClusterID(), "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{ca: ca, revoked: map[string]bool{}}
}

func (i *issuer) issue(_ context.Context, req *api.IdentityRequest) (*api.IdentityIssued, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at = append(i.at, time.Now())
	if i.err != nil {
		return nil, i.err
	}
	if len(i.revoked) > 0 && !req.Reissue {
		return nil, api.Errorf(api.Forbidden, "revoked")
	}
	key, err := trust.CheckProxyRequest(req.CSR)
	if err != nil {
		return nil, err
	}
	id := &url.URL{Scheme: "spiffe", Host: i.ca.ClusterID(), Path: strings.TrimPrefix(req.ID, "spiffe://"+i.ca.ClusterID())}
	ttl := req.TTL
	if ttl == 0 {
		ttl = trust.SVIDLifetime
	}
	leaf, err := i.ca.IssueSVID(key, trust.SVID{ID: id, DNS: req.DNS, TTL: ttl}, time.Now().Add(-i.behind))
	if err != nil {
		return nil, err
	}
	return &api.IdentityIssued{
		ID: id.String(), Certificate: leaf.Raw, Chain: i.ca.Intermediates(), Roots: i.ca.Roots(), Expires: leaf.NotAfter,
	}, nil
}

func (i *issuer) isRevoked(leaf *x509.Certificate) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.revoked[leaf.SerialNumber.Text(16)]
}

// fail makes each request fail from now on, or succeed with nil.
func (i *issuer) fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.err = err
}

func (i *issuer) requests() []time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.at)
}

// newSource makes a Source of an issuer, with its trust bundle.
func (i *issuer) newSource(t *testing.T, limit int) *Source {
	t.Helper()
	s := New(Config{Issue: i.issue, Revoked: i.isRevoked, Max: limit, Log: slog.New(slog.NewTextHandler(&i.log, nil))})
	t.Cleanup(s.Close)
	if err := s.SetRoots(i.ca.Roots()); err != nil {
		t.Fatal(err)
	}
	return s
}

func mustHold(t *testing.T, s *Source, i Identity) *Hold {
	t.Helper()
	h, err := s.Hold(i)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func mustGet(t *testing.T, h *Hold) (*SVID, <-chan struct{}) {
	t.Helper()
	synctest.Wait()
	svid, changed, err := h.Get()
	if err != nil {
		t.Fatal(err)
	}
	return svid, changed
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestRenewalIsAtHalfOfTheLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		s := i.newSource(t, 0)
		const n = 40
		var holds []*Hold
		for k := range n {
			holds = append(holds, mustHold(t, s, Identity{ID: fmt.Sprintf("/w/%d", k), TTL: 100 * time.Minute, DNS: []string{"w.example"}}))
		}
		first, changed := mustGet(t, holds[0])
		if leaf := first.Cert.Leaf; first.ID != "spiffe://"+i.ca.ClusterID()+"/w/0" || leaf.DNSNames[0] != "w.example" {
			t.Errorf("%s, %v", first.ID, leaf.DNSNames)
		}
		if _, err := first.Cert.Leaf.Verify(x509.VerifyOptions{Roots: first.Roots, CurrentTime: time.Now()}); err != nil {
			t.Error(err)
		}
		pass(44 * time.Minute)
		if got := len(i.requests()); got != n || isClosed(changed) {
			t.Fatalf("%d requests before half-life less a tenth, want %d", got, n)
		}
		start := i.requests()[0]
		pass(12 * time.Minute)
		at := i.requests()[n:]
		if len(at) != n {
			t.Fatalf("%d renewals, want %d", len(at), n)
		}
		if spread := slices.MaxFunc(at, time.Time.Compare).Sub(slices.MinFunc(at, time.Time.Compare)); spread < 3*time.Minute {
			t.Errorf("all renew within %v", spread)
		}
		for _, when := range at {
			if after := when.Sub(start); after < 45*time.Minute-time.Second || after > 55*time.Minute+time.Second {
				t.Errorf("a renewal after %v", after)
			}
		}
		second, _ := mustGet(t, holds[0])
		if !isClosed(changed) || second.Cert.Leaf.Equal(first.Cert.Leaf) || second.Cert.PrivateKey == first.Cert.PrivateKey {
			t.Error("the same certificate or key")
		}
		if st := s.Stats(); st.Held != n || st.Issued != 2*n || st.Missing != 0 || len(st.Late) != 0 || st.Remaining < 80*time.Minute {
			t.Errorf("%+v", st)
		}
	})
}

// A node whose clock is ahead by more than the life of a certificate asks ever more rarely,
// since the cluster records each of them, and says by how much the clock is off.
func TestAClockThatIsAheadIsToldAndAsksRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		i.behind = 3*time.Hour + 2*time.Second // certificates have whole seconds
		s := i.newSource(t, 0)
		h := mustHold(t, s, Identity{ID: "/web"})
		pass(3 * time.Hour)
		if n := len(i.requests()); n < 10 || n > 25 {
			t.Errorf("%d requests in three hours", n)
		}
		if _, _, err := h.Get(); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "the clock of this node is 3h0m0s ahead") {
			t.Errorf("%v", err)
		}
		if text := i.log.String(); strings.Count(text, "clock is ahead") != 1 || !strings.Contains(text, "ahead=3h0m0s") {
			t.Errorf("the log says %s", text)
		}
		i.mu.Lock()
		i.behind = 0
		i.mu.Unlock()
		pass(longestClockPause + longestClockPause/10 + time.Second)
		mustGet(t, h)
	})
}

// While there is no leader the SVID is used to its end and then given up; it comes
// back when there is one.
func TestLeaderIsLostUntilAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		s := i.newSource(t, 0)
		h := mustHold(t, s, Identity{ID: "/web"})
		first, changed := mustGet(t, h)
		i.fail(errors.New("no leader"))
		pass(44 * time.Minute)
		if st := s.Stats(); len(st.Late) != 0 || st.Failures == 0 || i.log.String() != "" {
			t.Errorf("more than a quarter is left: %+v, %s", st, &i.log)
		}
		pass(15 * time.Minute)
		if svid, _ := mustGet(t, h); svid != first {
			t.Error("another one")
		}
		st := s.Stats()
		if len(st.Late) != 1 || !strings.Contains(st.Late[0], "no leader") || st.Remaining > time.Minute || st.Missing != 0 {
			t.Errorf("%+v", st)
		}
		if n := strings.Count(i.log.String(), "cannot renew"); n != 1 {
			t.Errorf("%d warnings: %s", n, &i.log)
		}
		if n := len(i.requests()); n > 60 {
			t.Errorf("%d requests in half an hour: no back-off", n)
		}
		pass(2 * time.Minute)
		_, again, err := h.Get()
		if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "no leader") || !isClosed(changed) {
			t.Errorf("after the end: %v", err)
		}
		if st := s.Stats(); st.Missing != 1 || st.Remaining != 0 {
			t.Errorf("%+v", st)
		}
		i.fail(nil)
		pass(longestPause + longestPause/10 + time.Second)
		if mustGet(t, h); !isClosed(again) {
			t.Error("nobody hears of the next one")
		}
		if st := s.Stats(); st.Missing != 0 || len(st.Late) != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestRotationRenewsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		s := i.newSource(t, 0)
		h := mustHold(t, s, Identity{ID: "/web"})
		first, _ := mustGet(t, h)
		_, changed := s.Roots()
		pass(5 * time.Minute)
		old := i.ca
		var err error
		if i.ca, err = old.Next(time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := s.SetRoots(i.ca.Roots()); err != nil {
			t.Fatal(err)
		}
		second, _ := mustGet(t, h)
		if ders, _ := s.Roots(); !isClosed(changed) || len(ders) != 2 || len(second.Bundle) != 2 {
			t.Errorf("%d roots, %d in the SVID", len(ders), len(second.Bundle))
		}
		leaf := second.Cert.Leaf
		if leaf.Equal(first.Cert.Leaf) || !bytes.Equal(leaf.AuthorityKeyId, i.ca.Certificate().SubjectKeyId) {
			t.Error("it was not renewed")
		}
		earlier, chain := x509.NewCertPool(), x509.NewCertPool()
		earlier.AddCert(old.Certificate())
		for _, der := range second.Cert.Certificate[1:] {
			cert, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			chain.AddCert(cert)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: earlier, Intermediates: chain, CurrentTime: time.Now()}); err != nil {
			t.Errorf("a peer with the previous bundle: %v", err)
		}
		n := len(i.requests())
		if err := s.SetRoots(i.ca.Retire().Roots()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if svid, _ := mustGet(t, h); len(svid.Bundle) != 1 || !svid.Cert.Leaf.Equal(leaf) || len(i.requests()) != n {
			t.Errorf("after the end of the previous CA: %d roots, %d requests", len(svid.Bundle), len(i.requests())-n)
		}
	})
}

func TestRevokedSVIDIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		s := i.newSource(t, 0)
		stays, again := mustHold(t, s, Identity{ID: "/web"}), mustHold(t, s, Identity{ID: "/web", Reissue: true})
		first, changed := mustGet(t, stays)
		other, _ := mustGet(t, again)
		i.mu.Lock()
		i.revoked[first.Cert.Leaf.SerialNumber.Text(16)] = true
		i.revoked[other.Cert.Leaf.SerialNumber.Text(16)] = true
		i.mu.Unlock()
		s.Recheck()
		if _, _, err := stays.Get(); !errors.Is(err, ErrNone) || !isClosed(changed) {
			t.Errorf("still there: %v", err)
		}
		pass(10 * time.Minute)
		if _, _, err := stays.Get(); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("it got another one: %v", err)
		}
		if svid, _ := mustGet(t, again); svid.Cert.Leaf.Equal(other.Cert.Leaf) {
			t.Error("the revoked one")
		}
	})
}

// Nothing is requested for an identity that nobody holds, and the bound counts what
// is held; a restarted workload gets the same certificate.
func TestUnusedIdentitiesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		s := i.newSource(t, 2)
		a, b := mustHold(t, s, Identity{ID: "/a"}), mustHold(t, s, Identity{ID: "/b"})
		if _, err := s.Hold(Identity{ID: "/c"}); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		first, _ := mustGet(t, a)
		a.Release()
		a.Release()
		a = mustHold(t, s, Identity{ID: "/a"})
		if svid, _ := mustGet(t, a); svid != first {
			t.Error("another certificate")
		}
		a.Release()
		c := mustHold(t, s, Identity{ID: "/c"})
		mustGet(t, c)
		if _, _, err := a.Get(); !errors.Is(err, ErrReleased) {
			t.Errorf("the one that made room: %v", err)
		}
		b.Release()
		n := len(i.requests())
		pass(40 * time.Minute)
		if st := s.Stats(); st.Held != 1 || len(i.requests()) != n+1 {
			t.Errorf("%+v, %d requests", st, len(i.requests())-n)
		}
		s.Close()
		if _, _, err := c.Get(); !errors.Is(err, ErrReleased) {
			t.Errorf("after Close: %v", err)
		}
		if _, err := s.Hold(Identity{ID: "/d"}); !errors.Is(err, ErrReleased) {
			t.Errorf("after Close: %v", err)
		}
	})
}
