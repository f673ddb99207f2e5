// Package kubernetes applies resources from the API server of a Kubernetes
// cluster: the custom resources of package crd, Kuma's MeshTCPRoute and objects of
// the Gateway API. One node does so, the leader:
//
//	m := kubernetes.New(kubernetes.Config{Leads: leads, Set: set, Apply: apply, ...})
//	go m.Run(ctx)
//
// It lists and watches the objects, compares what they say with the resources in
// force, applies the difference, and writes each object's status. An object with
// faults holds up no other one, and its last accepted version stays in force. What
// is not known deletes nothing: a resource is deleted only after a complete list
// that does not have its object.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"penstock/routing/formats/crd"
	"penstock/routing/kubeapi"
	"penstock/routing/provider"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Bounds.
const (
	MaxObjects = 20_000   // objects of all kinds together
	maxKiB     = 64 << 10 // KiB of the objects of one kind in one namespace
	maxAnswer  = 32 << 20 // bytes of one answer to a list, or of an event
	rate       = 20       // requests a second to the API server, beyond a burst of 50
	maxItems   = 500      // changes of one write to the store
	maxStatus  = 100      // status writes of one pass
	maxListed  = 100      // problems that status lists
)

// checkInterval is how often Run looks whether this node leads. rediscover is how
// often a session looks for kinds that the API server did not have.
const checkInterval, rediscover = time.Second, time.Minute

// Config configures New.
type Config struct {
	// Kubeconfig is the path of one; "": the service account of the pod.
	Kubeconfig string
	// Namespaces are those whose objects count; none: all.
	Namespaces []string
	// Selector is a label selector of Penstock's kinds and of Kuma's.
	Selector string
	// Controller is the controllerName of the GatewayClasses whose Gateways count.
	Controller string

	// Leads reports whether this node leads and has applied everything committed
	// before.
	Leads func() bool
	// Set returns the resources in force, with the index that they are of, and Await
	// waits for an index.
	Set   func() (*validate.Set, uint64)
	Await func(ctx context.Context, index uint64) error
	// Apply creates, changes and deletes resources, all or none. A refusal is an
	// *api.Error. It must fail if this node does not lead.
	Apply func(ctx context.Context, put []resource.Object, remove []resource.Key) error
	// Status returns the status of Gateway API objects in a set, as JSON. An object's
	// Version is the generation that the status observed.
	Status func(*validate.Set) func(o *resource.Object, since time.Time) []byte
	// Failed returns why this node cannot put a resource in force; "": it does.
	Failed func(resource.Key) string
	// Debounce is the least time between two passes. Default 500ms.
	Debounce time.Duration
	Log      *slog.Logger // nil: none
}

// State is what the manager does now.
type State struct {
	Leading, Synced             bool
	Objects, Refused            int
	Problems                    []string
	Applied, Failed             uint64 // writes to the store
	StatusWritten, StatusFailed uint64
	StatusConflicts             uint64
}

// Manager applies resources from Kubernetes. Create it with New.
type Manager struct {
	cfg Config
	mu  sync.Mutex
	now State
}

// New returns a manager that does nothing yet.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Debounce == 0 {
		cfg.Debounce = 500 * time.Millisecond
	}
	return &Manager{cfg: cfg}
}

// State returns what the manager does now. A nil manager does nothing.
func (m *Manager) State() State {
	if m == nil {
		return State{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.now
	s.Problems = slices.Clone(s.Problems)
	return s
}

func (m *Manager) update(change func(*State)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.now)
}

// Run works until ctx ends, while this node leads.
func (m *Manager) Run(ctx context.Context) {
	failures, logged := 0, ""
	for ctx.Err() == nil {
		if !m.cfg.Leads() {
			m.update(func(s *State) { s.Leading, s.Synced, s.Problems, s.Objects, s.Refused = false, false, nil, 0, 0 })
			failures, logged = 0, ""
			provider.Sleep(ctx, checkInterval)
			continue
		}
		m.update(func(s *State) { s.Leading = true })
		err := m.session(ctx)
		if err == nil || ctx.Err() != nil {
			failures, logged = 0, ""
			continue
		}
		if err.Error() != logged {
			logged = err.Error()
			m.cfg.Log.Warn("cannot read resources from Kubernetes; those in force stay", "error", err)
		}
		m.update(func(s *State) { s.Synced, s.Problems = false, []string{err.Error()} })
		provider.Sleep(ctx, provider.Backoff(failures))
		failures++
	}
}

func (m *Manager) connect(list []*source) (*kubeapi.Client, error) {
	groups := []kubeapi.Group{{Version: schema.GroupVersion{Group: crd.Group, Version: crd.Version}, Codecs: codecsOf(list)}}
	for _, s := range list {
		groups = append(groups, kubeapi.Group{Version: schema.GroupVersion{Group: s.group, Version: s.version}, Codecs: codecsOf(list)})
	}
	return kubeapi.Connect(kubeapi.Config{
		Kubeconfig: m.cfg.Kubeconfig, Timeout: 15 * time.Second, MaxBytes: maxAnswer, MaxObjects: maxKiB, Rate: rate, FirstRetry: time.Second,
		TooLarge: "narrow it by --kubernetes-namespaces or --kubernetes-selector",
		TooMany:  "the objects have more than 64 MiB: narrow them by --kubernetes-namespaces or --kubernetes-selector",
		NoKind:   "penstock kubernetes crds defines",
	}, groups...)
}

// discover returns the sources that the API server has.
func discover(ctx context.Context, client *kubeapi.Client) (found []*source, err error) {
	type list struct {
		Resources []struct{ Name, Kind string } `json:"resources"`
	}
	known := map[string]*list{} // nil: not served
	for _, s := range sources() {
		for _, version := range s.versions {
			path := "/apis/" + s.group + "/" + version
			if _, asked := known[path]; !asked {
				l := new(list)
				switch err := client.Get(ctx, path, l); {
				case apierrors.IsNotFound(err):
					l = nil
				case err != nil:
					return nil, client.Explain("get "+path, err)
				}
				known[path] = l
			}
			if l := known[path]; l != nil && s.resource == "" {
				for _, r := range l.Resources {
					if r.Kind == s.kind && s.resource == "" { // subresources follow
						s.version, s.resource = version, r.Name
						found = append(found, s)
					}
				}
			}
		}
	}
	return found, nil
}

var errNoKinds = errors.New("kubernetes: the API server has no kinds of " + crd.Group +
	": apply the output of penstock kubernetes crds, and allow Penstock to read them")

// session lists and watches while this node leads. It returns nil when it has to
// begin again.
func (m *Manager) session(ctx context.Context) error {
	first, err := m.connect(nil)
	if err != nil {
		return err
	}
	defer first.Close()
	found, err := discover(ctx, first)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found, func(s *source) bool { return s.group == crd.Group }) {
		return errNoKinds
	}
	client, err := m.connect(found)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	s := &session{Manager: m, client: client, objects: map[*source]map[kubeapi.Key]*object{}, noStatus: map[*source]bool{}}
	updates := make(chan update, 100)
	for _, src := range found {
		s.objects[src] = map[kubeapi.Key]*object{}
		for _, namespace := range m.namespaces(src) {
			f := &following{source: src, namespace: namespace}
			s.following = append(s.following, f)
			one := &kubeapi.Follower[*object]{
				Client: client, Kind: src.kindOf(m.cfg.Selector), Namespace: namespace,
				Send: func(ctx context.Context, u kubeapi.Update[*object]) bool {
					select {
					case updates <- update{u, f}:
						return true
					case <-ctx.Done():
						return false
					}
				},
			}
			wg.Go(func() { one.Run(ctx) })
		}
	}
	inForce := make(chan struct{}, 1)
	wg.Go(func() { m.watchSet(ctx, inForce) })
	return s.run(ctx, updates, inForce, len(found))
}

func (m *Manager) namespaces(s *source) []string {
	if s.cluster || len(m.cfg.Namespaces) == 0 {
		return []string{""}
	}
	return slices.Compact(slices.Sorted(slices.Values(m.cfg.Namespaces)))
}

// watchSet tells of each change of the resources in force.
func (m *Manager) watchSet(ctx context.Context, changed chan<- struct{}) {
	for {
		_, index := m.cfg.Set()
		if m.cfg.Await(ctx, index+1) != nil {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// following is what a session knows of one of its followers.
type following struct {
	source    *source
	namespace string
	synced    bool // there was a complete list
	err       error
}

// update is what a follower tells the session.
type update struct {
	kubeapi.Update[*object]
	of *following
}

// session belongs to the goroutine of Manager.Run.
type session struct {
	*Manager
	client    *kubeapi.Client
	following []*following
	objects   map[*source]map[kubeapi.Key]*object
	noStatus  map[*source]bool // the API server denies the right to write it
	classes   map[string]bool  // the GatewayClasses that are ours
}

func (s *session) run(ctx context.Context, updates <-chan update, inForce <-chan struct{}, found int) error {
	tick, again := time.NewTicker(checkInterval), time.NewTicker(rediscover)
	defer tick.Stop()
	defer again.Stop()
	due, dirty := time.NewTimer(s.cfg.Debounce), true
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-updates:
			if errors.Is(u.Err, kubeapi.ErrCredentials) {
				return u.Err // the next session reads the kubeconfig again
			}
			dirty = s.take(u) || dirty
		case <-inForce:
			dirty = true
		case <-tick.C:
			if !s.cfg.Leads() {
				return nil
			}
		case <-again.C:
			dirty = true
			if now, err := discover(ctx, s.client); err == nil && len(now) != found {
				return nil
			}
		case <-due.C:
			if dirty && s.ready() {
				dirty = s.pass(ctx)
			}
			due.Reset(s.cfg.Debounce)
		}
	}
}

// take applies an update and reports whether there is something to do.
func (s *session) take(u update) bool {
	f, known := u.of, s.objects[u.of.source]
	before := f.err
	if f.err = u.Err; u.Err != nil {
		if before == nil || before.Error() != u.Err.Error() {
			s.cfg.Log.Warn("cannot read a kind from Kubernetes; nothing of it changes", "error", u.Err)
		}
		return true
	}
	if u.Relisted {
		f.synced = true
		for k := range known {
			if f.namespace == "" || f.namespace == k.Namespace {
				if !slices.ContainsFunc(u.Objects, func(o *object) bool { return o.key() == k }) {
					delete(known, k)
				}
			}
		}
	}
	for _, o := range u.Objects {
		if old := known[o.key()]; old != nil {
			o.logged = old.logged
		}
		if o.gone {
			delete(known, o.key())
		} else {
			known[o.key()] = o
		}
	}
	return u.Relisted || len(u.Objects) > 0 || before != nil
}

// ready reports whether every follower has an answer or an error.
func (s *session) ready() bool {
	return !slices.ContainsFunc(s.following, func(f *following) bool { return !f.synced && f.err == nil })
}

// complete reports whether all objects of a kind are known.
func (s *session) complete(group, kind string) bool {
	found := false
	for _, f := range s.following {
		if f.source.group == group && f.source.kind == kind {
			if !f.synced {
				return false
			}
			found = true
		}
	}
	return found
}

// publish tells status and metrics what the last pass found.
func (s *session) publish(pending []string) {
	now := State{Synced: true}
	for _, f := range s.following {
		if f.err != nil || !f.synced {
			now.Synced = false
		}
		if f.err != nil {
			now.Problems = append(now.Problems, f.err.Error())
		}
	}
	now.Problems = append(now.Problems, pending...)
	for _, list := range s.objects {
		for _, o := range list {
			now.Objects++
			if o.trouble() == "" {
				continue
			}
			now.Refused++
			now.Problems = append(now.Problems, fmt.Sprintf("kubernetes: %v is not accepted: %s", o, o.trouble()))
		}
	}
	slices.Sort(now.Problems)
	if more := len(now.Problems) - maxListed; more > 0 {
		now.Problems = append(now.Problems[:maxListed], fmt.Sprintf("kubernetes: and %d more", more))
	}
	s.update(func(st *State) {
		st.Synced, st.Problems, st.Objects, st.Refused = now.Synced, now.Problems, now.Objects, now.Refused
	})
}
