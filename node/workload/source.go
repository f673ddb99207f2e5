// Package workload keeps the X.509 SVIDs that a node holds itself: those that it
// presents for the services it stands in for, and those that it hands to the
// workloads beside it by the SPIFFE Workload API. The keys are made here and
// leave the process only to the workload that they belong to.
//
// A Source renews each SVID at about half of its life, at once when the cluster's CA
// changes, and gives it up when it expires or is revoked. It asks for nothing that
// nobody holds.
//
//	source := workload.New(workload.Config{Issue: c.IssueIdentity, Revoked: c.Identities.Revoked, Log: log})
//	source.SetRoots(roots) // and whenever they change
//	hold, err := source.Hold(workload.Identity{ID: "/service/web"})
//	...
//	svid, changed, err := hold.Get() // at each handshake, or again when changed is closed
//	...
//	hold.Release()
package workload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/api"
)

// Errors of Hold and Get.
var (
	// ErrFull means that a Source holds as many identities as it may.
	ErrFull = errors.New("too many identities are held on this node")
	// ErrNone wraps why there is no valid SVID now.
	ErrNone = errors.New("no certificate")
	// ErrPending is why there is none before the first answer.
	ErrPending = errors.New("it was not issued yet")
	// ErrReleased means that the hold was released or the Source closed.
	ErrReleased = errors.New("the identity is not held any more")
)

const (
	// DefaultMax is how many identities a Source keeps: about 10 KiB each, and two
	// certificates an hour in the cluster's records with the default lifetime.
	DefaultMax = 1024
	// maxIssuing bounds the requests to the leader at a time.
	maxIssuing = 4
	// issueTimeout bounds one request, which waits for a leader.
	issueTimeout = 15 * time.Second
	// The pause after a failed request, which doubles, and the longest.
	firstPause, longestPause = time.Second, time.Minute
	// longestClockPause is the longest pause while this node's clock is so far ahead that
	// certificates have ended when they arrive: each is recorded by the cluster until
	// long after its end.
	longestClockPause = 16 * time.Minute
	// spread is the largest part of a wait by which it is longer or shorter, so that
	// nodes that started together do not ask together.
	spread = 0.1
)

// Config has what a Source needs.
type Config struct {
	// Issue gets a certificate from the leader. Required.
	Issue func(ctx context.Context, req *api.IdentityRequest) (*api.IdentityIssued, error)
	// TrustDomain is the cluster's. Required.
	TrustDomain string
	// Revoked reports whether a certificate was revoked. Required.
	Revoked func(leaf *x509.Certificate) bool
	// Max bounds the identities; 0: DefaultMax.
	Max int
	// Log is required.
	Log *slog.Logger
}

// Identity says what a certificate is to have.
type Identity struct {
	// ID is a SPIFFE ID of the cluster's trust domain, or its path alone.
	ID  string
	DNS []string
	TTL time.Duration // 0: trust.SVIDLifetime
	// Reissue requests another certificate after one was revoked. Without it there is
	// none as long as the cluster records the revoked one.
	Reissue bool
}

// key identifies equal identities, which share a certificate.
func (i Identity) key() string {
	return fmt.Sprintf("%s %v %v %s", i.ID, i.TTL, i.Reissue, strings.Join(i.DNS, ","))
}

// SVID is an X.509 SVID with its key and what verifies its peers. It is immutable.
type SVID struct {
	ID      string          // the SPIFFE ID in full
	Cert    tls.Certificate // the leaf first, then intermediates; Leaf is set
	Roots   *x509.CertPool  // those of Bundle
	Bundle  [][]byte        // the trust bundle, DER, the newest first
	Expires time.Time
}

// Source keeps SVIDs. Its methods are safe for concurrent use.
type Source struct {
	cfg     Config
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	issuing chan struct{} // a token for each request in flight

	mu       sync.Mutex
	closed   bool
	bundle   bundle
	held     map[string]*entry // by Identity.key
	failures uint64
	issued   uint64
}

// bundle is the trust bundle in force.
type bundle struct {
	ders    [][]byte
	pool    *x509.CertPool // nil: not known yet
	keyID   []byte         // subject key ID of the CA that signs now
	changed chan struct{}
}

// New returns a Source that holds nothing. Close ends it.
func New(cfg Config) *Source {
	if cfg.Max == 0 {
		cfg.Max = DefaultMax
	}
	s := &Source{cfg: cfg, issuing: make(chan struct{}, maxIssuing), held: map[string]*entry{}}
	s.bundle.changed = make(chan struct{})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close stops the renewals and waits for requests in flight. Holds then give
// ErrReleased.
func (s *Source) Close() {
	s.mu.Lock()
	s.closed = true
	for _, e := range s.held {
		e.end()
	}
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}

// Hold is one user's claim to an SVID. Its methods are safe for concurrent use.
type Hold struct {
	source  *Source
	entry   *entry
	release sync.Once
}

// Hold begins to keep the SVID of an identity, or joins those who hold it. It does
// not wait for the certificate. ErrFull means that the bound is reached.
func (s *Source) Hold(i Identity) (*Hold, error) {
	i.DNS = slices.Clone(i.DNS)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrReleased
	}
	e, ok := s.held[i.key()]
	if !ok {
		if len(s.held) >= s.cfg.Max && !s.evict() {
			return nil, fmt.Errorf("%w: %d", ErrFull, s.cfg.Max)
		}
		e = s.newEntry(i)
		s.held[i.key()] = e
		s.running.Go(e.run)
	}
	e.users++
	return &Hold{source: s, entry: e}, nil
}

// evict drops an SVID that nobody uses now. The caller holds s.mu.
func (s *Source) evict() bool {
	for _, e := range s.held {
		if e.users == 0 {
			e.drop()
			return true
		}
	}
	return false
}

// Get returns the SVID that is valid now, and a channel that is closed when there is
// another one, none any more, or one for the first time. Without an SVID err wraps
// ErrNone and says why; after Release it is ErrReleased and changed is nil.
func (h *Hold) Get() (svid *SVID, changed <-chan struct{}, err error) {
	s, e := h.source, h.entry
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.ended:
		return nil, nil, ErrReleased
	case e.svid == nil || !time.Now().Before(e.svid.Expires):
		return nil, e.changed, fmt.Errorf("%w of %s: %w", ErrNone, e.identity.ID, e.why)
	}
	return e.svid, e.changed, nil
}

// Release gives the claim up. The SVID stays until its next renewal, for a workload
// that is restarted.
func (h *Hold) Release() {
	h.release.Do(func() {
		h.source.mu.Lock()
		defer h.source.mu.Unlock()
		h.entry.users--
	})
}

// SetRoots replaces the trust bundle: certificates that end a chain, DER, the newest
// first. SVIDs of an earlier CA are renewed at once.
func (s *Source) SetRoots(ders [][]byte) error {
	next := bundle{ders: ders, pool: x509.NewCertPool(), changed: make(chan struct{})}
	for i, der := range ders {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("trust bundle: %w", err)
		}
		if i == 0 {
			next.keyID = cert.SubjectKeyId
		}
		next.pool.AddCert(cert)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.EqualFunc(s.bundle.ders, ders, slices.Equal) {
		return nil
	}
	close(s.bundle.changed)
	s.bundle = next
	for _, e := range s.held {
		if e.svid != nil {
			svid := *e.svid
			svid.Bundle, svid.Roots = next.ders, next.pool
			e.set(&svid)
		}
		e.wakeUp()
	}
	return nil
}

// Roots returns the trust bundle and a channel that is closed when it changes.
func (s *Source) Roots() (ders [][]byte, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bundle.ders, s.bundle.changed
}

// TrustDomain returns the trust domain of all identities.
func (s *Source) TrustDomain() string { return s.cfg.TrustDomain }

// Recheck gives up the SVIDs that were revoked. It does not block.
func (s *Source) Recheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.held {
		if e.svid != nil && s.cfg.Revoked(e.svid.Cert.Leaf) {
			e.set(nil)
			e.why = errRevoked
			e.wakeUp()
		}
	}
}

var errRevoked = errors.New("it was revoked")

// Stats are the counts of a Source.
type Stats struct {
	Held, Max int
	Missing   int // held by someone, without a valid SVID
	Issued    uint64
	Failures  uint64 // requests that gave no certificate
	// Remaining is the time to the first end of a certificate that someone holds;
	// less than 0 if Held of these is 0.
	Remaining time.Duration
	// Late says which certificates have less than a quarter of their lives left, or
	// are missing, and why; at most maxLate.
	Late []string
}

// maxLate bounds Stats.Late.
const maxLate = 8

// Stats returns the counts.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	st := Stats{Held: len(s.held), Max: s.cfg.Max, Issued: s.issued, Failures: s.failures, Remaining: -1}
	for _, e := range s.held {
		if e.users == 0 {
			continue
		}
		left := time.Duration(0)
		if e.svid != nil {
			left = max(0, e.svid.Expires.Sub(now))
		}
		if left == 0 {
			st.Missing++
		}
		if st.Remaining < 0 || left < st.Remaining {
			st.Remaining = left
		}
		if text := e.lateness(now); text != "" && len(st.Late) < maxLate {
			st.Late = append(st.Late, text)
		}
	}
	slices.Sort(st.Late)
	return st
}
