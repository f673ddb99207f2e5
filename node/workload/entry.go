package workload

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"penstock/node/api"
	"penstock/node/trust"
)

// entry is one identity. Its goroutine alone requests certificates; the fields after
// wake belong to Source.mu.
type entry struct {
	source   *Source
	identity Identity
	ctx      context.Context
	cancel   context.CancelFunc
	wake     chan struct{} // capacity 1

	users   int
	ended   bool
	svid    *SVID         // nil: none
	life    time.Duration // of svid, from when it arrived
	renewAt time.Time     // of svid
	why     error         // why there is none, or why it was not renewed; nil: it was
	changed chan struct{} // closed at each change of svid, and at the end
}

// newEntry makes an entry. The caller holds s.mu.
func (s *Source) newEntry(i Identity) *entry {
	e := &entry{source: s, identity: i, wake: make(chan struct{}, 1), why: ErrPending, changed: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(s.ctx)
	return e
}

// set replaces the SVID. The caller holds Source.mu.
func (e *entry) set(svid *SVID) {
	e.svid = svid
	close(e.changed)
	e.changed = make(chan struct{})
}

// end ends the entry for those who hold it. The caller holds Source.mu.
func (e *entry) end() {
	if !e.ended {
		e.ended = true
		close(e.changed)
		e.cancel()
	}
}

// drop forgets the entry. The caller holds Source.mu.
func (e *entry) drop() {
	delete(e.source.held, e.identity.key())
	e.end()
}

func (e *entry) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run requests certificates when they are due, until the entry ends.
func (e *entry) run() {
	var pause time.Duration // after a failure
	var notBefore time.Time // of the next request
	warned := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(e.nextAt(notBefore)))
		select {
		case <-timer.C:
		case <-e.wake:
			continue
		case <-e.ctx.Done():
			return
		}
		e.expire()
		now := time.Now()
		if now.Before(notBefore) || now.Before(e.dueAt()) {
			continue
		}
		if e.dropUnused() {
			return
		}
		err := e.renew()
		if err == nil {
			pause, warned = 0, false
			notBefore = time.Now().Add(firstPause) // if the bundle is newer than what the leader signs with
			continue
		}
		longest := longestPause
		if clock := (clockError{}); errors.As(err, &clock) {
			longest = longestClockPause
		}
		pause = min(max(firstPause, 2*pause), longest)
		notBefore = time.Now().Add(jitter(pause))
		warned = e.failed(err, warned)
	}
}

// dueAt returns when a certificate is to be requested: at half of its life, or now if
// there is none, or only one of an earlier CA.
func (e *entry) dueAt() time.Time {
	e.source.mu.Lock()
	defer e.source.mu.Unlock()
	keyID := e.source.bundle.keyID
	if e.svid == nil || keyID != nil && !bytes.Equal(e.svid.Cert.Leaf.AuthorityKeyId, keyID) {
		return time.Time{}
	}
	return e.renewAt
}

// nextAt returns when there is something to do: a request, or the end of the SVID.
func (e *entry) nextAt(notBefore time.Time) time.Time {
	at := e.dueAt()
	if at.Before(notBefore) {
		at = notBefore
	}
	e.source.mu.Lock()
	defer e.source.mu.Unlock()
	if e.svid != nil && e.svid.Expires.Before(at) {
		at = e.svid.Expires
	}
	return at
}

// expire gives up an SVID whose life is over.
func (e *entry) expire() {
	e.source.mu.Lock()
	defer e.source.mu.Unlock()
	if e.svid != nil && !time.Now().Before(e.svid.Expires) {
		e.set(nil)
	}
}

// dropUnused forgets the entry, at the time of its renewal, if nobody holds it.
func (e *entry) dropUnused() bool {
	e.source.mu.Lock()
	defer e.source.mu.Unlock()
	if e.users > 0 {
		return false
	}
	e.drop()
	return true
}

// failed records why there is no new certificate. It warns once, when less than a
// quarter of the life is left, and returns whether it has.
func (e *entry) failed(err error, warned bool) bool {
	e.source.mu.Lock()
	defer e.source.mu.Unlock()
	if e.ended {
		return warned
	}
	e.source.failures++
	pending := errors.Is(e.why, ErrPending)
	if e.why = err; pending {
		e.set(nil) // those who wait for the first answer have one
	}
	if clock := (clockError{}); errors.As(err, &clock) && !warned {
		e.source.cfg.Log.Warn("this node's clock is ahead: the certificates that it gets have ended when they arrive; set the clock",
			"identity", e.identity.ID, "ahead", clock.ahead, "expired", clock.expires.UTC())
		return true
	}
	if text := e.lateness(time.Now()); text != "" && !warned {
		e.source.cfg.Log.Warn("cannot renew a workload's certificate", "identity", e.identity.ID, "state", text)
		return true
	}
	return warned
}

// lateness says that less than a quarter of the life is left, or nothing, after a
// failure; "": neither. The caller holds Source.mu.
func (e *entry) lateness(now time.Time) string {
	switch {
	case e.why == nil || errors.Is(e.why, ErrPending):
		return ""
	case e.svid == nil || !now.Before(e.svid.Expires):
		return fmt.Sprintf("%s has no certificate: %v", e.identity.ID, e.why)
	case e.svid.Expires.Sub(now) < e.life/4:
		return fmt.Sprintf("%s expires at %s and cannot be renewed: %v", e.identity.ID, e.svid.Expires.Format(time.RFC3339), e.why)
	}
	return ""
}

// renew gets a certificate for a new key.
func (e *entry) renew() error {
	s := e.source
	select {
	case s.issuing <- struct{}{}:
		defer func() { <-s.issuing }()
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(e.ctx, issueTimeout)
	defer cancel()
	keyPEM, csr, err := trust.NewWorkloadRequest()
	if err != nil {
		return err
	}
	issued, err := s.cfg.Issue(ctx, &api.IdentityRequest{
		ID: e.identity.ID, CSR: csr, TTL: e.identity.TTL, DNS: e.identity.DNS, Reissue: e.identity.Reissue,
	})
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(trust.CertificatesPEM(append([][]byte{issued.Certificate}, issued.Chain...)...), keyPEM)
	if err != nil {
		return err
	}
	return e.adopt(issued, cert)
}

// clockError is the error of a certificate that ended before it arrived.
type clockError struct {
	ahead   time.Duration // of this node's clock, by when the leader issued the certificate
	expires time.Time
}

func (e clockError) Error() string {
	return fmt.Sprintf("the certificate ended at %s already: the clock of this node is %v ahead of the leader's: set it",
		e.expires.Format(time.RFC3339), e.ahead)
}

// adopt puts a certificate in force.
func (e *entry) adopt(issued *api.IdentityIssued, cert tls.Certificate) error {
	s := e.source
	now := time.Now()
	if !now.Before(issued.Expires) {
		return clockError{now.Sub(cert.Leaf.NotBefore.Add(trust.SVIDSkew)).Round(10 * time.Second), issued.Expires}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ended {
		return ErrReleased
	}
	if s.cfg.Revoked(cert.Leaf) {
		return errRevoked
	}
	s.issued++
	e.life = issued.Expires.Sub(now)
	e.renewAt, e.why = now.Add(jitter(e.life/2)), nil
	e.set(&SVID{ID: issued.ID, Cert: cert, Roots: s.bundle.pool, Bundle: s.bundle.ders, Expires: issued.Expires})
	return nil
}

// jitter returns a duration that differs from d by up to the part spread of it.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*spread*float64(d))
}
