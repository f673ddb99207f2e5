package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// mustNotStart starts a node that must exit with a one-line error that contains
// all words.
func (m *member) mustNotStart(words []string, flags ...string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), testkit.Patience)
	defer cancel()
	argv := m.argv(flags...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), quickRace)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err := cmd.Run()
	if err == nil || ctx.Err() != nil {
		m.t.Errorf("start %v: %v, want an error soon\n%s", flags, err, errs.String())
		return
	}
	last := ""
	for line := range strings.Lines(errs.String()) {
		if strings.HasPrefix(line, "penstock: ") {
			last = line
		}
	}
	for _, w := range words {
		if !strings.Contains(last, w) {
			m.t.Errorf("start %v ends with %q, want %q in it\n%s", flags, last, w, errs.String())
		}
	}
}

// Only a valid token of this cluster admits a node.
func TestUnauthorizedNodesDoNotJoin(t *testing.T) {
	t.Parallel()
	f, other := startCluster(t, 1), startCluster(t, 1)
	prefix := newNetwork()
	m := f.members[0]
	at := []string{"--join", m.ip + ":" + clusterPort}
	token := func(args ...string) string {
		return strings.TrimSpace(m.must(append([]string{"token", "create"}, args...)...))
	}
	good := token("--name", "good", "--role", "join")
	revoked := token("--name", "revoked", "--role", "join")
	m.must("token", "revoke", "revoked")
	expired := token("--name", "expired", "--role", "join", "--ttl", "1s")
	reader := token("--name", "reader", "--role", "reader")
	foreign := strings.TrimSpace(other.members[0].must("token", "create", "--name", "x", "--role", "join"))
	testkit.WaitFor(t, "the token to expire", func() bool {
		var list api.Tokens
		if json.Unmarshal([]byte(m.must("token", "list", "-o", "json")), &list) != nil {
			return false
		}
		return !slices.ContainsFunc(list, func(t api.Token) bool { return t.Name == "expired" && t.State == "valid" })
	})
	for i, c := range []struct {
		name, token string
		words       []string
	}{
		{"revoked", revoked, []string{"revoked"}},
		{"expired", expired, []string{"expired"}},
		{"of a reader", reader, []string{"token"}},
		{"of another cluster", foreign, []string{"cluster"}},
		{"cut", good[:len(good)-4], []string{"token"}},
		{"none", "", []string{"token"}},
	} {
		s := f.add(fmt.Sprint("s", i), fmt.Sprint(prefix, i+1))
		flags := at
		if c.token != "" {
			flags = append(slices.Clone(at), "--token", c.token)
		}
		s.mustNotStart(c.words, flags...)
	}
	if list, _ := m.membersSeen(); len(list) != 1 {
		t.Errorf("members: %+v", list)
	}
	if log := m.log(); strings.Contains(log, good) || strings.Contains(log, revoked) {
		t.Error("the log has a token")
	}
}

// A node without its data folder is a new node; a copy of a data folder is
// rejected.
func TestWipedAndCopiedFolders(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	prefix := newNetwork()
	victim := f.members[2]
	copied := f.add("n3", prefix+"9")
	if out, err := exec.Command("cp", "-a", victim.dir+"/.", copied.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	copied.mustNotStart([]string{"copy"}, f.join...)
	copied.down = true

	same := f.add("n3", prefix+"8")
	same.mustNotStart([]string{"n3", "--name"}, f.join...)
	same.down = true

	var old api.Members
	testkit.WaitFor(t, "the members", func() bool { old, _ = f.members[0].membersSeen(); return len(old) == 3 })
	victim.kill()
	if err := os.RemoveAll(victim.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(victim.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the others to miss it", func() bool {
		list, _ := f.members[0].membersSeen()
		return slices.ContainsFunc(list, func(x api.Member) bool { return x.Name == "n3" && x.State == "unreachable" })
	})
	victim.launch(f.join...)
	f.waitSettled(3)
	testkit.WaitFor(t, "the wiped node to have a new ID, and the old one to be gone", func() bool {
		now, _ := f.members[0].membersSeen()
		return len(now) == 3 && now[2].ID != old[2].ID
	})
}

// Nodes with different values of --expect do not form a cluster.
func TestUnequalExpectIsAnError(t *testing.T) {
	t.Parallel()
	token := strings.TrimSpace(command(t, "", "token", "new").out)
	f := &cluster{t: t}
	prefix := newNetwork()
	join := prefix + "1:" + clusterPort + "," + prefix + "2:" + clusterPort
	a, b := f.add("a", prefix+"1"), f.add("b", prefix+"2")
	a.startProcess("--expect", "3", "--join", join, "--token", token)
	a.wantCode = 1
	b.mustNotStart([]string{"expect"}, "--expect", "2", "--join", join, "--token", token)
	b.down = true
	a.wantExit(1)
	a.down = true
}

// Garbage on every port has no noticeable effect.
func TestGarbageOnEveryPort(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	f.members[0].apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	tr := startTraffic(f, "9100", 20)
	m := f.members[0]
	before := m.settledMemory()
	garbage := make([]byte, 10<<20)
	if _, err := rand.Read(garbage); err != nil {
		t.Fatal(err)
	}
	var sending sync.WaitGroup
	for _, port := range []string{clusterPort, httpPort, "7946"} {
		for _, first := range []string{"", "A", "R", "APSK\xff\xff\x00\x00", "\x16\x03\x01\xff\xff", "GET / HTTP/1.1\r\n"} {
			sending.Go(func() {
				c, err := net.DialTimeout("tcp", m.ip+":"+port, testkit.Patience)
				if err != nil {
					return // refused
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testkit.Patience))
				_, _ = c.Write(append([]byte(first), garbage...)) // most are closed before all of it is written
				_, _ = io.Copy(io.Discard, c)
			})
		}
	}
	udp, err := net.Dial("udp", m.ip+":7946")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for i := range 1000 {
		_, _ = udp.Write(garbage[i*1000 : i*1000+1+i%1400])
	}
	sending.Wait()
	m.apply(serviceOnAll("after", "9101", testkit.Serve(t, echo)))
	f.waitSettled(3)
	if grown := m.settledMemory() - before; grown > 150<<20 {
		t.Errorf("its memory grew by %d MiB", grown>>20)
	}
	if lines := strings.Count(m.log(), "\n"); lines > 500 {
		t.Errorf("the log has %d lines", lines)
	}
	tr.mustBeUnbroken()
}

// Many concurrent commands are answered or told to retry.
func TestManyAdminClientsAtOnce(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	token := strings.TrimSpace(f.members[0].must("token", "create", "--name", "many", "--role", "admin"))
	addr := f.members[1].ip + ":" + clusterPort
	var all sync.WaitGroup
	var done, busy atomic.Int64
	clients := 200
	slots := make(chan struct{}, 40) // bounds the processes at once, for small machines
	for i := range clients {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r := command(t, serviceOnAll(fmt.Sprint("s", i), fmt.Sprint(10000+i), "127.0.0.1:1"),
				"apply", "-f", "-", "--addr", addr, "--token", token, "--timeout", "60s")
			switch {
			case r.code == 0:
				done.Add(1)
			case strings.Contains(r.err, "too many") || strings.Contains(r.err, "again"):
				busy.Add(1)
			default:
				t.Errorf("client %d: %d %q", i, r.code, r.err)
			}
		})
	}
	all.Wait()
	if done.Load() < int64(clients)/2 {
		t.Errorf("%d of %d were answered, %d told to come again", done.Load(), clients, busy.Load())
	}
	f.mustAgree()
}

// mount mounts a small disk at a folder. It skips the test if even root may not
// mount, as in some containers.
func mount(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	switch err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); {
	case errors.Is(err, syscall.EPERM):
		testkit.NotTested(t, "nothing can be mounted here, not even by root")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// A full disk stops changes and nothing else; they resume when there is room.
func TestFullDiskStopsOnlyChanges(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testkit.NotTested(t, "a small disk wants root")
	}
	f := &cluster{t: t}
	prefix := newNetwork()
	for i := range 3 {
		m := f.add(fmt.Sprintf("n%d", i+1), fmt.Sprint(prefix, i+1))
		if i == 0 {
			mount(t, m.dir, 0, "size=24m,mode=700")
			m.launch("--init")
			f.join = m.joinFlags()
		} else {
			m.launch(f.join...)
		}
	}
	f.waitSettled(3)
	one := f.members[0]
	one.apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	tr := startTraffic(f, "9100", 30)
	ballast := filepath.Join(one.dir, "ballast")
	fill, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 4096)
	for err == nil {
		_, err = fill.Write(chunk)
	}
	fill.Close()
	// The other nodes decide, whichever led before.

	for i := range 20 {
		testkit.WaitFor(t, "a change that the other two decide", func() bool {
			r := f.members[1].pipe(serviceOnAll(fmt.Sprint("more", i), fmt.Sprint(9200+i), "127.0.0.1:1"),
				"apply", "-f", "-", "--wait", "none", "--timeout", "10s")
			return r.code == 0
		})
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	f.mustAgree()
	f.waitSettled(3)
	tr.mustBeUnbroken()
}

// A read-only data folder is reported at once.
func TestReadOnlyFolderIsAnError(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testkit.NotTested(t, "a read-only file system wants root")
	}
	f := &cluster{t: t}
	m := f.add("n1", newNetwork()+"1")
	mount(t, m.dir, syscall.MS_RDONLY, "size=1m")
	m.mustNotStart([]string{"read-only"}, "--init")
}

// A node that constantly starts and stops does not disturb the others.
func TestFlappingNodeIsHarmless(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	f.members[0].apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	tr := startTraffic(f, "9100", 50)
	flapping := f.members[2]
	tr.excuseNode(flapping)
	for range 6 {
		flapping.kill()
		flapping.startProcess()
	}
	flapping.waitReady()
	f.waitSettled(3)
	tr.mustBeUnbroken()
}

// Nodes behind a balancer that polls /readyz are restarted one by one: no
// client sees an error.
func TestRollingRestartBehindABalancer(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, "--drain-wait", "2s", "--drain-timeout", "2s")
	f.members[0].apply(`kind: Service
name: svc
spec: {endpoints: [{address: "` + testkit.Serve(t, echo) + `"}]}
---
kind: Listener
name: svc
spec: {address: ":9100", service: svc, proxyProtocol: {accept: [127.0.0.0/8]}}
`)
	config := "defaults\n" +
		" mode tcp\n" +
		" timeout connect 5s\n" +
		" timeout check 5s\n" +
		" timeout client 60s\n" +
		" timeout server 60s\n" +
		" option redispatch\n" +
		" retries 3\n" +
		"frontend in\n" +
		" bind 127.0.0.1:%d\n" +
		" default_backend nodes\n" +
		"backend nodes\n" +
		" balance roundrobin\n" +
		" option httpchk GET /readyz\n" +
		" default-server check inter 200ms fall 1 rise 1 port " + httpPort + " send-proxy-v2\n"
	for _, m := range f.members {
		config += fmt.Sprintf(" server %s %s:9100\n", m.name, m.ip)
	}
	front := haproxy(t, config)[0]
	var clients sync.WaitGroup
	stop := make(chan struct{})
	var served, failed atomic.Int64
	var first atomic.Value
	for range 8 {
		clients.Go(func() {
			buf := make([]byte, 16)
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.DialTimeout("tcp", front, testkit.Patience)
				if err == nil {
					for i := 0; i < 5 && err == nil; i++ {
						err = exchange(c, buf)
					}
					c.Close()
				}
				if err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, err.Error())
					continue
				}
				served.Add(1)
			}
		})
	}
	for _, m := range f.members {
		m.stop()
		m.launch()
		f.waitSettled(3)
	}
	close(stop)
	clients.Wait()
	if failed.Load() > 0 || served.Load() == 0 {
		t.Errorf("%d clients were served, %d failed, the first with %v", served.Load(), failed.Load(), first.Load())
	}
}
