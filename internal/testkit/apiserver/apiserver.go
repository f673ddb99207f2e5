// Package apiserver starts Kubernetes's own API server with a real etcd for tests.
// There is no kubelet and no scheduler: no pod runs, unless the test does what they do.
//
//	s := apiserver.Start(t)
//	s.Do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
//	kubeconfig := s.Kubeconfig(apiserver.Admin, "shop")
//
// The programs are those that "integration/setup.sh kube-apiserver" builds.
package apiserver

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"penstock/internal/testkit"
)

// Tokens of the server: Admin may do everything, Reader nothing until a test says so.
const (
	Admin  = "s3cret-admin"
	Reader = "s3cret-reader"
)

// Server is an API server with its etcd.
type Server struct {
	t testing.TB
	// Dir has the files of the server, and Address is its HOST:PORT.
	Dir, Address string

	etcd, program string
	client        *http.Client
	stop          func()
}

// Program returns the path of a program that integration/setup.sh builds from
// integration/kubeapi. It ends the test if the program is missing.
func Program(t testing.TB, name string) string {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root(t), "integration/kubeapi/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`k8s.io/kubernetes v(\S+)`).FindSubmatch(mod)[1]
	path := filepath.Join(peers(), name+"-"+string(version), name)
	if _, err := os.Stat(path); err != nil {
		testkit.NotTested(t, "%s is missing: run integration/setup.sh %s, which takes ten minutes", path, name)
	}
	return path
}

// peers is where setup.sh puts what it builds.
func peers() string {
	if folder := os.Getenv("PENSTOCK_PEERS"); folder != "" {
		return folder
	}
	if cache, err := os.UserCacheDir(); err == nil {
		return filepath.Join(cache, "penstock-peers")
	}
	return filepath.Join(os.TempDir(), fmt.Sprint(os.Getuid()), "penstock-peers")
}

// root returns the folder of the module.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("there is no go.mod above the test")
		}
	}
}

// Start starts etcd and an API server at 127.0.0.1, and waits until it is ready.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt is Start at another address of the machine, which pods reach.
func StartAt(t testing.TB, host string) *Server {
	t.Helper()
	s := &Server{t: t, Dir: t.TempDir(), program: Program(t, "kube-apiserver")}
	if _, err := exec.LookPath("etcd"); err != nil {
		testkit.NotTested(t, "%v: run integration/setup.sh kube-apiserver", err)
	}
	s.etcd = FreeAddress(t)
	_, port, _ := net.SplitHostPort(FreeAddress(t))
	s.Address = net.JoinHostPort(host, port)
	peer := FreeAddress(t)
	s.Run("etcd", "--data-dir="+filepath.Join(s.Dir, "etcd"), "--unsafe-no-fsync", "--name=one",
		"--listen-client-urls=http://"+s.etcd, "--advertise-client-urls=http://"+s.etcd,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=one=http://"+peer)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	s.write("tokens.csv", Admin+",admin,1,system:masters\n"+Reader+",reader,2\n")
	s.write("audit.yaml", `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`)
	s.Restart()
	return s
}

// FreeAddress returns a HOST:PORT of 127.0.0.1 that is free now.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *Server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Run starts a program whose output is in a file of Dir. It ends with the test, or by
// the returned function.
func (s *Server) Run(program string, args ...string) (stop func()) {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, filepath.Base(program)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	process := exec.Command(program, args...)
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	s.t.Cleanup(stop)
	return stop
}

// Stop ends the API server. Its etcd stays.
func (s *Server) Stop() { s.stop() }

// Restart starts the API server again after Stop, and waits until it is ready.
func (s *Server) Restart() {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.Address)
	key := s.file("sa.key")
	s.stop = s.Run(s.program, "--etcd-servers=http://"+s.etcd, "--bind-address="+host, "--advertise-address="+host, "--secure-port="+port,
		"--cert-dir="+s.file("certs"), "--token-auth-file="+s.file("tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--audit-policy-file="+s.file("audit.yaml"), "--audit-log-path="+s.file("audit.log"))
	last := "nothing"
	if !testkit.Poll(testkit.Patience, func() bool {
		authority, err := os.ReadFile(s.Authority())
		if err != nil {
			return false
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(authority)
		s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		var code int
		code, last = s.Request(http.MethodGet, "/readyz", "")
		return code == http.StatusOK
	}) {
		log, _ := os.ReadFile(s.file("kube-apiserver.log"))
		s.t.Fatalf("the API server is not ready: %s\n%s", last, log[max(0, len(log)-3000):])
	}
}

func (s *Server) file(name string) string { return filepath.Join(s.Dir, name) }

// Authority is the file of the certificate that clients trust.
func (s *Server) Authority() string { return filepath.Join(s.Dir, "certs", "apiserver.crt") }

// Request sends a request as the administrator. Its code is 0 if there is no answer. A
// PATCH is a merge patch.
func (s *Server) Request(method, path, body string) (code int, text string) {
	return s.RequestAs(Admin, method, path, body)
}

// RequestAs is Request with another token.
func (s *Server) RequestAs(token, method, path, body string) (code int, text string) {
	request, err := http.NewRequestWithContext(s.t.Context(), method, "https://"+s.Address+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	all, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(all)
}

// Do sends a request that must succeed, and returns the answer.
func (s *Server) Do(method, path, body string) string {
	s.t.Helper()
	code, text := s.Request(method, path, body)
	if code/100 != 2 {
		s.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return text
}

// Define creates a CustomResourceDefinition and waits until its kind is served with its
// subresources.
func (s *Server) Define(definitions ...any) {
	s.t.Helper()
	for _, d := range definitions {
		text, err := json.Marshal(d)
		if err != nil {
			s.t.Fatal(err)
		}
		var of struct {
			Spec struct {
				Group    string
				Names    struct{ Plural string }
				Versions []struct {
					Name         string
					Served       bool
					Subresources struct{ Status *struct{} }
				}
			}
		}
		if err := json.Unmarshal(text, &of); err != nil {
			s.t.Fatal(err)
		}
		s.Do(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(text))
		for _, v := range of.Spec.Versions {
			want := `"name":"` + of.Spec.Names.Plural
			if v.Subresources.Status != nil {
				want += "/status"
			}
			if v.Served {
				testkit.WaitFor(s.t, of.Spec.Names.Plural+" to be served", func() bool {
					_, text := s.Request(http.MethodGet, "/apis/"+of.Spec.Group+"/"+v.Name, "")
					return strings.Contains(text, want+`"`)
				})
			}
		}
	}
}

// Kubeconfig writes a kubeconfig of the current context "test" and returns its path.
func (s *Server) Kubeconfig(token, namespace string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": [{"name": "test", "cluster": {"server": "https://%s", "certificate-authority": %q}}],
		"users": [{"name": "test", "user": {"token": %q}}],
		"contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": %q}}]}`,
		s.Address, s.Authority(), token, namespace)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// AccountToken returns a token of a service account, as a pod gets it.
func (s *Server) AccountToken(namespace, account string) string {
	s.t.Helper()
	token, err := s.RequestToken(namespace, account)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// RequestToken is AccountToken for other goroutines than the test's.
func (s *Server) RequestToken(namespace, account string) (string, error) {
	code, text := s.Request(http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token",
		`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}`)
	var answer struct{ Status struct{ Token string } }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Status.Token == "" {
		return "", fmt.Errorf("no token of %s/%s: status %d: %.500s", namespace, account, code, text)
	}
	return answer.Status.Token, nil
}

// Access is a request that the server answered.
type Access struct {
	Verb, Resource string // "patch", "gateways.gateway.networking.k8s.io/status"
	Code           int
}

// Accesses lists what a user did in the order of time, without discovery.
func (s *Server) Accesses(user string) (list []Access) {
	s.t.Helper()
	log, err := os.ReadFile(s.file("audit.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		var event struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      *struct{ Resource, Subresource, APIGroup string }
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal(line, &event) != nil || event.User.Username != user || event.ObjectRef == nil || event.ObjectRef.Resource == "" {
			continue
		}
		of := event.ObjectRef.Resource
		if event.ObjectRef.APIGroup != "" {
			of += "." + event.ObjectRef.APIGroup
		}
		if event.ObjectRef.Subresource != "" {
			of += "/" + event.ObjectRef.Subresource
		}
		list = append(list, Access{event.Verb, of, event.ResponseStatus.Code})
	}
	return list
}

// DefineGateways defines the kinds of the Gateway API as its module has them.
func (s *Server) DefineGateways() {
	s.t.Helper()
	const version = "1.4.0" // setup.sh installs it
	files, _ := filepath.Glob(filepath.Join(peers(), "gateway-api-"+version, "*.yaml"))
	if len(files) == 0 {
		testkit.NotTested(s.t, "the Gateway API is missing in %s: run make setup", peers())
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		var d map[string]any
		if err := yaml.Unmarshal(text, &d); err != nil {
			s.t.Fatal(err)
		}
		s.Define(d)
	}
}
