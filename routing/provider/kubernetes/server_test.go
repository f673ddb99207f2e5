package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = provider.Query{Service: "web"}

// apiServer is a server of the tests that speaks list and watch for Services and
// EndpointSlices, in JSON.
type apiServer struct {
	*httptest.Server
	t     *testing.T
	token string

	mu       sync.Mutex
	revision int
	oldest   int // revisions before this one are gone
	history  []change
	objects  map[string]map[string]item // by resource, then by key
	requests map[string]int             // by "list services" and the like
	changed  chan struct{}
	// intercept, if set, may answer a request itself; it returns true then.
	intercept func(w http.ResponseWriter, r *http.Request, verb, resource string) bool
}

type item interface {
	metav1.ObjectMetaAccessor
}

type change struct {
	revision int
	resource string
	kind     string // ADDED, MODIFIED, DELETED
	item     item
}

// newServer returns a server that is still to be started.
func newServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{
		t: t, token: "s3cret-token", revision: 100, changed: make(chan struct{}), requests: map[string]int{},
		objects: map[string]map[string]item{"services": {}, "endpointslices": {}},
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s
}

// start starts a server with TLS, without which clients send no credentials.
func start(t *testing.T) *apiServer {
	s := newServer(t)
	s.StartTLS()
	return s
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	verb := "list"
	if r.URL.Query().Get("watch") == "true" {
		verb = "watch"
	}
	namespace, resource, ok := parsePath(r.URL.Path)
	s.mu.Lock()
	s.requests[verb+" "+resource]++
	intercept, token := s.intercept, s.token
	s.mu.Unlock()
	switch {
	case !ok:
		status(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case r.Header.Get("Authorization") != "Bearer "+token:
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	case intercept != nil && intercept(w, r, verb, resource):
	case verb == "list":
		s.list(w, r, namespace, resource)
	default:
		s.watch(w, r, namespace, resource)
	}
}

// parsePath reads /apis/GROUP/v1[/namespaces/NAME]/RESOURCE.
func parsePath(path string) (namespace, resource string, ok bool) {
	rest, core := strings.CutPrefix(path, "/api/v1/")
	if !core {
		if rest, ok = strings.CutPrefix(path, "/apis/discovery.k8s.io/v1/"); !ok {
			return "", "", false
		}
	}
	if in, ok := strings.CutPrefix(rest, "namespaces/"); ok {
		namespace, rest, _ = strings.Cut(in, "/")
	}
	return namespace, rest, rest == "services" && core || rest == "endpointslices" && !core
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(statusOf(code, reason, message))
}

func statusOf(code int, reason, message string) map[string]any {
	return map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
	}
}

// list answers a list in pages; the continue token is the first key of the next
// one.
func (s *apiServer) list(w http.ResponseWriter, r *http.Request, namespace, resource string) {
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	selector := s.selector(query.Get("labelSelector"))
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []item
	next := ""
	for _, k := range slices.Sorted(maps.Keys(s.objects[resource])) {
		o := s.objects[resource][k]
		if k < query.Get("continue") || !matches(o, namespace, selector) {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = k
			break
		}
		items = append(items, o)
	}
	if items == nil {
		items = []item{}
	}
	kind, version := "ServiceList", "v1"
	if resource == "endpointslices" {
		kind, version = "EndpointSliceList", "discovery.k8s.io/v1"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": kind, "apiVersion": version, "items": items,
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(s.revision), "continue": next},
	})
}

func (s *apiServer) selector(text string) labels.Selector {
	selector, err := labels.Parse(text)
	if err != nil {
		s.t.Errorf("label selector %q: %v", text, err)
	}
	return selector
}

func matches(o item, namespace string, selector labels.Selector) bool {
	meta := o.GetObjectMeta()
	return (namespace == "" || meta.GetNamespace() == namespace) && selector.Matches(labels.Set(meta.GetLabels()))
}

// watch sends what changed after a revision, then a bookmark, and waits.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, namespace, resource string) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if r.URL.Query().Get("timeoutSeconds") == "" || r.URL.Query().Get("allowWatchBookmarks") != "true" {
		s.t.Errorf("a watch without an end or bookmarks: %s", r.URL.RawQuery)
	}
	selector := s.selector(r.URL.Query().Get("labelSelector"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for {
		s.mu.Lock()
		changed, history, oldest, now := s.changed, s.history, s.oldest, s.revision
		s.mu.Unlock()
		if from < oldest {
			_ = out.Encode(map[string]any{"type": "ERROR", "object": statusOf(http.StatusGone, "Expired", "too old resource version")})
			return
		}
		for _, c := range history {
			if c.revision > from && c.resource == resource && matches(c.item, namespace, selector) {
				_ = out.Encode(map[string]any{"type": c.kind, "object": c.item})
			}
		}
		if now > from {
			_ = out.Encode(map[string]any{"type": "BOOKMARK", "object": bookmark(resource, now)})
		}
		from = now
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func bookmark(resource string, revision int) map[string]any {
	kind, version := "Service", "v1"
	if resource == "endpointslices" {
		kind, version = "EndpointSlice", "discovery.k8s.io/v1"
	}
	return map[string]any{
		"kind": kind, "apiVersion": version, "metadata": map[string]string{"resourceVersion": strconv.Itoa(revision)},
	}
}

// put adds or replaces objects.
func (s *apiServer) put(items ...item) {
	for _, o := range items {
		s.change(o, false)
	}
}

func (s *apiServer) delete(o item) { s.change(o, true) }

func (s *apiServer) change(o item, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := "services"
	if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
		resource = "endpointslices"
		o = slice.DeepCopy()
	} else {
		o = o.(*corev1.Service).DeepCopy()
	}
	s.revision++
	meta := o.GetObjectMeta()
	meta.SetResourceVersion(strconv.Itoa(s.revision))
	k := meta.GetNamespace() + "/" + meta.GetName()
	kind := "ADDED"
	switch {
	case deleted:
		kind = "DELETED"
		delete(s.objects[resource], k)
	case s.objects[resource][k] != nil:
		kind = "MODIFIED"
		fallthrough
	default:
		s.objects[resource][k] = o
	}
	s.history = append(s.history, change{s.revision, resource, kind, o})
	s.wake()
}

func (s *apiServer) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// forget drops all old revisions: watches get 410.
func (s *apiServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.oldest, s.history = s.revision, nil
	s.wake()
}

func (s *apiServer) setIntercept(f func(w http.ResponseWriter, r *http.Request, verb, resource string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

func (s *apiServer) count(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[request]
}

// awaitCount waits until there were n requests.
func (s *apiServer) awaitCount(t *testing.T, request string, n int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); s.count(request) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests to %s, want %d", s.count(request), request, n)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// kubeconfig writes a kubeconfig for the server.
func (s *apiServer) kubeconfig(path, token string) {
	s.t.Helper()
	writeKubeconfig(s.t, path, s.cluster(), "token: "+token)
}

// cluster returns the server's address and authority for a kubeconfig.
func (s *apiServer) cluster() string {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return fmt.Sprintf("server: %q, certificate-authority-data: %s", s.URL, base64.StdEncoding.EncodeToString(authority))
}

func writeKubeconfig(t testing.TB, path, cluster, user string) {
	t.Helper()
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {%s}}]
users: [{name: test, user: {%s}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: shop}}]
current-context: test
`, cluster, user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// source returns a source of the server that tries again soon.
func (s *apiServer) source(adapt func(*Config)) *Source {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	s.kubeconfig(path, s.token)
	return newSource(s.t, path, adapt)
}

func newSource(t *testing.T, kubeconfig string, adapt func(*Config)) *Source {
	t.Helper()
	cfg := Config{Kubeconfig: kubeconfig, Timeout: time.Minute, Rate: 1000}
	if adapt != nil {
		adapt(&cfg)
	}
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	source.firstRetry = 10 * time.Millisecond
	return source
}

// follow runs a source of the server until the test ends.
func (s *apiServer) follow(adapt func(*Config), queries ...provider.Query) *providertest.Sink {
	s.t.Helper()
	sink := providertest.NewSink(queries...)
	sink.Start(s.t, s.source(adapt))
	return sink
}

// aService returns a Service in the namespace shop; ports are "name:number".
func aService(name string, ports ...string) *corev1.Service {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
	}
	for _, p := range ports {
		name, number, _ := strings.Cut(p, ":")
		n, _ := strconv.Atoi(number)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Port: int32(n), Protocol: corev1.ProtocolTCP})
	}
	return s
}

// aSlice returns an EndpointSlice NAME of the Service web in the namespace shop
// with the port http, 8080. Endpoints are addresses, with "?" at their end if
// not ready, "-" if terminating.
func aSlice(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: to("http"), Port: to(int32(8080)), Protocol: to(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, e := range endpoints {
		address := strings.TrimRight(e, "?-")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address},
			Conditions: discoveryv1.EndpointConditions{
				Ready: to(address == e), Serving: to(!strings.Contains(e, "?")), Terminating: to(strings.HasSuffix(e, "-")),
			},
		})
	}
	return s
}

func to[T any](v T) *T { return &v }
