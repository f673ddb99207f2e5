package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/routing/formats/crd"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// catalogue has the resources in force of a cluster.
type catalogue struct {
	mu      sync.Mutex
	set     *validate.Set
	index   uint64
	changed chan struct{}
	applies int
	fail    error // of Apply
}

func newCatalogue() *catalogue {
	return &catalogue{set: new(validate.Set), changed: make(chan struct{})}
}

func (c *catalogue) Apply(put []resource.Object, remove []resource.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return c.fail
	}
	var changes []resource.Change
	for _, o := range put {
		changes = append(changes, resource.Put(o))
	}
	for _, k := range remove {
		changes = append(changes, resource.Delete(k))
	}
	next, faults, _ := c.set.With(changes)
	if len(faults) > 0 {
		refusal := api.Errorf(api.Invalid, "%v", faults[0])
		for _, f := range faults {
			key, path, _ := strings.Cut(f.Path, " ")
			refusal.Faults = append(refusal.Faults, api.Fault{Key: key, Path: path, Message: f.Message, Value: f.Value})
		}
		return refusal
	}
	c.set, c.applies = next, c.applies+1
	c.index++
	close(c.changed)
	c.changed = make(chan struct{})
	return nil
}

func (c *catalogue) now() (*validate.Set, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set, c.index
}

func (c *catalogue) await(ctx context.Context, index uint64) error {
	for {
		c.mu.Lock()
		at, changed := c.index, c.changed
		c.mu.Unlock()
		if at >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *catalogue) has(kind, name string) bool {
	set, _ := c.now()
	_, ok := set.Get(resource.Key{Kind: kind, Name: name})
	return ok
}

// member is a node of the cluster.
type member struct {
	*Manager
	leads atomic.Bool
	log   testkit.Log
}

// start starts a node that leads, and ends it with the test.
func (c *catalogue) start(t *testing.T, s *server, change ...func(*Config)) *member {
	t.Helper()
	m := &member{}
	m.leads.Store(true)
	cfg := Config{
		Kubeconfig: s.kubeconfig(), Controller: "penstock.internal/gateway", Leads: m.leads.Load, Set: c.now, Await: c.await,
		Apply: func(_ context.Context, put []resource.Object, remove []resource.Key) error {
			if !m.leads.Load() {
				return errors.New("leads no more")
			}
			return c.Apply(put, remove)
		},
		Status: func(*validate.Set) func(*resource.Object, time.Time) []byte {
			return func(*resource.Object, time.Time) []byte { return []byte(`{}`) }
		},
		Failed: func(resource.Key) string { return "" }, Debounce: 10 * time.Millisecond, Rediscover: 200 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&m.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	m.Manager = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return m
}

// settle waits until nothing has changed for some passes.
func (m *member) settle(t *testing.T, s *server) {
	t.Helper()
	testkit.WaitFor(t, "the manager to know all", func() bool { return m.State().Synced })
	last, since := -1, time.Now()
	testkit.WaitFor(t, "the statuses to settle", func() bool {
		if now := s.count(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond // many times the debounce
	})
}

func (s *server) service(namespace, name, address string) {
	s.t.Helper()
	s.put(crd.APIVersion, "services", namespace, name, fmt.Sprintf(`{"spec": {"endpoints": [{"address": %q}]}}`, address))
}

func (s *server) accepted(plural, namespace, name string) string {
	return s.condition(crd.APIVersion, plural, namespace, name, "Accepted")
}

// Each status is written once, and its own event causes no other write.
func TestStatusesSettle(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	const n = 60 // more than a pass writes
	for i := range n {
		s.service("shop", fmt.Sprintf("s%d", i), "10.0.0.1:80")
	}
	m := c.start(t, s)
	testkit.WaitFor(t, "all statuses", func() bool { return s.count() >= n })
	m.settle(t, s)
	writes := func() int { return s.count() }
	// One for each, but for those of a first pass that came before all was in force.
	if first := writes(); first != n || m.State().StatusWritten != n || m.State().StatusConflicts != 0 {
		t.Errorf("%d writes of %d statuses, %+v", first, n, m.State())
	}
	s.service("shop", "s0", "10.0.0.2:80")
	testkit.WaitFor(t, "the change", func() bool { return writes() > n })
	m.settle(t, s)
	if now := writes(); now != n+1 {
		t.Errorf("%d writes after one change of a spec, want 1", now-n)
	}
	if got := s.accepted("services", "shop", "s0"); got != "True Accepted" {
		t.Errorf("the observed generation is another: %q", got)
	}
}

// Revisions that the server has dropped are listed again, and what went meanwhile goes.
func TestExpiredWatchesListAgain(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	s.service("shop", "stays", "10.0.0.1:80")
	s.service("shop", "goes", "10.0.0.1:80")
	m := c.start(t, s)
	testkit.WaitFor(t, "both", func() bool { return c.has("Service", "shop.stays") && c.has("Service", "shop.goes") })
	m.settle(t, s)
	s.set(func() {
		delete(s.objects, pathOf(crd.APIVersion, "services", "shop")+"/goes")
		s.revision++
		s.events, s.dropped = nil, s.revision
		close(s.ending)
		s.ending = make(chan struct{})
	})
	testkit.WaitFor(t, "it to go", func() bool { return !c.has("Service", "shop.goes") })
	if !c.has("Service", "shop.stays") {
		t.Error("the other one went as well")
	}
}

// A status of another revision is not written; the watch brings the newer object.
func TestConflictsWaitForTheWatch(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	other := 0
	s.patched = func(at string, _ map[string]any) { // somebody else writes at the same time
		if other++; other <= 3 {
			s.set(func() {
				o := clone(s.objects[at])
				i := strings.LastIndex(at, "/")
				s.store(at[:i], at[i+1:], o, false)
			})
		}
	}
	s.service("shop", "web", "10.0.0.1:80")
	m := c.start(t, s)
	testkit.WaitFor(t, "the status", func() bool { return s.accepted("services", "shop", "web") == "True Accepted" })
	if st := m.State(); st.StatusConflicts != 3 || s.conflicts != 3 || st.StatusFailed != 0 {
		t.Errorf("%d conflicts, %+v", s.conflicts, st)
	}
}

// Without the right to write statuses, resources are applied all the same. The log says so
// once, status as long as it lasts, and the writes come once the right is there.
func TestForbiddenStatusIsTriedAgainNowAndThen(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	var tries atomic.Int64
	denied := atomic.Bool{}
	denied.Store(true)
	s.fail = func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/namespaces/shop/") && denied.Load() {
			tries.Add(1)
			return http.StatusForbidden
		}
		return 0
	}
	for i := range 20 {
		s.service("shop", fmt.Sprintf("s%d", i), "10.0.0.1:80")
	}
	s.service("blog", "web", "10.0.0.1:80")
	m := c.start(t, s, func(cfg *Config) { cfg.Rediscover = time.Second })
	testkit.WaitFor(t, "it to be told", func() bool {
		return slices.ContainsFunc(m.State().Problems, func(p string) bool {
			return strings.Contains(p, "patch services.penstock.io/status: 403 Forbidden: allow the verb patch on it in namespace shop")
		})
	})
	testkit.WaitFor(t, "the other namespace", func() bool { return s.accepted("services", "blog", "web") == "True Accepted" })
	testkit.WaitFor(t, "a second try", func() bool { return tries.Load() >= 2 })
	if !c.has("Service", "shop.s0") || tries.Load() > 15 {
		t.Errorf("%d tries for 20 objects in one namespace", tries.Load())
	}
	if n := strings.Count(m.log.String(), "cannot write a status"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, m.log.String())
	}
	denied.Store(false)
	testkit.WaitFor(t, "the status", func() bool { return s.accepted("services", "shop", "s19") == "True Accepted" })
	testkit.WaitFor(t, "the problem to go", func() bool { return len(m.State().Problems) == 0 })
}

// A server that fails is not asked for each object, and the log says it once.
func TestFailingStatusWritesPause(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	var tries atomic.Int64
	failing := atomic.Bool{}
	failing.Store(true)
	s.fail = func(r *http.Request) int {
		if r.Method == http.MethodPatch && failing.Load() {
			tries.Add(1)
			return http.StatusInternalServerError
		}
		return 0
	}
	for i := range 20 {
		s.service("shop", fmt.Sprintf("s%d", i), "10.0.0.1:80")
	}
	m := c.start(t, s)
	testkit.WaitFor(t, "a second try", func() bool { return tries.Load() >= 2 })
	if st := m.State(); tries.Load() > 10 || st.StatusFailed > 10 || !c.has("Service", "shop.s19") {
		t.Errorf("%d tries, %+v", tries.Load(), st)
	}
	failing.Store(false)
	testkit.WaitFor(t, "the statuses", func() bool { return s.count() == 20 })
	if n := strings.Count(m.log.String(), "cannot write a status"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, m.log.String())
	}
}

// A status that the server finds invalid holds up no other one.
func TestRefusedStatusHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	var tries atomic.Int64
	s.fail = func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/bad/status") {
			tries.Add(1)
			return http.StatusUnprocessableEntity
		}
		return 0
	}
	s.service("shop", "bad", "10.0.0.1:80")
	for i := range 20 {
		s.service("shop", fmt.Sprintf("s%d", i), "10.0.0.1:80")
	}
	m := c.start(t, s, func(cfg *Config) { cfg.Rediscover = time.Minute })
	testkit.WaitFor(t, "the others", func() bool { return s.count() == 20 })
	m.settle(t, s)
	if tries.Load() != 1 {
		t.Errorf("%d tries", tries.Load())
	}
}

// A token that was replaced is read again, also if only the writes notice.
func TestRefusedCredentialsBeginAgain(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	var tries atomic.Int64
	s.fail = func(r *http.Request) int {
		if r.Method == http.MethodPatch && tries.Add(1) == 1 {
			return http.StatusUnauthorized
		}
		return 0
	}
	s.service("shop", "web", "10.0.0.1:80")
	m := c.start(t, s)
	testkit.WaitFor(t, "the status", func() bool { return s.accepted("services", "shop", "web") == "True Accepted" })
	if text := m.log.String(); !strings.Contains(text, "401 Unauthorized") || strings.Contains(text, "s3cret") {
		t.Error(text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(slices.DeleteFunc(slices.Clone(s.lists), func(p string) bool { return !strings.HasSuffix(p, "/services") })); n < 2 {
		t.Errorf("the services were listed %d times, want a second session", n)
	}
}

// The new leader lists everything; the old one writes nothing more. What was deleted
// while nobody led goes.
func TestLeaderChanges(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	s.service("shop", "stays", "10.0.0.1:80")
	s.service("shop", "goes", "10.0.0.1:80")
	one := c.start(t, s)
	testkit.WaitFor(t, "both", func() bool { return c.has("Service", "shop.stays") && c.has("Service", "shop.goes") })
	one.settle(t, s)
	one.leads.Store(false)
	testkit.WaitFor(t, "it to stop", func() bool { return !one.State().Leading })
	written := one.State().StatusWritten
	s.remove(crd.APIVersion, "services", "shop", "goes")
	s.service("shop", "stays", "10.0.0.2:80")
	two := c.start(t, s)
	testkit.WaitFor(t, "what was deleted meanwhile", func() bool { return !c.has("Service", "shop.goes") })
	testkit.WaitFor(t, "the status", func() bool { return s.accepted("services", "shop", "stays") == "True Accepted" })
	two.settle(t, s)
	if one.State().StatusWritten != written || two.State().StatusWritten != 1 {
		t.Errorf("the old leader wrote %d statuses more, the new one %d, want 1", one.State().StatusWritten-written, two.State().StatusWritten)
	}
}

// While the store takes nothing, what was refused stays refused, and is not taken for
// accepted in the log.
func TestRefusalsOutliveFailures(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	s.put(crd.APIVersion, "listeners", "shop", "edge", `{"spec": {"address": ":8443", "service": "shop.none"}}`)
	m := c.start(t, s)
	testkit.WaitFor(t, "the refusal", func() bool { return strings.HasPrefix(s.accepted("listeners", "shop", "edge"), "False Invalid") })
	c.mu.Lock()
	c.fail = errors.New("no majority")
	c.mu.Unlock()
	s.service("shop", "web", "10.0.0.1:80")
	testkit.WaitFor(t, "the failure", func() bool { return m.State().Failed > 0 })
	if st := m.State(); st.Refused != 1 || strings.Contains(m.log.String(), "is accepted now") {
		t.Errorf("%+v\n%s", st, m.log.String())
	}
	c.mu.Lock()
	c.fail = nil
	c.mu.Unlock()
	testkit.WaitFor(t, "the service", func() bool { return c.has("Service", "shop.web") })
}

// The objects of a definition that is being deleted are not missed: the API server
// deletes them, not their owner.
func TestDefinitionsThatGoTakeNoResources(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	s.service("shop", "web", "10.0.0.1:80")
	m := c.start(t, s)
	testkit.WaitFor(t, "it", func() bool { return c.has("Service", "shop.web") })
	s.set(func() { s.frozen["services"] = true })
	s.remove(crd.APIVersion, "services", "shop", "web")
	testkit.WaitFor(t, "it to be told", func() bool {
		return slices.ContainsFunc(m.State().Problems, func(p string) bool {
			return strings.Contains(p, "the definition of a kind is being deleted") && strings.Contains(p, "services.penstock.io")
		})
	})
	s.set(func() { delete(s.kinds[crd.APIVersion], "services") })
	s.endWatches()
	testkit.WaitFor(t, "the kind to be gone", func() bool { return m.State().Synced })
	if !c.has("Service", "shop.web") {
		t.Error("the resource went with the definition of its kind")
	}
	s.set(func() { s.kinds[crd.APIVersion]["services"], s.frozen["services"] = "Service", false })
	testkit.WaitFor(t, "the list without it to count", func() bool { return !c.has("Service", "shop.web") })
}

// An older object with a fault keeps its name.
func TestFaultyObjectsKeepTheirName(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	s.put(crd.APIVersion, "services", "shop", "web", `{"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"endpoints": [{"address": "nonsense"}]}}`)
	s.put(crd.APIVersion, "services", "default", "shop.web", `{"metadata": {"creationTimestamp": "2026-01-02T00:00:00Z"}, "spec": {}}`)
	c.start(t, s)
	testkit.WaitFor(t, "the younger one to be told", func() bool {
		return strings.Contains(s.accepted("services", "default", "shop.web"), "Service shop/web is called that here too, and is older")
	})
	if c.has("Service", "shop.web") {
		t.Error("the younger one took the name")
	}
}

// Objects of other controllers are left alone and no problem of ours.
func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	s, c := newServer(t).withGateways(), newCatalogue()
	const v1 = "gateway.networking.k8s.io/v1"
	s.put(v1, "gatewayclasses", "", "theirs", `{"spec": {"controllerName": "example.com/other"}}`)
	s.put(v1, "gateways", "shop", "edge", `{"spec": {"gatewayClassName": "theirs", "listeners": [{"name": "a", "port": 443, "protocol": "HTTPS"}]}}`)
	s.put(v1, "httproutes", "shop", "web", `{"spec": {"parentRefs": [{"name": "edge"}], "rules": []}}`)
	s.put(v1, "tlsroutes", "shop", "web", `{"spec": {"parentRefs": [{"name": "edge"}], "nonsense": true}}`)
	s.service("shop", "web", "10.0.0.1:80")
	m := c.start(t, s)
	testkit.WaitFor(t, "ours", func() bool { return s.accepted("services", "shop", "web") == "True Accepted" })
	m.settle(t, s)
	if st := m.State(); st.Objects != 1 || st.Refused != 0 || len(st.Problems) != 0 || s.count() != 1 {
		t.Errorf("%d writes, %+v", s.count(), st)
	}
}
