// Package svid puts Certificates in force that come from SPIFFE: those that the
// cluster's CA issues to this node for a workload identity, and those that an agent on
// its machine gives through the SPIFFE Workload API. Each comes with a trust bundle, which
// Listeners and Services verify their peers by (caRef).
//
//	m := svid.New(svid.Config{Held: source, Apply: followed.Apply, Log: log})
//	m.Apply(set, changes) // of resources; passes them on with certificates and bundles
//	...
//	m.Close()
//
// A resource is never changed: certificates, keys and bundles are added to a copy of its
// spec on the way to the data plane of this node, and are stored nowhere else. While its
// source is away or gives nothing usable, the last certificate stays in force until it
// expires; Problems reports that. Without a certificate the data plane has none, and
// without a bundle it trusts nobody.
package svid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"penstock/node/workload"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// kindCertificate is the kind of the resources with a source.
const kindCertificate = "Certificate"

// applyPause is the least time between two contents of a Certificate in force: a
// source that never stops talking does not keep the data plane busy.
const applyPause = time.Second

// logPause is the least time between two lines about one fault, whose text may change.
const logPause = time.Minute

var (
	// errPending: the source has said nothing yet.
	errPending = errors.New("its source has not answered yet")
	errNoCA    = errors.New("this node is in no cluster (--dev), so there is no CA for it")
)

// Config is the configuration of a Manager.
type Config struct {
	// Held keeps the certificates of the cluster's CA; nil: the node is in no cluster.
	Held *workload.Source
	// Apply puts changes in force on this node. Required.
	Apply func(set *validate.Set, changes []resource.Change)
	// Log gets each fault once, and that it is gone. Required.
	Log *slog.Logger
	// DataDir is the node's data folder, in which a socket is not an agent's; "": there is none.
	DataDir string
	// Backoff gives the pauses between attempts to reach an agent; nil: 1 s, 2 s, up to 30 s.
	Backoff workloadapi.BackoffStrategy
}

// Manager keeps what Certificates get from their sources. Its methods are safe for
// concurrent use.
type Manager struct {
	cfg     Config
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	// applying is held while changes are put in force, in their order.
	applying sync.Mutex

	mu      sync.Mutex
	set     *validate.Set                    // of the last Apply
	entries map[string]*entry                // by Certificate
	users   map[resource.Key]resource.Object // those with a caRef, as users wrote them
}

// entry is a Certificate with a source.
type entry struct {
	m      *Manager
	spec   *resource.Certificate // with defaults; its source does not change
	ctx    context.Context       // ends when the Certificate has another source, or is gone
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: next has changed

	// Guarded by Manager.mu.
	object resource.Object // as the user wrote it
	next   content         // as learned last
	now    content         // in force
	fault  error           // why the source gives nothing else; nil: it does
	logged time.Time       // when a fault was logged last
}

// content is what a source gives.
type content struct {
	chain, key string    // PEM; "": there is no certificate
	until      time.Time // the end of the certificate
	bundle     *resource.CertificateBundle
}

func (c *content) equal(other *content) bool {
	return c.chain == other.chain && (c.bundle == nil) == (other.bundle == nil) && (c.bundle == nil || *c.bundle == *other.bundle)
}

// New returns a Manager without Certificates. Close ends it.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, entries: map[string]*entry{}, users: map[resource.Key]resource.Object{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Close stops the goroutines that talk to sources, and waits for them. Nothing is put in
// force afterwards.
func (m *Manager) Close() {
	m.mu.Lock() // so that start, which holds it too, adds nothing to running meanwhile
	m.cancel()
	m.mu.Unlock()
	m.running.Wait()
}

// Apply puts changes of resources, which set already contains, in force, with what
// their sources gave.
func (m *Manager) Apply(set *validate.Set, changes []resource.Change) {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.cfg.Apply(set, m.overlay(set, changes))
}

// overlay records changes and returns them with what sources gave.
func (m *Manager) overlay(set *validate.Set, changes []resource.Change) []resource.Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set = set
	out := slices.Clone(changes)
	resourced := map[string]bool{} // Certificates with another source than before
	for i := range changes {
		if ch := &changes[i]; ch.Kind == kindCertificate {
			resourced[ch.Name] = m.putCertificate(ch)
			if e := m.entries[ch.Name]; e != nil {
				out[i] = e.fill()
			}
		}
	}
	changed := map[resource.Key]bool{}
	for i := range changes {
		ch := &changes[i]
		changed[ch.Key] = true
		if u, ok := ch.Spec.(resource.BundleUser); ok && !ch.Delete {
			if name, _ := u.BundleRef(); name != "" {
				m.users[ch.Key] = ch.Object
				out[i] = m.fillUser(ch.Object)
				continue
			}
		}
		delete(m.users, ch.Key)
	}
	for key, o := range m.users {
		if name, _ := o.Spec.(resource.BundleUser).BundleRef(); resourced[name] && !changed[key] {
			out = append(out, m.fillUser(o))
		}
	}
	return out
}

// putCertificate records a change of a Certificate, and reports whether it has another
// source than before. The caller holds m.mu.
func (m *Manager) putCertificate(ch *resource.Change) (other bool) {
	old := m.entries[ch.Name]
	spec, ok := ch.Spec.(*resource.Certificate)
	sourced := ok && !ch.Delete && spec.HasBundle()
	if sourced && old != nil && resource.Same(old.spec, spec.WithDefaults()) {
		old.object = ch.Object
		return false
	}
	if old != nil {
		old.cancel()
		delete(m.entries, ch.Name)
	}
	if sourced {
		m.entries[ch.Name] = m.start(ch.Object, spec.WithDefaults())
	}
	return old != nil || sourced
}

// start makes an entry and runs it. The caller holds m.mu.
func (m *Manager) start(o resource.Object, spec *resource.Certificate) *entry {
	e := &entry{m: m, spec: spec, object: o, wake: make(chan struct{}, 1), fault: errPending}
	e.ctx, e.cancel = context.WithCancel(m.ctx)
	if m.ctx.Err() != nil {
		return e
	}
	m.running.Go(e.apply)
	switch {
	case spec.WorkloadAPI != nil:
		m.running.Go(e.followAgent)
	case m.cfg.Held != nil:
		m.running.Go(e.followCluster)
	default:
		e.fault = errNoCA
	}
	return e
}

// fill returns the change that puts a Certificate with its content in force. The caller
// holds Manager.mu.
func (e *entry) fill() resource.Change {
	if e.now.chain == "" {
		return resource.Delete(e.object.Key)
	}
	o, made := e.object, *e.object.Spec.(*resource.Certificate)
	made.Cert, made.Key = e.now.chain, resource.Secret(e.now.key)
	o.Spec = &made
	return resource.Put(o)
}

// fillUser returns the change that puts a user of a bundle in force. The caller holds
// m.mu.
func (m *Manager) fillUser(o resource.Object) resource.Change {
	u := o.Spec.(resource.BundleUser)
	name, _ := u.BundleRef()
	var bundle *resource.CertificateBundle
	if e := m.entries[name]; e != nil {
		bundle = e.now.bundle
	}
	o.Spec = u.WithBundle(bundle)
	return resource.Put(o)
}

// learn records what a source gave, or why it gives nothing, and logs changes.
func (e *entry) learn(c *content, fault error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	log := e.m.cfg.Log.With("certificate", e.object.Name)
	if c != nil && !e.next.equal(c) {
		if c.chain != "" && c.chain != e.next.chain {
			log.Info("got a certificate", "expires", c.until.UTC())
		}
		e.next = *c
		e.wakeUp()
	}
	before := e.fault
	e.fault = fault
	switch {
	case fault == nil && before != nil && !errors.Is(before, errPending):
		e.logged = time.Time{}
		log.Info("the certificate's source answers again")
	case fault != nil && (before == nil || before.Error() != fault.Error()) && time.Since(e.logged) >= logPause:
		e.logged = time.Now()
		log.Warn("cannot get a certificate; "+e.inForce(), "error", fault)
	}
}

// inForce says what is in force despite a fault. The caller holds Manager.mu.
func (e *entry) inForce() string {
	if e.next.chain == "" {
		return "there is none"
	}
	return "the previous one stays in use until it expires at " + e.next.until.UTC().Format(time.RFC3339)
}

func (e *entry) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// apply puts what was learned in force, and takes a certificate out of force that has
// expired, until the entry ends.
func (e *entry) apply() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if e.update() {
			select {
			case <-time.After(applyPause):
			case <-e.ctx.Done():
				return
			}
		}
		wait := e.expire(time.Now())
		timer.Reset(wait)
		select {
		case <-e.wake:
		case <-timer.C:
		case <-e.ctx.Done():
			return
		}
	}
}

// longestWait bounds the wait for the end of a certificate, so that a change of the clock
// is noticed.
const longestWait = time.Minute

// expire removes an expired certificate from next, and returns when to look again. The
// bundle stays: it verifies others.
func (e *entry) expire(now time.Time) time.Duration {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if e.next.chain == "" {
		return longestWait
	}
	if left := e.next.until.Sub(now); left > 0 {
		return min(left, longestWait)
	}
	e.next.chain, e.next.key = "", ""
	e.m.cfg.Log.Error("a certificate has expired, and its source gave no new one", "certificate", e.object.Name, "expired", e.next.until.UTC())
	if e.fault == nil {
		e.fault = fmt.Errorf("it expired at %s, and its source gave no new one", e.next.until.UTC().Format(time.RFC3339))
	}
	e.wakeUp()
	return longestWait
}

// update puts what is next in force, and reports whether there was anything.
func (e *entry) update() bool {
	m := e.m
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	if e.ctx.Err() != nil || e.now.equal(&e.next) {
		m.mu.Unlock()
		return false
	}
	bundles := e.now.bundle
	e.now = e.next
	set, changes := m.set, []resource.Change{e.fill()}
	if next := e.now.bundle; bundles == nil || next == nil || *bundles != *next {
		for _, key := range slices.SortedFunc(maps.Keys(m.users), resource.Key.Compare) {
			o := m.users[key]
			if name, _ := o.Spec.(resource.BundleUser).BundleRef(); name == e.object.Name {
				changes = append(changes, m.fillUser(o))
			}
		}
	}
	m.mu.Unlock()
	m.cfg.Apply(set, changes)
	return true
}

// The sources of Certificates.
const (
	SourceIdentity    = "identity"
	SourceWorkloadAPI = "workloadAPI"
)

// State is the state of a Certificate with a source.
type State struct {
	Name   string
	Source string // SourceIdentity or SourceWorkloadAPI
	// Fault is why the source gives nothing else; nil: it does.
	Fault error
	Until time.Time // of the certificate in force; zero: there is none
}

// State returns all Certificates with a source, sorted by name.
func (m *Manager) State() []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]State, 0, len(m.entries))
	for _, e := range m.entries {
		all = append(all, e.state())
	}
	slices.SortFunc(all, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Of returns the state of one Certificate; not ok: it has no source.
func (m *Manager) Of(name string) (s State, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[name]
	if !ok {
		return State{}, false
	}
	return e.state(), true
}

// state returns the state of an entry. The caller holds Manager.mu.
func (e *entry) state() State {
	s := State{Name: e.object.Name, Source: SourceIdentity, Fault: e.fault}
	if e.spec.WorkloadAPI != nil {
		s.Source = SourceWorkloadAPI
	}
	if e.now.chain != "" {
		s.Until = e.now.until
	}
	return s
}

// maxProblems bounds the list of Problems.
const maxProblems = 100

// Problems describes the Certificates whose source gives nothing, on this node, which
// has that name; at most 100.
func (m *Manager) Problems(node string) (list []string) {
	for _, s := range m.State() {
		if s.Fault == nil || len(list) == maxProblems {
			continue
		}
		held := "there is no certificate"
		if !s.Until.IsZero() {
			held = "the previous one stays in use until " + s.Until.UTC().Format(time.RFC3339)
		}
		list = append(list, fmt.Sprintf("node %s: Certificate/%s: %s: %v", node, s.Name, held, s.Fault))
	}
	return list
}
