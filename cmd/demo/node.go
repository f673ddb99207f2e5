package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

// node is a Penstock node in a separate process with its own data folder.
type node struct {
	name   string
	host   string // loopback address
	folder string
	log    string // path of the log file
	socket string // for rpc.Dial
	args   []string
	http   string // host:port

	exe   string
	spawn *spawner

	mu     sync.Mutex
	proc   *process // nil: not running, and not expected to
	starts int      // number of starts
	latest *report  // latest status of proc; nil: none yet
}

// report is the status that a node reports.
type report struct {
	leader    string // name of the leader; "": none
	alone     string // why the node cannot decide; "": it can
	self      api.NodeStatus
	listeners []api.ListenerStatus
	services  []api.ServiceStatus
	top       api.TopSample // of the last second; zero at first
}

// start runs the node. belongs holds the flags by which a new node finds its
// cluster; a node that ran before needs only its data folder.
func (n *node) start(token string, belongs ...string) error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"start"}, n.args...)
	cmd := exec.Command(n.exe, append(args, belongs...)...) //nolint:noctx // ended by stop or kill
	cmd.Stderr = log                                        // stdout holds only the join line with its token
	cmd.Env = environment()
	if token != "" {
		cmd.Env = append(cmd.Env, "PENSTOCK_TOKEN="+token) // not an argument: those are visible in process lists
	}
	p, err := n.spawn.start(cmd)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proc, n.latest = p, nil
	n.starts++
	return nil
}

// running returns the process, or nil if none is expected to run.
func (n *node) running() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// detach detaches the process from the node and returns it; its end no longer
// counts as a failure.
func (n *node) detach() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.proc
	n.proc, n.latest = nil, nil
	return p
}

// pid returns the process ID, or 0.
func (n *node) pid() int {
	if p := n.running(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// lastReport returns the latest report of the node, or nil.
func (n *node) lastReport() *report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latest
}

// isLeader reports whether the node reports itself as the leader.
func (n *node) isLeader() bool {
	r := n.lastReport()
	return r != nil && r.leader == n.name
}

// checkAlive returns an error with the end of the node's log if the process has
// ended unexpectedly.
func (n *node) checkAlive() error {
	p := n.running()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
	default:
		return nil
	}
	return n.withLog(errors.New(p.cmd.ProcessState.String()))
}

// withLog adds the end of the node's log to err.
func (n *node) withLog(err error) error {
	const most = 4000
	text, _ := os.ReadFile(n.log) // as much as can be read
	if len(text) > most {
		text = text[len(text)-most:]
		text = text[strings.IndexByte(string(text), '\n')+1:]
	}
	return fmt.Errorf("node %s: %w; the end of its log:\n%s", n.name, err, strings.TrimSpace(string(text)))
}

const (
	pollInterval   = 100 * time.Millisecond
	requestTimeout = 3 * time.Second
)

// pollReports keeps the node's report up to date, across restarts.
func (n *node) pollReports(ctx context.Context) {
	for ctx.Err() == nil {
		if p := n.running(); p != nil {
			n.poll(ctx, p)
		}
		pause(ctx, pollInterval)
	}
}

// poll polls one process until a request fails.
func (n *node) poll(ctx context.Context, p *process) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := n.dial(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var mu sync.Mutex
	var top api.TopSample
	wg.Go(func() {
		_ = rpc.Stream(ctx, c, api.MethodTop, api.TopRequest{Interval: time.Second}, func(s *api.TopSample) error {
			mu.Lock()
			defer mu.Unlock()
			top = *s
			return nil
		})
	})
	for {
		s, err := callNode[api.Status](ctx, c, api.MethodStatus, api.Empty{})
		if err != nil {
			return
		}
		r := &report{leader: s.Leader, alone: s.Alone, listeners: s.Listeners, services: s.Services}
		for _, one := range s.Nodes {
			if one.Name == n.name {
				r.self = one
			}
		}
		mu.Lock()
		r.top = top
		mu.Unlock()
		n.mu.Lock()
		if n.proc == p {
			n.latest = r
		}
		n.mu.Unlock()
		pause(ctx, pollInterval)
	}
}

func (n *node) dial(ctx context.Context) (*rpc.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return rpc.Dial(ctx, n.socket)
}

func callNode[Resp any](ctx context.Context, c *rpc.Client, method string, req any) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return rpc.Call[Resp](ctx, c, method, req)
}

// request sends one request to the node on a connection of its own.
func request[Resp any](ctx context.Context, n *node, method string, req any) (*Resp, error) {
	c, err := n.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return callNode[Resp](ctx, c, method, req)
}

// pause waits for d or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// newNode returns a node that is not started.
func newNode(exe, dir, name, host string, p ports, spawn *spawner) *node {
	folder := filepath.Join(dir, name)
	return &node{
		name: name, host: host, folder: folder, log: filepath.Join(dir, name+".log"),
		socket: "unix:" + filepath.Join(folder, "penstock.sock"), http: at(host, p.http),
		exe: exe, spawn: spawn,
		args: []string{
			"--name", name, "--data-dir", folder, "--bind", host,
			"--cluster", at(host, p.cluster), "--gossip", at(host, p.gossip), "--http", at(host, p.http),
			"--drain-wait", "0s", "--drain-timeout", "1s", "--access-log", "off",
		},
	}
}
