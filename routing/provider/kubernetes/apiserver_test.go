package kubernetes

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

	discoveryv1 "k8s.io/api/discovery/v1"

	"penstock/internal/testkit"
	"penstock/routing/kubeapi"
	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

const adminToken, readerToken = "s3cret-admin", "s3cret-reader"

// cluster is a real API server with a real etcd. There is no kubelet and no
// controller: the tests write the EndpointSlices.
type cluster struct {
	t            *testing.T
	binary, dir  string
	etcd, server string // host:port
	client       *http.Client
	stop         func() // ends the API server
}

// peersFolder is where integration/setup.sh puts what it builds.
func peersFolder() string {
	if folder := os.Getenv("PENSTOCK_PEERS"); folder != "" {
		return folder
	}
	if cache, err := os.UserCacheDir(); err == nil {
		return filepath.Join(cache, "penstock-peers")
	}
	return filepath.Join(os.TempDir(), fmt.Sprint(os.Getuid()), "penstock-peers")
}

// startCluster starts etcd and an API server.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	mod, err := os.ReadFile("../../../integration/kubeapi/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`k8s.io/kubernetes v(\S+)`).FindSubmatch(mod)[1]
	c := &cluster{t: t, binary: filepath.Join(peersFolder(), "kube-apiserver-"+string(version), "kube-apiserver"), dir: t.TempDir()}
	for _, program := range []string{c.binary, "etcd"} {
		if _, err := exec.LookPath(program); err != nil {
			testkit.NotTested(t, "%s is missing: run integration/setup.sh kube-apiserver, which takes ten minutes", program)
		}
	}
	c.etcd, c.server = freeAddress(t), freeAddress(t)
	peer := freeAddress(t)
	c.run("etcd", "--data-dir="+filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--name=one",
		"--listen-client-urls=http://"+c.etcd, "--advertise-client-urls=http://"+c.etcd,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=one=http://"+peer)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.write("tokens.csv", adminToken+",admin,1,system:masters\n"+readerToken+",reader,2\n")
	c.start()
	return c
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (c *cluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// run starts a program that ends with the test or by the returned function.
func (c *cluster) run(program string, args ...string) (stop func()) {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, filepath.Base(program)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	process := exec.Command(program, args...)
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		c.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	c.t.Cleanup(stop)
	return stop
}

// start starts the API server and waits until it is ready.
func (c *cluster) start() {
	c.t.Helper()
	_, port, _ := net.SplitHostPort(c.server)
	key := filepath.Join(c.dir, "sa.key")
	c.stop = c.run(c.binary, "--etcd-servers=http://"+c.etcd, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+filepath.Join(c.dir, "certs"), "--token-auth-file="+filepath.Join(c.dir, "tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16")
	last := "nothing"
	for deadline := time.Now().Add(3 * time.Minute); ; {
		if authority, err := os.ReadFile(c.authority()); err == nil {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(authority)
			c.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
			var code int
			if code, last = c.request(http.MethodGet, "/readyz", ""); code == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(c.dir, "kube-apiserver.log"))
			c.t.Fatalf("the API server is not ready: %s\n%s", last, log[max(0, len(log)-3000):])
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (c *cluster) authority() string { return filepath.Join(c.dir, "certs", "apiserver.crt") }

// request sends a request as an administrator.
func (c *cluster) request(method, path, body string) (code int, text string) {
	request, err := http.NewRequestWithContext(c.t.Context(), method, "https://"+c.server+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	all, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(all)
}

// do sends a request that must succeed.
func (c *cluster) do(method, path, body string) {
	c.t.Helper()
	if code, text := c.request(method, path, body); code/100 != 2 {
		c.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
}

func (c *cluster) put(o item) {
	c.t.Helper()
	path := "/api/v1/namespaces/shop/services"
	if _, ok := o.(*discoveryv1.EndpointSlice); ok {
		path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
	}
	body, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	name := o.GetObjectMeta().GetName()
	if code, _ := c.request(http.MethodGet, path+"/"+name, ""); code == http.StatusNotFound {
		c.do(http.MethodPost, path, string(body))
	} else {
		c.do(http.MethodPut, path+"/"+name, string(body))
	}
}

// source returns a source that reads with a token.
func (c *cluster) source(token string, adapt func(*Config)) *Source {
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": [{"name": "test", "cluster": {"server": "https://%s", "certificate-authority": %q}}],
		"users": [{"name": "test", "user": {"token": %q}}],
		"contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "shop"}}]}`,
		c.server, c.authority(), token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return newSource(c.t, path, adapt)
}

func TestRealAPIServer(t *testing.T) {
	c := startCluster(t)
	c.do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)

	refused := providertest.NewSink(web)
	refused.Start(t, c.source("s3cret-wrong", nil))
	refused.AwaitFailure(t, web, "refuses the credentials (401 Unauthorized)")

	sink := providertest.NewSink(web)
	sink.Start(t, c.source(readerToken, nil))
	sink.AwaitFailure(t, web, `403 Forbidden: allow the verbs list and watch on `)
	if err := sink.Err(web); !strings.Contains(err.Error(), `User "reader" cannot list resource`) || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/"
	c.do(http.MethodPost, rbac+"roles", `{"metadata": {"name": "endpoints"}, "rules": [
		{"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
		{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]}`)
	c.do(http.MethodPost, rbac+"rolebindings", `{"metadata": {"name": "endpoints"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "endpoints"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]}`)
	sink.Await(t, web, "none")

	c.put(aService("web", "http:80"))
	first := aSlice("web-1", "10.0.0.1", "10.0.0.2?", "10.0.0.3-")
	first.Endpoints[0].Zone, first.Endpoints[0].NodeName = to("zone-a"), to("node-1")
	c.put(first)
	sink.Await(t, web, "10.0.0.1:8080{node=node-1 zone=zone-a}; 10.0.0.2:8080 notReady; 10.0.0.3:8080 terminating")
	c.put(aSlice("web-1", "10.0.0.2"))
	c.put(aSlice("web-2", "10.0.0.4"))
	sink.Await(t, web, "10.0.0.2:8080; 10.0.0.4:8080")
	c.do(http.MethodDelete, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-1", "")
	sink.Await(t, web, "10.0.0.4:8080")

	all := provider.Query{Service: "shop/web", Port: "http"}
	everywhere := providertest.NewSink(all)
	everywhere.Start(t, c.source(adminToken, func(cfg *Config) { cfg.Namespaces = []string{AllNamespaces} }))
	everywhere.Await(t, all, "10.0.0.4:8080")

	c.stop()
	sink.AwaitFailure(t, web, "connection refused")
	c.start()
	c.put(aSlice("web-2", "10.0.0.5"))
	sink.Await(t, web, "10.0.0.5:8080")
	everywhere.Await(t, all, "10.0.0.5:8080")
	c.pages(t)
}

// pages reads a list of several pages.
func (c *cluster) pages(t *testing.T) {
	t.Helper()
	const n = kubeapi.PageSize + 3
	for i := range n {
		c.put(aSlice(fmt.Sprintf("many-%d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)))
	}
	sink := providertest.NewSink(web)
	sink.Start(t, c.source(readerToken, nil))
	sink.AwaitCount(t, web, n+1)
}
