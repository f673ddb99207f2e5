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
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
	maxStatus  = 25       // status writes of one pass, so that changes do not wait for them
	maxSecrets = 1000     // Secrets that are followed
	maxListed  = 100      // problems that status lists
)

// checkInterval is how often Run looks whether this node leads.
const checkInterval = time.Second

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
	// Rediscover is how often kinds are looked for that the API server did not have, and
	// how long a status waits that may not be written. Default a minute.
	Rediscover time.Duration
	Log        *slog.Logger // nil: none
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
	if cfg.Rediscover == 0 {
		cfg.Rediscover = time.Minute
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
	secrets := secretSource()
	client, err := m.connect(append(slices.Clone(found), secrets))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	s := newSession(m, client, secrets)
	defer s.group.Wait()
	defer cancel()
	for _, src := range found {
		s.objects[src] = map[kubeapi.Key]*object{}
		for _, namespace := range m.namespaces(src) {
			s.follow(ctx, &following{source: src, namespace: namespace})
		}
	}
	inForce := make(chan struct{}, 1)
	s.group.Go(func() { m.watchSet(ctx, inForce) })
	return s.run(ctx, inForce, found)
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
