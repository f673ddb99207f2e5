package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
	"penstock/node/api"
)

// cluster is a cluster of real nodes, each with its own loopback address,
// folder and log. All nodes use the same ports.
type cluster struct {
	t       testing.TB
	members []*member
	bin     string // default of member.bin
	// join is --join and --token of further nodes.
	join []string
}

// member is a node of a cluster.
type member struct {
	*node
	name, ip string
	flags    []string // passed at every start
	inside   []string // command prefix that enters the node's network namespace; nil: none
	bin      string   // the program to start; "": this version's
	down     bool     // stopped by the test
}

const (
	clusterPort = "7947"
	httpPort    = "7948"
)

// networkCount numbers the loopback networks, 127.x.y.1 and following, so that
// each cluster gets its own.
var networkCount atomic.Int32

func newNetwork() string {
	n := int(networkCount.Add(1))
	return fmt.Sprintf("127.%d.%d.", 16+(os.Getpid()+n/250)%200, n%250)
}

// quickCluster are settings without delays.
var quickCluster = []string{
	"--access-log", "off", "--log-format", "json", "--drain-wait", "0s", "--drain-timeout", "0s",
}

// startCluster starts the first node with --init and the others with the line
// that it prints, and waits until all agree on the members.
func startCluster(t testing.TB, size int, flags ...string) *cluster {
	t.Helper()
	return startClusterOf(t, "", size, flags...)
}

// startClusterOf is startCluster with another program; "": this version's.
func startClusterOf(t testing.TB, bin string, size int, flags ...string) *cluster {
	t.Helper()
	f := &cluster{t: t, bin: bin}
	prefix := newNetwork()
	for i := range size {
		m := f.add(fmt.Sprintf("n%d", i+1), fmt.Sprint(prefix, i+1), flags...)
		if i == 0 {
			m.launch("--init")
			f.join = m.joinFlags()
		} else {
			m.launch(f.join...)
		}
	}
	f.waitSettled(size - (size+1)%2)
	return f
}

// add prepares a node without starting it.
func (f *cluster) add(name, ip string, flags ...string) *member {
	m := &member{node: newNode(f.t), name: name, ip: ip, flags: flags, bin: f.bin}
	f.members = append(f.members, m)
	return m
}

// moveTo moves a node, which must be stopped, to another address.
func (m *member) moveTo(ip string) { m.ip, m.http = ip, "" }

// argv returns the command line of a start.
func (m *member) argv(extra ...string) []string {
	bin := m.bin
	if bin == "" {
		bin = program(m.t)
	}
	args := []string{bin, "start", "--name", m.name, "--data-dir", m.dir, "--bind", m.ip,
		"--gossip", m.ip + ":7946", "--cluster", m.ip + ":" + clusterPort, "--http", m.ip + ":" + httpPort}
	args = append(append(args, quickCluster...), m.flags...)
	return append(args, extra...)
}

// launch starts the node and waits until it is ready.
func (m *member) launch(extra ...string) {
	m.t.Helper()
	m.startProcess(extra...)
	m.waitReady()
}

// startProcess starts the process without waiting for it.
func (m *member) startProcess(extra ...string) {
	m.t.Helper()
	first := m.proc == nil
	argv := append(slices.Clone(m.inside), "env", "-u", "PENSTOCK_ADDR", "PENSTOCK_PRINT_TOKEN=true", quickRace)
	proc, err := process.Start("penstock-"+m.name, m.dir, append(argv, m.argv(extra...)...))
	if err != nil {
		m.t.Fatal(err)
	}
	m.proc, m.down, m.ended = proc, false, false
	m.http = m.ip + ":" + httpPort
	if first {
		m.t.Cleanup(m.finish)
	}
}

func (m *member) waitReady() {
	m.t.Helper()
	testkit.WaitFor(m.t, m.name+" to be ready", func() bool {
		m.mustBeRunning()
		code, _ := m.fetch("/readyz")
		return code == http.StatusOK
	})
}

// kill ends the node like a crash.
func (m *member) kill() {
	m.t.Helper()
	m.down, m.ended = true, true
	m.signal(syscall.SIGKILL)
	_ = m.proc.Wait()
}

// stop stops the node with SIGTERM.
func (m *member) stop() {
	m.t.Helper()
	m.down = true
	m.signal(syscall.SIGTERM)
	m.wantExit(0)
}

// joinFlags returns --join and --token from the line that --init prints.
func (m *member) joinFlags() []string {
	m.t.Helper()
	var found []string
	testkit.WaitFor(m.t, "the join line of "+m.name, func() bool {
		for line := range strings.Lines(m.log()) {
			fields := strings.Fields(line)
			for i, w := range fields {
				if (w == "--join" || w == "--token") && i+1 < len(fields) {
					found = append(found, w, strings.Trim(fields[i+1], `"'`))
				}
			}
			if len(found) >= 4 {
				found = found[:4]
				return true
			}
			found = nil
		}
		return false
	})
	return found
}

// up returns the running nodes.
func (f *cluster) up() []*member {
	var up []*member
	for _, m := range f.members {
		if m.proc != nil && !m.down {
			up = append(up, m)
		}
	}
	return up
}

// membersSeen returns the member list of a node.
func (m *member) membersSeen() (api.Members, bool) {
	r := m.run("members", "-o", "json")
	var list api.Members
	return list, r.code == 0 && json.Unmarshal([]byte(r.out), &list) == nil
}

// leader returns the node that every running node reports as the leader; nil if
// they disagree or it is stopped.
func (f *cluster) leader() *member {
	seen, ok := f.memberLists()
	if !ok {
		return nil
	}
	return f.leaderOf(seen)
}

// memberLists returns the member list of each running node.
func (f *cluster) memberLists() (seen []api.Members, ok bool) {
	for _, m := range f.up() {
		list, ok := m.membersSeen()
		if !ok {
			return nil, false
		}
		seen = append(seen, list)
	}
	return seen, true
}

func (f *cluster) leaderOf(seen []api.Members) *member {
	var leader *member
	for _, list := range seen {
		var reported *member
		for _, x := range list {
			if x.Role == "leader" {
				reported = f.memberNamed(x.Name)
			}
		}
		if reported == nil || reported.down || leader != nil && reported != leader {
			return nil
		}
		leader = reported
	}
	return leader
}

func (f *cluster) memberNamed(name string) *member {
	for _, m := range f.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

func (f *cluster) waitLeader() *member {
	f.t.Helper()
	var leader *member
	testkit.WaitFor(f.t, "all running nodes to agree on a leader", func() bool {
		leader = f.leader()
		return leader != nil
	})
	return leader
}

// waitSettled waits until all running nodes see each other, agree on a leader,
// and the given number of them vote.
func (f *cluster) waitSettled(voters int) {
	f.t.Helper()
	testkit.WaitFor(f.t, fmt.Sprintf("%d nodes with %d voters", len(f.up()), voters), func() bool {
		seen, ok := f.memberLists()
		if !ok {
			return false
		}
		for _, list := range seen {
			vote, serve := 0, 0
			for _, x := range list {
				if x.Role == "leader" || x.Role == "voter" {
					vote++
				}
				if x.State == "serving" {
					serve++
				}
			}
			if vote != voters || serve != len(seen) {
				return false
			}
		}
		return f.leaderOf(seen) != nil
	})
}

// sock returns the address of a node's unix socket.
func (m *member) sock() string { return "unix:" + filepath.Join(m.dir, "penstock.sock") }

// serviceOnAll returns a listener for every node, on that port, and its
// service.
func serviceOnAll(name, port, backend string) string {
	return fmt.Sprintf("kind: Listener\n"+
		"name: %s\n"+
		"spec: {address: %q, service: %s}\n"+
		"---\n"+
		"kind: Service\n"+
		"name: %s\n"+
		"spec: {endpoints: [{address: %q}]}\n",
		name, ":"+port, name, name, backend)
}

// traffic detects failures during a test: it holds connections on every node,
// exchanges data on them, and constantly opens new ones.
type traffic struct {
	t    testing.TB
	port string
	stop chan struct{}
	done sync.WaitGroup

	mu            sync.Mutex
	excusedNodes  map[string]bool      // addresses of nodes that the test stopped
	expectedSince map[string]time.Time // when such an address was expected to work again
	broken        []string

	opened, exchanged atomic.Int64
}

// startTraffic holds the given number of connections on each running node,
// through the listener on port, and opens new ones on each.
func startTraffic(f *cluster, port string, held int) *traffic {
	f.t.Helper()
	tr := &traffic{t: f.t, port: port, stop: make(chan struct{}), excusedNodes: map[string]bool{}, expectedSince: map[string]time.Time{}}
	var ready sync.WaitGroup
	for _, m := range f.up() {
		for range held {
			ready.Add(1)
			tr.done.Go(func() { tr.holdConnection(m.ip, &ready) })
		}
		tr.done.Go(func() { tr.openConnections(m.ip) })
	}
	ready.Wait()
	f.t.Cleanup(tr.end)
	return tr
}

func (tr *traffic) end() {
	select {
	case <-tr.stop:
	default:
		close(tr.stop)
	}
	tr.done.Wait()
}

// excuseNode excuses broken connections of a node that the test is about to stop.
func (tr *traffic) excuseNode(m *member) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.excusedNodes[m.ip] = true
}

// endExcuse stops excusing a node.
func (tr *traffic) endExcuse(m *member) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	delete(tr.excusedNodes, m.ip)
	tr.expectedSince[m.ip] = time.Now()
}

func (tr *traffic) isExcused(ip string) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.excusedNodes[ip]
}

// fault records a connection that broke after lastGood, when it last worked,
// unless its node was stopped since.
func (tr *traffic) fault(ip, what string, lastGood time.Time, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	select {
	case <-tr.stop:
		return
	default:
	}
	if !tr.excusedNodes[ip] && !tr.expectedSince[ip].After(lastGood) {
		tr.broken = append(tr.broken, fmt.Sprintf("%s: %s: %v", ip, what, err))
	}
}

// pause sleeps, and reports whether the traffic continues.
func (tr *traffic) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-tr.stop:
		return false
	}
}

// exchange sends a line and expects its echo.
func exchange(c net.Conn, buf []byte) error {
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := c.Write([]byte("0123456789abcdef")); err != nil {
		return err
	}
	for got := 0; got < 16; {
		n, err := c.Read(buf[got:16])
		if err != nil {
			return err
		}
		got += n
	}
	return nil
}

func (tr *traffic) holdConnection(ip string, ready *sync.WaitGroup) {
	buf, lastGood := make([]byte, 16), time.Now()
	c, err := net.DialTimeout("tcp", net.JoinHostPort(ip, tr.port), testkit.Patience)
	if err == nil {
		defer c.Close()
		err = exchange(c, buf)
	}
	ready.Done()
	if err != nil {
		tr.fault(ip, "a connection to hold", lastGood, err)
		return
	}
	lastGood = time.Now()
	for tr.pause(500 * time.Millisecond) {
		if err := exchange(c, buf); err != nil {
			tr.fault(ip, "a held connection", lastGood, err)
			return
		}
		lastGood = time.Now()
		tr.exchanged.Add(1)
	}
}

func (tr *traffic) openConnections(ip string) {
	buf := make([]byte, 16)
	for tr.pause(25 * time.Millisecond) {
		if tr.isExcused(ip) {
			continue
		}
		lastGood := time.Now()
		c, err := net.DialTimeout("tcp", net.JoinHostPort(ip, tr.port), testkit.Patience)
		if err == nil {
			err = exchange(c, buf)
			c.Close()
		}
		if err != nil {
			tr.fault(ip, "a new connection", lastGood, err)
			continue
		}
		tr.opened.Add(1)
	}
}

// mustBeUnbroken ends the traffic and fails the test if anything broke or nothing
// was exchanged.
func (tr *traffic) mustBeUnbroken() {
	tr.t.Helper()
	testkit.WaitFor(tr.t, "traffic to flow", func() bool { return tr.opened.Load() > 0 && tr.exchanged.Load() > 0 })
	tr.end()
	if len(tr.broken) > 0 {
		tr.t.Errorf("%d connections broke, the first: %s", len(tr.broken), strings.Join(tr.broken[:min(len(tr.broken), 5)], "\n"))
	}
	tr.t.Logf("%d connections opened, %d exchanges on those held", tr.opened.Load(), tr.exchanged.Load())
}
