package node

import (
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
	"time"

	"penstock/internal/testkit"
	"penstock/node/kinds"
	"penstock/routing/formats/crd"
)

// apiServer is a real API server with a real etcd.
type apiServer struct {
	t            *testing.T
	binary, dir  string
	etcd, server string // host:port
	client       *http.Client
	stop         func() // ends the API server
}

const kubeAdmin = "s3cret-admin"

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	mod, err := os.ReadFile("../integration/kubeapi/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`k8s.io/kubernetes v(\S+)`).FindSubmatch(mod)[1]
	peers := os.Getenv("PENSTOCK_PEERS")
	if cache, err := os.UserCacheDir(); err == nil && peers == "" {
		peers = filepath.Join(cache, "penstock-peers")
	}
	s := &apiServer{t: t, binary: filepath.Join(peers, "kube-apiserver-"+string(version), "kube-apiserver"), dir: t.TempDir()}
	for _, program := range []string{s.binary, "etcd"} {
		if _, err := exec.LookPath(program); err != nil {
			testkit.NotTested(t, "%s is missing: run integration/setup.sh kube-apiserver, which takes ten minutes", program)
		}
	}
	s.etcd, s.server = freePort(t), freePort(t)
	peer := freePort(t)
	s.run("etcd", "--data-dir="+filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync", "--name=one",
		"--listen-client-urls=http://"+s.etcd, "--advertise-client-urls=http://"+s.etcd,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=one=http://"+peer)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	s.write("tokens.csv", kubeAdmin+",admin,1,system:masters\n")
	s.start()
	s.write("kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": [{"name": "test", "cluster": {"server": "https://%s", "certificate-authority": %q}}],
		"users": [{"name": "test", "user": {"token": %q}}],
		"contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}`,
		s.server, filepath.Join(s.dir, "certs", "apiserver.crt"), kubeAdmin))
	return s
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *apiServer) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *apiServer) run(program string, args ...string) (stop func()) {
	s.t.Helper()
	process := exec.Command(program, args...)
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

func (s *apiServer) start() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.server)
	key := filepath.Join(s.dir, "sa.key")
	s.stop = s.run(s.binary, "--etcd-servers=http://"+s.etcd, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+filepath.Join(s.dir, "certs"), "--token-auth-file="+filepath.Join(s.dir, "tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16")
	s.await("the API server is ready", func() bool {
		authority, err := os.ReadFile(filepath.Join(s.dir, "certs", "apiserver.crt"))
		if err != nil {
			return false
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(authority)
		s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		code, _ := s.request(http.MethodGet, "/readyz", "")
		return code == http.StatusOK
	})
}

// await waits for a condition, for minutes.
func (s *apiServer) await(what string, met func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !met(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			_, text := s.request("GET", kubeShop+"listeners/edge", "")
			s.t.Fatalf("not in time: %s\n%s", what, text)
		}
	}
}

func (s *apiServer) request(method, path, body string) (code int, text string) {
	request, err := http.NewRequestWithContext(s.t.Context(), method, "https://"+s.server+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+kubeAdmin)
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

func (s *apiServer) do(method, path, body string) {
	s.t.Helper()
	if code, text := s.request(method, path, body); code/100 != 2 {
		s.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
}

// condition returns "STATUS REASON MESSAGE" of a condition of an object.
func (s *apiServer) condition(path, what string) string {
	_, text := s.request(http.MethodGet, path, "")
	var o struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			Conditions []struct {
				Type, Status, Reason, Message string
				ObservedGeneration            int64
			}
		}
	}
	_ = json.Unmarshal([]byte(text), &o)
	for _, c := range o.Status.Conditions {
		if c.Type == what && c.ObservedGeneration == o.Metadata.Generation {
			return c.Status + " " + c.Reason + " " + c.Message
		}
	}
	return ""
}

func (s *apiServer) define() {
	s.t.Helper()
	for _, d := range crd.Definitions(kinds.All()) {
		body, err := json.Marshal(d)
		if err != nil {
			s.t.Fatal(err)
		}
		s.do(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(body))
	}
	s.await("the kinds are served", func() bool {
		_, text := s.request(http.MethodGet, "/apis/penstock.io/v1alpha1", "")
		return strings.Count(text, `"kind":`) >= 2*len(crd.Kinds(kinds.All()))
	})
}

const kubeShop = "/apis/penstock.io/v1alpha1/namespaces/shop/"

func TestResourcesFromKubernetes(t *testing.T) {
	s := startAPIServer(t)
	s.define()
	s.do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	const head = `{"apiVersion": "penstock.io/v1alpha1", "kind": %q, "metadata": {"name": %q}, "spec": %s}`
	service := fmt.Sprintf(head, "Service", "web", `{"endpoints": [{"address": "127.0.0.1:7001"}]}`)
	if code, text := s.request(http.MethodPost, kubeShop+"services?fieldValidation=Strict",
		strings.Replace(service, "endpoints", "endpoint", 1)); code != http.StatusBadRequest {
		t.Errorf("an unknown field: %d %s", code, text)
	}
	if code, text := s.request(http.MethodPost, kubeShop+"services", strings.Replace(service, `[{"address": "127.0.0.1:7001"}]`, `"x"`, 1)); code != http.StatusUnprocessableEntity {
		t.Errorf("a field of a wrong type: %d %s", code, text)
	}
	// The listener refers to a service that comes later.
	s.do(http.MethodPost, kubeShop+"listeners", fmt.Sprintf(head, "Listener", "edge", `{"address": "127.0.0.1:0", "service": "shop.web"}`))
	n := startNode(t, "", func(c *Config) {
		c.Kubernetes = KubernetesResources{Enabled: true, Kubeconfig: filepath.Join(s.dir, "kubeconfig")}
	})
	s.await("the listener without a service is refused", func() bool {
		return strings.HasPrefix(s.condition(kubeShop+"listeners/edge", "Accepted"), "False Invalid Listener/shop.edge spec.service: there is no such Service (shop.web)")
	})
	s.do(http.MethodPost, kubeShop+"services", service)
	for _, path := range []string{"services/web", "listeners/edge"} {
		s.await(path, func() bool {
			return s.condition(kubeShop+path, "Accepted") == "True Accepted " && s.condition(kubeShop+path, "Programmed") == "True Programmed "
		})
	}
	has := func(kind, name string) bool {
		set, _ := n.catalog.InForce()
		for o := range set.All(kind) {
			if o.Name == name {
				return true
			}
		}
		return false
	}
	if !has("Service", "shop.web") || !has("Listener", "shop.edge") {
		t.Error("the resources are not in force")
	}
	// A change with faults is told, holds up no other object, and leaves what is.
	s.do(http.MethodPatch, kubeShop+"services/web", `{"spec": {"endpoints": [{"address": "nonsense"}]}}`)
	s.do(http.MethodPost, kubeShop+"services", fmt.Sprintf(head, "Service", "other", `{"endpoints": [{"address": "127.0.0.1:7002"}]}`))
	s.await("the bad change is told", func() bool {
		return strings.HasPrefix(s.condition(kubeShop+"services/web", "Accepted"), "False Invalid Service/shop.web spec.endpoints[0].address: ")
	})
	s.await("the other object", func() bool { return has("Service", "shop.other") })
	s.do(http.MethodPatch, kubeShop+"services/other", `{"spec": {"endpoints": [{"address": "nonsense"}]}}`)
	s.await("the other bad change is told", func() bool {
		return strings.HasPrefix(s.condition(kubeShop+"services/other", "Accepted"), "False Invalid ")
	})
	if !has("Service", "shop.web") || !has("Service", "shop.other") {
		t.Error("a bad change deleted the resource")
	}
	s.do(http.MethodPatch, kubeShop+"services/other", `{"spec": {"endpoints": [{"address": "127.0.0.1:7003"}]}}`)
	// While the API server is away, nothing is deleted; what was deleted meanwhile is then.
	s.stop()
	s.await("its absence is told", func() bool { return len(n.kubernetes.State().Problems) > 1 })
	s.start()
	if !has("Service", "shop.other") || !has("Listener", "shop.edge") {
		t.Error("resources went while the API server was away")
	}
	s.do(http.MethodDelete, kubeShop+"services/web", "")
	s.do(http.MethodDelete, kubeShop+"listeners/edge", "")
	s.await("both are deleted", func() bool { return !has("Service", "shop.web") && !has("Listener", "shop.edge") })
	s.await("all is known", func() bool { st := n.kubernetes.State(); return st.Synced && st.Refused == 0 && st.Objects == 1 })
	written := n.kubernetes.State().StatusWritten
	s.do(http.MethodPatch, kubeShop+"services/other", `{"metadata": {"labels": {"a": "b"}}}`)
	s.await("the label", func() bool {
		set, _ := n.catalog.InForce()
		return len(set.WithLabels("Service", map[string]string{"a": "b"})) == 1
	})
	if again := n.kubernetes.State().StatusWritten; again != written {
		t.Errorf("%d statuses were written that are the same", again-written)
	}
}
