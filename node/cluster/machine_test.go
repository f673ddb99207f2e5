package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/consensus/store"
	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/rpc"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for time to pass, so more of them run at once than
	// there are processors.
	flag.Parse()
	if set := flag.Lookup("test.parallel"); set.Value.String() == set.DefValue {
		_ = flag.Set("test.parallel", "5")
	}
	code := m.Run()
	// memberlist's probes end only at their own timeout.
	var left error
	if code == 0 && !pollUntil(waitLimit, func() bool { left = goleak.Find(); return left == nil }) {
		fmt.Fprintln(os.Stderr, left)
		code = 1
	}
	os.Exit(code)
}

// pollUntil polls until a condition holds or the time is over.
func pollUntil(limit time.Duration, holds func() bool) bool {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(limit); !holds(); <-ticker.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// shownLines is how much of each node's log a failed test shows.
const shownLines = 150

// waitLimit is how long a condition may take.
const waitLimit = 5 * time.Minute

// testTiming is the timing of tests.
var testTiming = Timing{
	Tick: 50 * time.Millisecond, Announce: time.Second, Retry: 30 * time.Millisecond, Stable: 200 * time.Millisecond,
	// The lead must not move unless a test moves it, even on a busy machine.
	Heartbeat: 2 * time.Second, Election: 2 * time.Second,
}

// machine is where a node runs, across restarts: its folder, its settings, and
// the node while there is one.
type machine struct {
	t        *testing.T
	cfg      Config
	c        *Cluster
	server   *rpc.Server
	register func(*Cluster, *rpc.Server) // adds the test's methods; nil: none

	ended chan struct{} // closed by Config.Stop

	mu      sync.Mutex
	stopped error // the error that Config.Stop received
	tickets [][32]byte
	logged  strings.Builder
}

// newMachine prepares a machine with a listening socket of its own.
func newMachine(t *testing.T, name string) *machine {
	t.Helper()
	m := &machine{t: t, cfg: Config{Dir: t.TempDir(), Name: name, Version: "test", HTTP: "127.0.0.1:1", Timing: testTiming}}
	m.listen("127.0.0.1")
	t.Cleanup(func() {
		m.kill()
		if t.Failed() {
			lines := strings.SplitAfter(m.log(), "\n")
			t.Logf("the end of %s's log:\n%s", name, strings.Join(lines[max(0, len(lines)-shownLines):], ""))
		}
	})
	return m
}

// listen gives the machine another address, which nobody else gets while its
// node is down.
func (m *machine) listen(ip string) {
	m.t.Helper()
	m.cfg.Listener = testkit.ListenOn(m.t, "tcp", testkit.FreeAddressOf(m.t, netip.MustParseAddr(ip)))
	m.cfg.Gossip = ip + ":0"
}

func (m *machine) addr() string { return m.cfg.Listener.Addr().String() }

// open starts the node.
func (m *machine) open(ctx context.Context) error {
	cfg := m.cfg
	cfg.Log = slog.New(slog.NewTextHandler(m, &slog.HandlerOptions{Level: slog.LevelDebug})).With("on", cfg.Name)
	m.ended = make(chan struct{})
	ended := m.ended
	cfg.Stop = func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stopped = err
		close(ended)
	}
	cfg.Tickets = func(keys [][32]byte) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.tickets = keys
	}
	c, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	m.c = c
	m.server = rpc.NewServer(rpc.Config{Authenticate: c.Tokens.Authenticate, Check: c.Tokens.Check})
	c.Register(m.server)
	rpc.Handle(m.server, "test.put", api.RoleNode, OnLeader(c, m.put), rpc.Changing())
	if m.register != nil {
		m.register(c, m.server)
	}
	c.ServeConns(m.server)
	return nil
}

// remove, rotate and transfer have the leader act, as commands do.
func (m *machine) remove(ctx context.Context, req *api.RemoveRequest) (*api.Empty, error) {
	return leader.RetryUnknown(func(ctx context.Context, req *api.RemoveRequest) (*api.Empty, error) {
		return leader.Ask(ctx, m.c.requests, api.MethodRemove, req, m.c.lead.Remove)
	}, api.NotFound)(ctx, req)
}

func (m *machine) rotate(what string) error {
	_, err := leader.Ask(context.Background(), m.c.requests, api.MethodRotate, &api.RotateRequest{What: what}, m.c.lead.BeginRotation)
	return err
}

func (m *machine) transfer() error {
	_, err := leader.Ask(context.Background(), m.c.requests, api.MethodTransfer, &api.TransferRequest{}, m.c.handOver.Transfer)
	return err
}

// put is a write as users make it; the answer means that it is committed.
func (m *machine) put(ctx context.Context, req *api.Document) (*api.Empty, error) {
	_, err := m.c.Store().Commit(ctx, &store.Batch{Ops: []store.Op{
		{Key: store.Key{Kind: req.Kind, Name: req.Name}, Value: req.Data},
	}})
	return &api.Empty{}, err
}

// Write keeps the node's log; TEST_LOG shows it as well.
func (m *machine) Write(b []byte) (int, error) {
	if os.Getenv("TEST_LOG") != "" {
		fmt.Fprintf(os.Stderr, "%s: %s", m.t.Name(), b)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.logged.Write(b)
}

// log returns what the node has logged.
func (m *machine) log() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.logged.String()
}

// ticketKeys returns the session ticket keys that Config.Tickets received last.
func (m *machine) ticketKeys() [][32]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tickets
}

// endsWith waits until the node reports that it must stop, because of want.
func (m *machine) endsWith(want error) {
	m.t.Helper()
	select {
	case <-m.ended:
	case <-time.After(waitLimit):
		m.t.Fatalf("%s goes on", m.cfg.Name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !errors.Is(m.stopped, want) {
		m.t.Errorf("%s ends because: %v; want %v", m.cfg.Name, m.stopped, want)
	}
}

// start starts the node, which must reach its cluster.
func (m *machine) start() *machine {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := m.open(ctx); err != nil {
		m.t.Fatalf("%s: %v", m.cfg.Name, err)
	}
	return m
}

// refused starts the node, which must not reach a cluster.
func (m *machine) refused(want error) error {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	err := m.open(ctx)
	if !errors.Is(err, want) {
		m.t.Fatalf("%s: got %v, want %v", m.cfg.Name, err, want)
	}
	return err
}

// stop stops the node as SIGTERM does; kill does it at once.
func (m *machine) stop() {
	m.t.Helper()
	if m.c == nil {
		return
	}
	if err := m.c.Close(); err != nil {
		m.t.Errorf("%s: close: %v", m.cfg.Name, err)
	}
	m.clear()
}

func (m *machine) kill() {
	if m.c != nil {
		_ = m.c.close()
		m.clear()
	}
}

func (m *machine) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.server.Shutdown(ctx)
	m.c = nil
}

// eventually waits until holds returns ""; why says what is missing.
func eventually(t *testing.T, what string, holds func() (why string)) {
	t.Helper()
	var why string
	if !pollUntil(waitLimit, func() bool { why = holds(); return why == "" }) {
		t.Fatalf("%s: not after %v: %s", what, waitLimit, why)
	}
}

// startSingle returns a cluster of one.
func startSingle(t *testing.T, name string) *machine {
	t.Helper()
	m := newMachine(t, name)
	m.cfg.Init = true
	m.start()
	waitLeader(t, m) // start returns before the node has heard of its own election
	return m
}

// token returns the token of the join command.
func (m *machine) token() string {
	m.t.Helper()
	fields := strings.Fields(m.c.JoinCommand())
	if len(fields) == 0 {
		m.t.Fatalf("%s has no join command", m.cfg.Name)
	}
	return fields[len(fields)-1]
}

// newJoiner returns a machine that joins at others.
func newJoiner(t *testing.T, name, token string, at ...*machine) *machine {
	t.Helper()
	m := newMachine(t, name)
	m.cfg.Token = token
	for _, a := range at {
		m.cfg.Join = append(m.cfg.Join, a.addr())
	}
	return m
}

// startThree returns a cluster of three voters.
func startThree(t *testing.T) []*machine {
	t.Helper()
	return startThreeWith(t, func(int, *machine) {})
}

// startThreeFastElection returns one that notices a lost leader soon, and on a
// busy machine may see one where there is none.
func startThreeFastElection(t *testing.T) []*machine {
	t.Helper()
	const soon = time.Second
	return startThreeWith(t, func(_ int, m *machine) { m.cfg.Timing.Heartbeat, m.cfg.Timing.Election = soon, soon })
}

// startThreeWith returns one whose machines are prepared before they start.
func startThreeWith(t *testing.T, prepare func(i int, m *machine)) (all []*machine) {
	t.Helper()
	for i, name := range []string{"a", "b", "c"} {
		m := newMachine(t, name)
		if m.cfg.Init = i == 0; !m.cfg.Init {
			m.cfg.Token = all[0].token()
		}
		for _, o := range all {
			m.cfg.Join = append(m.cfg.Join, o.addr())
		}
		prepare(i, m)
		all = append(all, m.start())
	}
	waitVoters(t, 3, all...)
	return all
}

// waitVoters waits until all machines agree that there is a leader and that n
// nodes vote, all of them up.
func waitVoters(t *testing.T, n int, all ...*machine) {
	t.Helper()
	for _, m := range all {
		eventually(t, fmt.Sprintf("%d voters, seen from %s", n, m.cfg.Name), func() string {
			count := 0
			for _, o := range m.c.Directory.Members() {
				if o.Role != directory.RoleNonVoter && o.Up() {
					count++
				}
			}
			if id, _, _ := m.c.Leader(); id == "" || count != n {
				return fmt.Sprintf("leader %q, alone %q, members %+v", id, m.c.Directory.Alone(), m.c.Directory.Members())
			}
			return ""
		})
	}
}

// put writes through a machine.
func put(t *testing.T, m *machine, name, value string) {
	t.Helper()
	mustChange(t, "put at "+m.cfg.Name, func() error { return tryPut(m, name, value) })
}

// mustChange makes a change. It retries while the outcome is unknown or the
// machine is so busy that there is no leader for long. A repetition that is
// refused means that the change was made.
func mustChange(t *testing.T, what string, change func() error) {
	t.Helper()
	maybe := false
	for end := time.Now().Add(waitLimit); ; {
		err := change()
		switch {
		case err == nil, maybe && (leader.RefusedAs(err, api.Refused) || leader.RefusedAs(err, api.NotFound)),
			maybe && leader.RefusedAs(err, api.Unauthenticated): // it removed the node that asks
			return
		case !isUnknown(err) && !leader.RefusedAs(err, api.NoLeader) || time.Now().After(end):
			t.Fatalf("%s: %v", what, err)
		}
		maybe = maybe || isUnknown(err)
	}
}

// isUnknown reports whether a write has an unknown outcome.
func isUnknown(err error) bool {
	var refusal *api.Error
	return errors.Is(err, rpc.ErrLost) || errors.As(err, &refusal) && refusal.Code == api.UnknownOutcome
}

func tryPut(m *machine, name, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	_, err := forward[api.Empty](ctx, m.c, "test.put", &api.Document{Kind: "Thing", Name: name, Data: []byte(value)})
	return err
}

// forward sends a request to the leader, on behalf of the caller in ctx; on the
// leader itself it is a call to this node. It is sent again only if it cannot
// have acted.
func forward[Resp any](ctx context.Context, c *Cluster, method string, req any) (resp *Resp, err error) {
	return leader.Ask(ctx, c.requests, method, &req, func(ctx context.Context, _ *any) (*Resp, error) {
		client, err := c.Directory.Pool.Get(ctx, c.ID())
		if err != nil {
			return nil, err
		}
		return rpc.Call[Resp](ctx, client, method, req)
	})
}

// waitEntry waits until a machine has an entry.
func waitEntry(t *testing.T, m *machine, name, value string) {
	t.Helper()
	eventually(t, "entry on "+m.cfg.Name, func() string {
		e, _ := m.c.Store().Snapshot().Get(store.Key{Kind: "Thing", Name: name})
		if string(e.Value) != value {
			return fmt.Sprintf("it is %q", e.Value)
		}
		return ""
	})
}

// waitLeader returns the machine that leads.
func waitLeader(t *testing.T, all ...*machine) (lead *machine) {
	t.Helper()
	eventually(t, "a leader", func() string {
		for _, m := range all {
			if m.c == nil {
				continue
			}
			if _, _, self := m.c.Leader(); self {
				lead = m
				return ""
			}
		}
		return "none leads"
	})
	return lead
}

// others returns all machines but one.
func others(all []*machine, but *machine) (list []*machine) {
	for _, m := range all {
		if m != but {
			list = append(list, m)
		}
	}
	return list
}
