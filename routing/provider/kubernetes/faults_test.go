package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/routing/provider/providertest"
)

// Answers that are not what was asked for are failures. The last answer stays,
// and the source follows the server again once it answers as it should.
func TestBadLists(t *testing.T) {
	const good = `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[]}`
	answer := func(contentType, text string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, text)
		}
	}
	long := `[{"metadata":{"name":"` + strings.Repeat("x", 600) + `"}}]`
	body := func(text string) func(w http.ResponseWriter) { return answer("application/json", text) }
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
	}{
		"half":              {body(good[:60]), "unexpected end of JSON input"},
		"nothing":           {body(""), "unexpected end of JSON input"},
		"no object":         {body(`[]`), "cannot unmarshal array"},
		"empty object":      {body(`{}`), "Object 'Kind' is missing"},
		"wrong field":       {body(strings.Replace(good, "[]", `"x"`, 1)), "cannot unmarshal string"},
		"no revision":       {body(strings.Replace(good, `"9"`, `""`, 1)), "a list without a resourceVersion came"},
		"other kind":        {body(`{"kind":"PodList","apiVersion":"v1","items":[]}`), `no kind "PodList" is registered`},
		"services":          {body(`{"kind":"ServiceList","apiVersion":"v1"}`), "a v1.ServiceList came"},
		"one slice":         {body(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1"}`), "a v1.EndpointSlice came"},
		"status":            {body(`{"kind":"Status","apiVersion":"v1","status":"Success"}`), "a v1.Status came"},
		"failed status":     {body(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not\ttoday"}`), "not today"},
		"web page":          {answer("text/html", "<html>Welcome</html>"), "serializer for text/html doesn't exist"},
		"protobuf":          {answer("application/vnd.kubernetes.protobuf", "k8s\x00\x0a\xff\xff"), "EOF"},
		"endless":           {body(strings.Replace(good, `"9"`, `"9","continue":"x"`, 1)), "an empty page"},
		"long name":         {body(strings.Replace(good, "[]", long, 1)), "more than 512 bytes"},
		"server error":      {code(500), "an error on the server"},
		"busy":              {code(429), "the server is busy (429 Too Many Requests)"},
		"missing":           {code(404), "404 Not Found: this is no API server with discovery.k8s.io/v1"},
		"secret":            {echo, "the server says: go away, (removed)!"},
		"reset":             {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "EOF"},
		"half and reset":    {halfAndReset, "unexpected EOF"},
		"large by its size": {largeBySize, "more than 1000000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.put(aService("web", "http:80"), aSlice("web-1", "10.0.0.1"))
			sink := s.follow(func(c *Config) { c.MaxBytes = 1_000_000 }, web)
			sink.Await(t, web, "10.0.0.1:8080")
			s.setIntercept(func(w http.ResponseWriter, _ *http.Request, verb, resource string) bool {
				if resource != "endpointslices" {
					return false
				}
				if verb == "watch" {
					status(w, http.StatusInternalServerError, "InternalError", "no watch")
				} else {
					test.answer(w)
				}
				return true
			})
			s.awaitCount(t, "watch endpointslices", 1)
			s.CloseClientConnections()
			sink.AwaitFailure(t, web, test.want)
			err := sink.Err(web)
			if text := err.Error(); !strings.HasPrefix(text, "kubernetes at 127.0.0.1:") ||
				!strings.Contains(text, ", endpointslices in namespace shop: ") {
				t.Errorf("the error does not say where: %v", err)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the token is in the error %v", err)
			}
			sink.Await(t, web, "10.0.0.1:8080")
			s.put(aSlice("web-1", "10.0.0.2"))
			s.setIntercept(nil)
			sink.Await(t, web, "10.0.0.2:8080")
		})
	}
}

func code(n int) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(n) }
}

func echo(w http.ResponseWriter) {
	status(w, http.StatusForbidden, "Forbidden", "go away, s3cret-token!")
}

func largeBySize(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "99999999")
	_, _ = w.Write([]byte("{"))
}

func halfAndReset(w http.ResponseWriter) {
	_, _ = w.Write([]byte(`{"kind":"EndpointSliceList","items":[`))
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// Events that cannot be used are failures too: the objects are listed again.
func TestBadEvents(t *testing.T) {
	slice := func(fields string) string {
		return `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1",` + fields + `}`
	}
	for name, test := range map[string]struct{ event, want string }{
		"no JSON":      {"Hello", "invalid character"},
		"wrong kind":   {`{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1"}}`, "a v1.Service came"},
		"unknown kind": {`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}`, `no kind \"Pod\" is registered`},
		"unknown type": {`{"type":"RENAMED","object":` + slice(`"metadata":{}`) + `}`, "invalid watch event type: RENAMED"},
		"no object":    {`{"type":"ADDED"}`, "unable to decode watch event"},
		"no revision":  {`{"type":"ADDED","object":` + slice(`"metadata":{"name":"web-1"}`) + `}`, "an event without a resourceVersion came"},
		"wrong field":  {`{"type":"ADDED","object":` + slice(`"endpoints":7`) + `}`, "cannot unmarshal number"},
		"error":        {`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","message":"s3cret-token"}}`, "(removed)"},
		"page":         {`<html>`, "invalid character"},
		"nothing":      {"", "each watch ends at once"},
		"half":         {`{"type":"ADDED","object":{"ki`, "each watch ends at once"},
		"large":        {`{"type":"ADDED","object":{"x":"` + strings.Repeat("x", 2_000_000), "more than 1000000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.put(aService("web", "http:80"), aSlice("web-1", "10.0.0.1"))
			s.setIntercept(func(w http.ResponseWriter, _ *http.Request, verb, resource string) bool {
				if verb != "watch" || resource != "endpointslices" {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, test.event)
				return true
			})
			sink := s.follow(func(c *Config) { c.MaxBytes = 1_000_000 }, web)
			sink.AwaitFailure(t, web, test.want)
			sink.Await(t, web, "10.0.0.1:8080")
			if err := sink.Err(web); err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the token is in the error %v", err)
			}
			s.setIntercept(nil)
			s.put(aSlice("web-1", "10.0.0.2"))
			sink.Await(t, web, "10.0.0.2:8080")
		})
	}
}

// A list of 100 MB is refused without being read to its end.
func TestLargeListsAreRefused(t *testing.T) {
	s := start(t)
	var sent atomic.Int64
	s.setIntercept(func(w http.ResponseWriter, _ *http.Request, _, _ string) bool {
		w.Header().Set("Content-Type", "application/json")
		chunk := bytes.Repeat([]byte(" "), 1<<16)
		for n := 0; n < 100<<20; n += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				break
			}
			sent.Add(int64(len(chunk)))
		}
		return true
	})
	source := s.source(func(c *Config) { c.MaxBytes = 1 << 20 })
	source.firstRetry = time.Hour // one list of each kind
	sink := providertest.NewSink(web)
	sink.Start(t, source)
	sink.AwaitFailure(t, web, "an answer has more than 1048576 bytes: narrow it by namespaces or a labelSelector, or raise maxBytes")
	if n := sent.Load(); n > 40<<20 { // what sockets hold is more than the bound
		t.Errorf("the server could send %d bytes", n)
	}
}

func TestSilentServers(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		s := start(t)
		s.put(aService("web", "http:80"))
		s.setIntercept(func(_ http.ResponseWriter, r *http.Request, v, _ string) bool {
			if v == verb {
				<-r.Context().Done()
			}
			return v == verb
		})
		sink := s.follow(func(c *Config) { c.Timeout = 50 * time.Millisecond }, web)
		sink.AwaitFailure(t, web, "no answer within 50ms")
		s.setIntercept(nil)
		s.CloseClientConnections()
	}
}

func TestConnectionErrors(t *testing.T) {
	tls, closed := start(t), start(t)
	closed.Close()
	for cluster, want := range map[string]string{
		"server: " + tls.URL: "its certificate is not accepted: check certificate-authority and tls-server-name of kubeconfig",
		"server: http://" + strings.TrimPrefix(tls.URL, "https://"): "400 Bad Request: check whether its URL begins with https://",
		closed.cluster():                                              "connection refused",
		"server: https://no.such.host.invalid.":                       "the host name cannot be looked up",
		strings.Replace(tls.cluster(), tls.URL, tls.URL+"/prefix", 1): "404 Not Found: this is no API server",
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		writeKubeconfig(t, path, cluster, "token: s3cret-token")
		sink := providertest.NewSink(web)
		sink.Start(t, newSource(t, path, nil))
		sink.AwaitFailure(t, web, want)
	}
}

func TestKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	exec := filepath.Join(dir, "exec")
	writeKubeconfig(t, exec, "server: https://a:6443",
		"exec: {command: get-token, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}")
	both := filepath.Join(dir, "both")
	writeKubeconfig(t, both, "server: https://a:6443", "token: s3cret-token, username: joe, password: s3cret-word")
	certificate := filepath.Join(dir, "certificate")
	writeKubeconfig(t, certificate, "server: https://a:6443", "client-certificate-data: czNjcmV0, client-key-data: czNjcmV0")
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "this process does not run in a pod: give a kubeconfig"},
		{Config{Kubeconfig: filepath.Join(dir, "absent")}, "no such file"},
		{Config{Kubeconfig: write("text", "token: s3cret-token: x\n\t")}, "is not valid"},
		{Config{Kubeconfig: write("empty", "")}, `has no context ""`},
		{Config{Kubeconfig: exec, Context: "other"}, `has no context "other"`},
		{Config{Kubeconfig: exec}, `runs the command "get-token" for its credentials: set allowExec if it may`},
		{Config{Kubeconfig: both}, "only one is allowed"},
		{Config{Kubeconfig: certificate}, "the certificates cannot be used"},
	} {
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		source, err := New(test.cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = source.Run(t.Context(), providertest.NewSink(web))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "kubernetes: ") {
			t.Errorf("%+v: %v, want %q", test.cfg, err, test.want)
		} else if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "czNjcmV0") {
			t.Errorf("a secret is in the error %v", err)
		}
	}
}

// A kubeconfig that may be read names files that may not, such as the node's own key.
func TestFilesOfAKubeconfigAreResolved(t *testing.T) {
	dir, private := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(private, "f"), []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ field, cluster, user string }{
		{"certificate-authority", "certificate-authority: link/f", "token: x"},
		{"client-certificate", "", "client-certificate: link/f, client-key-data: czNjcmV0"},
		{"client-key", "", "client-certificate-data: czNjcmV0, client-key: link/f"},
		{"tokenFile", "", "tokenFile: link/f"},
		{"tokenFile", "", "token: x, tokenFile: link/f"},
	} {
		path := filepath.Join(dir, "kubeconfig")
		writeKubeconfig(t, path, "server: https://a:6443, "+test.cluster, test.user)
		source := newSource(t, path, func(c *Config) { c.Resolve = outside(private) })
		_, err := source.connect()
		if err == nil || !strings.Contains(err.Error(), test.field+": ") || !errors.Is(err, errPrivate) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s, %s: %v", test.cluster, test.user, err)
		}
	}
}

// client-go reads the file of a token again, which may have become a link since.
func TestFilesOfAKubeconfigAreResolvedAgain(t *testing.T) {
	server, dir, private := start(t), t.TempDir(), t.TempDir()
	path, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(server.token), 0o600); err != nil {
		t.Fatal(err)
	}
	writeKubeconfig(t, path, server.cluster(), "tokenFile: token")
	client, err := newSource(t, path, func(c *Config) { c.Resolve = outside(private) }).connect()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	get := func() error {
		return client.Get(t.Context(), "/api/v1/services", new(map[string]any))
	}
	if err := get(); err != nil && errors.Is(err, errPrivate) {
		t.Fatal(err)
	}
	if err := os.Rename(file, filepath.Join(private, "token")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(private, "token"), file); err != nil {
		t.Fatal(err)
	}
	if err := get(); !errors.Is(err, errPrivate) {
		t.Errorf("the token's file has become a link to a private one: %v", err)
	}
}

var errPrivate = errors.New("is private")

// outside returns a Config.Resolve that refuses a folder.
func outside(private string) func(string) (string, error) {
	return func(path string) (string, error) {
		real, err := filepath.EvalSymlinks(path)
		if err == nil && strings.HasPrefix(real, private+"/") {
			err = &os.PathError{Op: "open", Path: path, Err: errPrivate}
		}
		return real, err
	}
}

func TestConfigs(t *testing.T) {
	for want, cfg := range map[string]Config{
		`context "a" needs a kubeconfig`:       {Context: "a"},
		`namespace "A" is not the name of one`: {Namespace: "A"},
		`namespaces: "a/b" is not the name`:    {Namespaces: []string{"a", "a/b"}},
		`namespaces: "*" stands alone`:         {Namespaces: []string{"a", "*"}},
		`the maximum is 100`:                   {Namespaces: make([]string, 101)},
		`labelSelector "a in (": `:             {LabelSelector: "a in ("},
		`unknown family "6"`:                   {Family: "6"},
		`timeout -1ns must be at most 5m0s`:    {Timeout: -1},
		`timeout 5m0.000000001s must be`:       {Timeout: 5*time.Minute + 1},
		`maxBytes -1 must be 1 to`:             {MaxBytes: -1},
		`maxBytes 1073741825 must be`:          {MaxBytes: 1<<30 + 1},
		`maxObjects -1 must be 1 to 10000000`:  {MaxObjects: -1},
		`rate -1 must be above 0`:              {Rate: -1},
		`rate NaN must be above 0`:             {Rate: math.NaN()},
	} {
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	if _, err := New(Config{Namespace: "A", Family: "6"}); err == nil || strings.Count(err.Error(), "kubernetes: ") != 2 {
		t.Errorf("not all faults are reported: %v", err)
	}
}
