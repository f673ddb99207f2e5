package kubernetes

import (
	"encoding/json"
	"fmt"
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

	"penstock/node/kinds"
	"penstock/routing/formats/crd"
)

// server is a small API server: it has objects of any kind, lists and watches them, and
// takes merge patches of their status as Kubernetes does. Tests make it fail.
type server struct {
	t    *testing.T
	http *httptest.Server

	mu       sync.Mutex
	revision int
	kinds    map[string]map[string]string // GROUP/VERSION -> plural -> kind
	objects  map[string]map[string]any    // RESOURCE-PATH/NAME
	events   []event
	dropped  int           // the last revision whose events are gone
	changed  chan struct{} // closed at each change
	ending   chan struct{} // closed to end all watches
	frozen   map[string]bool
	// fail answers a request in place of the server, with a code; 0: it does not.
	fail func(*http.Request) int
	// writes are the names of the objects whose status was written, lists the paths of
	// lists, and conflicts counts patches of another revision.
	writes, lists []string
	watched       map[string]int // open watches of one object, by RESOURCE-PATH?FIELD-SELECTOR
	conflicts     int
	patched       func(name string, body map[string]any) // sees each patch of a status before it is made
}

type event struct {
	revision int
	path     string // RESOURCE-PATH
	Type     string `json:"type"`
	Object   any    `json:"object"`
}

func newServer(t *testing.T) *server {
	s := &server{
		t: t, revision: 100, objects: map[string]map[string]any{}, changed: make(chan struct{}), ending: make(chan struct{}),
		kinds: map[string]map[string]string{crd.APIVersion: {}}, frozen: map[string]bool{}, watched: map[string]int{},
	}
	for _, k := range crd.Kinds(kinds.All()) {
		s.kinds[crd.APIVersion][k.Plural] = k.Name
	}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.endWatches()
		s.http.Close()
	})
	return s
}

// withGateways adds the kinds of the Gateway API.
func (s *server) withGateways() *server {
	s.kinds["gateway.networking.k8s.io/v1"] = map[string]string{
		"gatewayclasses": "GatewayClass", "gateways": "Gateway", "tlsroutes": "TLSRoute", "httproutes": "HTTPRoute", "referencegrants": "ReferenceGrant",
	}
	return s
}

func (s *server) kubeconfig() string {
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test", "clusters": [{"name": "test", "cluster": {"server": %q}}],
		"users": [{"name": "test", "user": {"token": "s3cret-token"}}], "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}`, s.http.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// set changes the server while nothing else does.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) endWatches() {
	s.set(func() {
		close(s.ending)
		s.ending = make(chan struct{})
	})
}

// pathOf returns the path of the kind of a namespace.
func pathOf(group, plural, namespace string) string {
	at := "/apis/" + group
	if group == "v1" {
		at = "/api/v1"
	}
	if namespace != "" {
		at += "/namespaces/" + namespace
	}
	return at + "/" + plural
}

// put creates or changes an object. Its text is JSON.
func (s *server) put(group, plural, namespace, name, text string) {
	s.t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		s.t.Fatal(err)
	}
	s.set(func() {
		path := pathOf(group, plural, namespace)
		old := s.objects[path+"/"+name]
		meta := map[string]any{"name": name, "generation": 1.0, "uid": path + name, "creationTimestamp": "2026-01-01T00:00:00Z"}
		if namespace != "" {
			meta["namespace"] = namespace
		}
		if given, ok := o["metadata"].(map[string]any); ok {
			maps.Copy(meta, given)
		}
		if old != nil {
			meta["generation"] = old["metadata"].(map[string]any)["generation"].(float64) + 1
			if o["status"] == nil && old["status"] != nil {
				o["status"] = old["status"]
			}
		}
		o["metadata"], o["apiVersion"] = meta, group
		o["kind"] = "Secret"
		if group != "v1" {
			o["kind"] = s.kinds[group][plural]
		}
		s.store(path, name, o, old == nil)
	})
}

// store stores an object under the next revision. The caller has locked.
func (s *server) store(path, name string, o map[string]any, created bool) {
	s.revision++
	o["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.revision)
	s.objects[path+"/"+name] = o
	what := "MODIFIED"
	if created {
		what = "ADDED"
	}
	s.events = append(s.events, event{s.revision, path, what, clone(o)})
}

func (s *server) remove(group, plural, namespace, name string) {
	s.set(func() {
		path := pathOf(group, plural, namespace)
		o := s.objects[path+"/"+name]
		delete(s.objects, path+"/"+name)
		s.revision++
		o["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.revision)
		s.events = append(s.events, event{s.revision, path, "DELETED", clone(o)})
	})
}

func clone(o map[string]any) (out map[string]any) {
	text, _ := json.Marshal(o)
	_ = json.Unmarshal(text, &out)
	return out
}

// condition returns "STATUS REASON MESSAGE" of a condition; "": there is none.
func (s *server) condition(group, plural, namespace, name, what string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, _ := json.Marshal(s.objects[pathOf(group, plural, namespace)+"/"+name])
	var o struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			Conditions []struct {
				Type, Status, Reason, Message string
				ObservedGeneration            int64
			}
		}
	}
	_ = json.Unmarshal(text, &o)
	for _, c := range o.Status.Conditions {
		if c.Type == what && c.ObservedGeneration == o.Metadata.Generation {
			return strings.TrimSpace(c.Status + " " + c.Reason + " " + c.Message)
		}
	}
	return ""
}

// count returns how many statuses were written.
func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.writes)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if code := fail(r); code != 0 {
			refuse(w, code, "made by the test")
			return
		}
	}
	s.mu.Lock()
	group := s.kinds[strings.TrimPrefix(r.URL.Path, "/apis/")]
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodPatch:
		s.patch(w, r)
	case group != nil:
		s.discovery(w, group)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	case s.kindOf(r.URL.Path) != "":
		s.list(w, r)
	default:
		refuse(w, http.StatusNotFound, "there is no such path")
	}
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reason := map[int]string{
		403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid", 401: "Unauthorized", 500: "InternalError", 503: "ServiceUnavailable",
	}[code]
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
	})
}

func (s *server) discovery(w http.ResponseWriter, group map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []any
	for _, plural := range slices.Sorted(maps.Keys(group)) {
		verbs := []string{"create", "delete", "get", "list", "patch", "update", "watch"}
		if s.frozen[plural] {
			verbs = []string{"delete", "get", "list", "watch"}
		}
		list = append(list, map[string]any{"name": plural, "kind": group[plural], "verbs": verbs},
			map[string]any{"name": plural + "/status", "kind": group[plural], "verbs": verbs})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"resources": list})
}

// kindOf returns the kind of a path of a list; "": it is none.
func (s *server) kindOf(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := path[strings.LastIndex(path, "/")+1:]
	if strings.HasPrefix(path, "/api/v1/") && last == "secrets" {
		return "Secret"
	}
	for group, plurals := range s.kinds {
		if strings.HasPrefix(path, "/apis/"+group+"/") && plurals[last] != "" {
			return plurals[last]
		}
	}
	return ""
}

// within reports whether an object's path is in a list's, which may be of all namespaces.
func within(list, of string) bool {
	at := strings.LastIndex(list, "/")
	return of == list || !strings.Contains(list, "/namespaces/") && strings.HasPrefix(of, list[:at]+"/namespaces/") && strings.HasSuffix(of, list[at:])
}

func selects(r *http.Request, o any) bool {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return !ok || o.(map[string]any)["metadata"].(map[string]any)["name"] == name
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	kind := s.kindOf(r.URL.Path)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, r.URL.Path)
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[path]; within(r.URL.Path, path[:strings.LastIndex(path, "/")]) && selects(r, o) {
			items = append(items, o)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": kind + "List", "apiVersion": apiVersionOf(r.URL.Path), "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.revision)}, "items": items,
	})
}

func apiVersionOf(path string) string {
	parts := strings.Split(path, "/")
	if parts[1] == "api" {
		return "v1"
	}
	return parts[2] + "/" + parts[3]
}

// watches returns the number of open watches of one object.
func (s *server) watches(of string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched[of]
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	of := r.URL.Path + "?" + r.URL.Query().Get("fieldSelector")
	s.mu.Lock()
	ending := s.ending
	s.watched[of]++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watched[of]--
	}()
	for {
		s.mu.Lock()
		changed, events, dropped := s.changed, slices.Clone(s.events), s.dropped
		s.mu.Unlock()
		if from < dropped {
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": map[string]any{
				"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version",
			}})
			return
		}
		for _, e := range events {
			if e.revision > from && within(r.URL.Path, e.path) && selects(r, e.Object) {
				_ = json.NewEncoder(w).Encode(e)
				from = e.revision
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-ending:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// patch takes a merge patch of a status.
func (s *server) patch(w http.ResponseWriter, r *http.Request) {
	at, ok := strings.CutSuffix(r.URL.Path, "/status")
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || !ok {
		refuse(w, http.StatusBadRequest, "want a status")
		return
	}
	if s.patched != nil {
		s.patched(at, body)
	}
	code, answer := 0, map[string]any(nil)
	s.set(func() {
		o := s.objects[at]
		switch {
		case o == nil:
			code = http.StatusNotFound
			return
		case body["metadata"].(map[string]any)["resourceVersion"] != o["metadata"].(map[string]any)["resourceVersion"]:
			s.conflicts++
			code = http.StatusConflict
			return
		}
		o = clone(o)
		status, _ := o["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
		}
		maps.Copy(status, body["status"].(map[string]any))
		o["status"] = status
		i := strings.LastIndex(at, "/")
		s.store(at[:i], at[i+1:], o, false)
		s.writes = append(s.writes, at[i+1:])
		answer = clone(o)
	})
	if code != 0 {
		refuse(w, code, "the test's server does not take it")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}
