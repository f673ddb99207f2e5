package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"penstock/internal/testkit"
	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = provider.Query{Service: "web"}

// server is a real etcd.
type server struct {
	t       *testing.T
	url     string
	peer    string
	dir     string
	process *exec.Cmd
	client  *clientv3.Client
}

// startEtcd starts etcd on ports that are free. Ports may be taken meanwhile, so
// it tries others until one starts.
func startEtcd(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		testkit.NotTested(t, "etcd is missing: run integration/setup.sh")
	}
	s := &server{t: t, dir: t.TempDir()}
	s.url, s.peer = freeURL(t), freeURL(t)
	s.start()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.url}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	t.Cleanup(func() { client.Close() })
	return s
}

func freeURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// start starts the process and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.process = exec.Command("etcd", "--name=one", "--data-dir="+filepath.Join(s.dir, "data"), "--unsafe-no-fsync",
		"--listen-client-urls="+s.url, "--advertise-client-urls="+s.url,
		"--listen-peer-urls="+s.peer, "--initial-advertise-peer-urls="+s.peer, "--initial-cluster=one="+s.peer)
	s.process.Stdout, s.process.Stderr = log, log
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
	})
	s.t.Cleanup(stop)
	address := strings.TrimPrefix(s.url, "http://")
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("etcd does not serve: %v\n%s", err, text)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (s *server) put(key, value string, options ...clientv3.OpOption) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	if _, err := s.client.Put(ctx, key, value, options...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) delete(key string, options ...clientv3.OpOption) {
	s.t.Helper()
	if _, err := s.client.Delete(s.t.Context(), key, options...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) source(change func(*Config)) *Source {
	s.t.Helper()
	cfg := Config{Endpoints: []string{s.url}, Prefix: "/svc", Timeout: 30 * time.Second}
	if change != nil {
		change(&cfg)
	}
	source, err := New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return source
}

func endpointJSON(address string) string {
	text, _ := json.Marshal(map[string]string{"address": address})
	return string(text)
}

func TestEndpointsFollowKeys(t *testing.T) {
	s := startEtcd(t)
	s.put("/svc/web/1", endpointJSON("10.0.0.1:80"))
	s.put("/svcs/web/1", endpointJSON("10.9.9.9:80")) // another prefix
	other := provider.Query{Service: "other"}
	sink := providertest.NewSink(web)
	sink.Start(t, s.source(nil))
	sink.Await(t, web, "10.0.0.1:80")
	s.put("/svc/web/2", `{"address":"10.0.0.2:80","weight":3,"tags":{"version":"v2"}}`)
	sink.Await(t, web, "10.0.0.1:80; 10.0.0.2:80*3{version=v2}")
	s.put("/svc/web/1", "?")
	sink.AwaitWarning(t, web, "key /svc/web/1")
	sink.Await(t, web, "10.0.0.1:80; 10.0.0.2:80*3{version=v2}")
	s.delete("/svc/web/1")
	sink.Await(t, web, "10.0.0.2:80*3{version=v2}")
	s.put("/svc/other/1", endpointJSON("10.0.0.3:80"))
	sink.Want(web, other)
	sink.Await(t, other, "10.0.0.3:80")

	lease, err := s.client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	s.put("/svc/web/3", endpointJSON("10.0.0.4:80"), clientv3.WithLease(lease.ID))
	sink.Await(t, web, "10.0.0.2:80*3{version=v2}; 10.0.0.4:80")
	if _, err := s.client.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	sink.Await(t, web, "10.0.0.2:80*3{version=v2}")
	s.delete("/svc/", clientv3.WithPrefix())
	sink.Await(t, web, "none")
	sink.Await(t, other, "none")
}

func TestAnswersOfEtcdConfirmWhatIsKnown(t *testing.T) {
	s := startEtcd(t)
	s.put("/svc/web/1", endpointJSON("10.0.0.1:80"))
	sink := providertest.NewSink(web)
	sink.Start(t, s.source(func(c *Config) { c.Timeout = 200 * time.Millisecond }))
	sink.AwaitConfirmed(t, web, 2)
}

// More keys than a page has are all read.
func TestManyKeysAreReadInPages(t *testing.T) {
	s := startEtcd(t)
	const n = 2*pageSize + 7
	var ops []clientv3.Op
	for i := range n {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("/svc/web/%d", i), endpointJSON(fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1))))
		if len(ops) == 100 || i == n-1 {
			if _, err := s.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
	sink := providertest.NewSink(web)
	sink.Start(t, s.source(nil))
	s.put("/svc/web/last", endpointJSON("10.9.0.1:80"))
	sink.AwaitCount(t, web, n+1)

	few := providertest.NewSink(web)
	few.Start(t, s.source(func(c *Config) { c.MaxKeys = n }))
	few.AwaitFailure(t, web, fmt.Sprintf("there are more than %d keys below /svc/; use a longer prefix", n))
}

// The runner keeps the endpoints while etcd is away, and follows it again.
func TestEtcdReturns(t *testing.T) {
	s := startEtcd(t)
	s.put("/svc/web/1", endpointJSON("10.0.0.1:80"))
	inForce := make(chan string, 100)
	runner := provider.NewRunner(provider.Config{
		Source: s.source(func(c *Config) { c.Timeout = time.Second }),
		Apply: func(_ context.Context, changes []provider.Change) error {
			for _, c := range changes {
				for _, e := range c.Put {
					inForce <- "+" + e.Address
				}
				for _, a := range c.Gone {
					inForce <- "-" + a
				}
			}
			return nil
		},
		HoldFor: -1,
	})
	runner.Want([]provider.Query{web})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- runner.Run(ctx) }()
	want := func(event string) {
		t.Helper()
		select {
		case got := <-inForce:
			if got != event {
				t.Fatalf("%s, want %s", got, event)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("nothing happened, want %s", event)
		}
	}
	want("+10.0.0.1:80")
	if err := s.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.process.Wait()
	for !runner.Status().Queries[0].Stale {
		<-time.After(20 * time.Millisecond)
	}
	s.start()
	s.put("/svc/web/2", endpointJSON("10.0.0.2:80"))
	want("+10.0.0.2:80")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPasswords(t *testing.T) {
	s := startEtcd(t)
	s.put("/svc/web/1", endpointJSON("10.0.0.1:80"))
	ctx := t.Context()
	for _, err := range []error{
		second(s.client.RoleAdd(ctx, "reader")),
		second(s.client.RoleGrantPermission(ctx, "reader", "/svc/", clientv3.GetPrefixRangeEnd("/svc/"), clientv3.PermissionType(clientv3.PermRead))),
		second(s.client.UserAdd(ctx, "root", "r00t")),
		second(s.client.UserGrantRole(ctx, "root", "root")),
		second(s.client.UserAdd(ctx, "penstock", "s3cret")),
		second(s.client.UserGrantRole(ctx, "penstock", "reader")),
		second(s.client.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ user, password, prefix, want string }{
		{"penstock", "s3cret", "/svc", ""},
		{"penstock", "wrong-s3cret", "/svc", "refuses the username or password"},
		{"penstock", "s3cret", "/other", `does not let user "penstock" read /other/`},
		{"", "", "/svc", "set username and password"},
	} {
		sink := providertest.NewSink(web)
		sink.Start(t, s.source(func(c *Config) { c.Username, c.Password, c.Prefix = test.user, test.password, test.prefix }))
		if test.want == "" {
			sink.Await(t, web, "10.0.0.1:80")
			continue
		}
		sink.AwaitFailure(t, web, test.want)
		if err := sink.Err(web); strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the password is in the error %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A watch whose revisions were compacted reads everything again.
func TestCompaction(t *testing.T) {
	s := &Source{}
	err := s.check(t.Context(), &clientv3.WatchResponse{CompactRevision: 7}, true)
	if err == nil || !strings.Contains(err.Error(), "reading all keys again") {
		t.Error(err)
	}
	if err := s.check(t.Context(), &clientv3.WatchResponse{}, false); err == nil {
		t.Error("the end of a watch is no error")
	}
}

func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	source, err := New(Config{Endpoints: []string{l.Addr().String()}, Prefix: "/svc", Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	sink := providertest.NewSink(web)
	sink.Start(t, source)
	sink.AwaitFailure(t, web, "does not answer within 100ms")
}

func TestConfigs(t *testing.T) {
	for want, cfg := range map[string]Config{
		"endpoints are missing": {Prefix: "/svc"},
		"the prefix is missing": {Endpoints: []string{"a:1"}, Prefix: "/"},
		`unknown format "yaml"`: {Endpoints: []string{"a:1"}, Prefix: "/svc", Format: "yaml"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}
