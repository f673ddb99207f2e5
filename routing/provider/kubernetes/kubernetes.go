// Package kubernetes follows the endpoints of Kubernetes Services: it lists and
// watches Services and EndpointSlices, in the cluster that it runs in or in the
// one that a kubeconfig names.
//
//	src, err := kubernetes.New(kubernetes.Config{Kubeconfig: "/etc/penstock/kubeconfig", Namespace: "shop"})
//
// A query's Service is NAME, in Config.Namespace, or NAMESPACE/NAME. Its Port is
// the name or the number of one of the Service's TCP ports, and may be left out
// where there is one only. Each endpoint has the tags zone, node and pod, as far
// as its slice names them. A Service that does not exist has no endpoints.
//
// There is one watch for each kind and namespace, however many services are
// wanted. A namespace that fails leaves the others alone.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"penstock/routing/kubeapi"
	"penstock/routing/provider"
)

// Family is the address family of the endpoints in use.
type Family string

// The families. Endpoints with host names are used with each of them.
const (
	BothFamilies Family = ""
	IPv4         Family = "IPv4"
	IPv6         Family = "IPv6"
)

// AllNamespaces in Config.Namespaces stands for all namespaces.
const AllNamespaces = "*"

// Defaults and bounds.
const (
	DefaultTimeout    = 15 * time.Second
	DefaultMaxBytes   = 32 << 20
	DefaultMaxObjects = 500_000
	DefaultRate       = 20

	maxTimeout    = 5 * time.Minute
	maxMaxBytes   = 1 << 30
	maxMaxObjects = 10_000_000
	maxRate       = 10_000

	maxNamespaces = 100
)

// Config configures New.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file, Context the context in it
	// (default: its current one). Without a path the service account of the pod
	// that the process runs in is used.
	Kubeconfig, Context string
	// AllowExec permits a kubeconfig that runs a command to get credentials.
	AllowExec bool
	// Namespace is that of the services that are named without one. Default: that
	// of the kubeconfig's context or of the pod, otherwise "default".
	Namespace string
	// Namespaces are those whose services can be asked for, at most 100, or
	// AllNamespaces alone. Default: Namespace.
	Namespaces []string
	// LabelSelector is that of the Services in use. Kubernetes copies the
	// labels of a Service to its EndpointSlices; slices that others write need
	// them too.
	LabelSelector string
	// Family restricts the endpoints to those of one address family.
	Family Family
	// Timeout bounds each answer to a list, and the time until a watch begins.
	// Default 15s, at most 5m.
	Timeout time.Duration
	// MaxBytes bounds the bytes of each answer to a list, which has at most 250
	// objects, and of each event of a watch. Default 32 MiB, at most 1 GiB. Events
	// have a bound of 16 MiB besides.
	MaxBytes int64
	// MaxObjects bounds what is held of each kind in each namespace; each Service,
	// EndpointSlice, endpoint and port counts. Default 500,000, at most 10,000,000.
	MaxObjects int
	// Rate bounds the requests per second, beyond a burst of 50. Default 20, at
	// most 10,000.
	Rate float64
	// Resolve returns the path of Kubeconfig, or of a file that it names, without
	// symbolic links, or why it must not be read; nil: everything may.
	Resolve func(path string) (string, error)
}

// Source follows the Services of a cluster. Create it with New.
type Source struct {
	cfg Config
	// firstRetry is the pause after the first failure of a list or watch.
	firstRetry time.Duration
}

var namespacePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// New returns a source.
func New(cfg Config) (*Source, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	cfg.MaxObjects = cmp.Or(cfg.MaxObjects, DefaultMaxObjects)
	cfg.Rate = cmp.Or(cfg.Rate, DefaultRate)
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("kubernetes: "+format, args...)) }
	if cfg.Context != "" && cfg.Kubeconfig == "" {
		fault("context %q needs a kubeconfig", cfg.Context)
	}
	if cfg.Namespace != "" && !namespacePattern.MatchString(cfg.Namespace) {
		fault("namespace %.70q is not the name of one", cfg.Namespace)
	}
	if len(cfg.Namespaces) > maxNamespaces {
		fault("%d namespaces are given; the maximum is %d, or %q for all", len(cfg.Namespaces), maxNamespaces, AllNamespaces)
	}
	for _, n := range cfg.Namespaces {
		switch {
		case n == AllNamespaces && len(cfg.Namespaces) > 1:
			fault("namespaces: %q stands alone", AllNamespaces)
		case n != AllNamespaces && !namespacePattern.MatchString(n):
			fault("namespaces: %.70q is not the name of one", n)
		}
	}
	if _, err := labels.Parse(cfg.LabelSelector); err != nil {
		fault("labelSelector %q: %w", cfg.LabelSelector, err)
	}
	if cfg.Family != BothFamilies && cfg.Family != IPv4 && cfg.Family != IPv6 {
		fault("unknown family %q; use IPv4 or IPv6", cfg.Family)
	}
	if cfg.Timeout < 0 || cfg.Timeout > maxTimeout {
		fault("timeout %v must be at most %v", cfg.Timeout, maxTimeout)
	}
	if cfg.MaxBytes < 0 || cfg.MaxBytes > maxMaxBytes {
		fault("maxBytes %d must be 1 to %d", cfg.MaxBytes, maxMaxBytes)
	}
	if cfg.MaxObjects < 0 || cfg.MaxObjects > maxMaxObjects {
		fault("maxObjects %d must be 1 to %d", cfg.MaxObjects, maxMaxObjects)
	}
	if !(cfg.Rate > 0 && cfg.Rate <= maxRate) { // NaN too
		fault("rate %v must be above 0 and at most %d", cfg.Rate, maxRate)
	}
	return &Source{cfg: cfg, firstRetry: time.Second}, errors.Join(faults...)
}

// run is one run of a source. It belongs to the goroutine of Run.
type run struct {
	source    *Source
	sink      provider.Sink
	namespace string            // of services that are named without one
	scopes    map[string]*scope // by namespace; "" is that of all
	// wanted has the queries of each service, as far as they can be answered.
	wanted map[key][]provider.Query
}

// scope is a namespace, or all of them.
type scope struct {
	catalog   catalog
	followers []*following // one of each kind
}

// synced reports whether there was a list of each kind.
func (s *scope) synced() bool {
	return !slices.ContainsFunc(s.followers, func(f *following) bool { return !f.synced })
}

// err returns why what is known of the namespace is not up to date, or nil.
func (s *scope) err() error {
	for _, f := range s.followers {
		if f.err != nil {
			return f.err
		}
	}
	return nil
}

// Run implements provider.Source.
func (s *Source) Run(ctx context.Context, sink provider.Sink) error {
	client, err := s.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	r := &run{source: s, sink: sink, namespace: cmp.Or(s.cfg.Namespace, client.Namespace), scopes: map[string]*scope{}}
	updates := make(chan update, 100)
	for _, namespace := range r.namespaces() {
		sc := &scope{catalog: newCatalog()}
		for _, k := range kinds {
			f := s.follow(client, k, namespace, updates)
			f.scope = sc
			sc.followers = append(sc.followers, f)
			wg.Go(func() { f.Run(ctx) })
		}
		r.scopes[namespace] = sc
	}
	replaced := r.want()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-replaced:
			replaced = r.want()
		case u := <-updates:
			if err := r.apply(u, updates); err != nil {
				return err
			}
		}
	}
}

// namespaces returns the namespaces to follow, "" for all.
func (r *run) namespaces() []string {
	switch list := r.source.cfg.Namespaces; {
	case len(list) == 0:
		return []string{r.namespace}
	case list[0] == AllNamespaces:
		return []string{""}
	default:
		return slices.Compact(slices.Sorted(slices.Values(list)))
	}
}

// want takes over the wanted queries and reports what is known of them.
func (r *run) want() (replaced <-chan struct{}) {
	queries, replaced := r.sink.Wanted()
	r.wanted = make(map[key][]provider.Query, len(queries))
	for _, q := range queries {
		service, err := r.parse(q.Service)
		if err != nil {
			r.sink.Failed(q, err)
			continue
		}
		r.wanted[service] = append(r.wanted[service], q)
	}
	for service := range r.wanted {
		if sc := r.scope(service.namespace); sc.synced() {
			r.report(sc, service)
		} else if err := sc.err(); err != nil {
			r.fail(service, err)
		}
	}
	return replaced
}

// parse returns the service that a query names.
func (r *run) parse(name string) (key, error) {
	k := key{r.namespace, name}
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		k = key{namespace, rest}
	}
	switch {
	case k.namespace == "" || k.name == "" || strings.Contains(k.name, "/") || len(name) > maxText:
		return key{}, fmt.Errorf("%.80q is not the name of a Kubernetes Service: use NAME or NAMESPACE/NAME", name)
	case r.scope(k.namespace) == nil:
		return key{}, fmt.Errorf("namespace %.80q of service %.80q is not watched: add it to namespaces", k.namespace, k.name)
	}
	return k, nil
}

func (r *run) scope(namespace string) *scope {
	if all := r.scopes[""]; all != nil {
		return all
	}
	return r.scopes[namespace]
}

// apply applies an update and those that wait behind it, so that a burst of
// events is one report for each service. An error ends the run.
func (r *run) apply(u update, more <-chan update) error {
	touched := map[key]bool{}
	relisted, confirmed := map[*scope]bool{}, map[*scope]bool{}
	for waiting := len(more); ; waiting-- {
		f, sc := u.of, u.of.scope
		f.err = u.Err
		switch {
		case errors.Is(u.Err, kubeapi.ErrCredentials):
			return u.Err // the next run reads the kubeconfig again
		case u.Err != nil:
			r.failScope(sc)
		case u.Relisted:
			sc.catalog.replace(f.kind, u.Objects)
			f.synced = true
			relisted[sc] = true
		case len(u.Objects) == 0:
			confirmed[sc] = true
		default:
			for _, o := range u.Objects {
				sc.catalog.put(f.kind, o, touched)
			}
		}
		if waiting == 0 {
			break
		}
		u = <-more
	}
	for service := range r.wanted {
		sc := r.scope(service.namespace)
		switch {
		case !sc.synced():
		case touched[service] || relisted[sc]:
			r.report(sc, service)
		case confirmed[sc] && sc.err() == nil:
			for _, q := range r.wanted[service] {
				r.sink.Confirm(q)
			}
		}
	}
	return nil
}

func (r *run) failScope(sc *scope) {
	for service := range r.wanted {
		if r.scope(service.namespace) == sc {
			r.fail(service, sc.err())
		}
	}
}

func (r *run) fail(service key, err error) {
	for _, q := range r.wanted[service] {
		r.sink.Failed(q, err)
	}
}

// report answers the queries of a service. The answer is stale while one of the
// two kinds fails, but what the other one says is still worth knowing.
func (r *run) report(sc *scope, service key) {
	for _, q := range r.wanted[service] {
		endpoints, err := sc.catalog.endpoints(service, q.Port)
		if err != nil {
			r.sink.Failed(q, err)
			continue
		}
		r.sink.Report(q, endpoints)
		if err := sc.err(); err != nil {
			r.sink.Failed(q, err)
		}
	}
}
