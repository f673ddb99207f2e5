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

	"penstock/node/admin"
)

// node is a node, a process of its own with a folder of its own.
type node struct {
	name   string
	host   string // its loopback address
	folder string
	log    string // file
	socket string // for admin.Dial
	args   []string
	http   string // host:port

	exe   string
	spawn *spawner

	mu     sync.Mutex
	run    *process // nil: it does not run, and nobody expects it to
	starts int      // how often it was started
	said   *report  // what run last said of itself; nil: nothing yet
}

// report is what a node says of itself.
type report struct {
	leader    string // the name of who leads; "": nobody
	alone     string // why it decides nothing; "": it does
	self      admin.NodeStatus
	listeners []admin.ListenerStatus
	services  []admin.ServiceStatus
	top       admin.TopSample // the last second; zero at first
}

// start runs the node. What belongs says where a new node belongs; one that
// was there before needs its folder alone.
func (n *node) start(token string, belongs ...string) error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"start"}, n.args...)
	cmd := exec.Command(n.exe, append(args, belongs...)...) //nolint:noctx // ended by stop or kill
	cmd.Stderr = log                                        // its output is the line with the token, for nobody
	cmd.Env = environment()
	if token != "" {
		cmd.Env = append(cmd.Env, "PENSTOCK_TOKEN="+token) // a list of processes shows arguments
	}
	p, err := n.spawn.start(cmd)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.run, n.said = p, nil
	n.starts++
	return nil
}

// running is the process, nil while there is to be none.
func (n *node) running() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.run
}

// gone takes the process away from those who watch it, and returns it; its
// end is expected from now on.
func (n *node) gone() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.run
	n.run, n.said = nil, nil
	return p
}

// pid is the number of the process, 0 while there is none.
func (n *node) pid() int {
	if p := n.running(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// says is what the node last said of itself, nil while it says nothing.
func (n *node) says() *report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.said
}

// leads tells whether the node says that it leads.
func (n *node) leads() bool {
	r := n.says()
	return r != nil && r.leader == n.name
}

// died is an error that shows the end of the node's log, once the process has
// ended without being asked to.
func (n *node) died() error {
	p := n.running()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
	default:
		return nil
	}
	return n.failure(errors.New(p.cmd.ProcessState.String()))
}

// failure is an error with the end of the node's log.
func (n *node) failure(err error) error {
	const most = 4000
	text, _ := os.ReadFile(n.log) // as much as there is
	if len(text) > most {
		text = text[len(text)-most:]
		text = text[strings.IndexByte(string(text), '\n')+1:]
	}
	return fmt.Errorf("node %s: %w; the end of its log:\n%s", n.name, err, strings.TrimSpace(string(text)))
}

const (
	askEvery   = 100 * time.Millisecond
	askPatient = 3 * time.Second
)

// follow keeps what the node says of itself up to date, over its ends and
// starts.
func (n *node) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if p := n.running(); p != nil {
			n.ask(ctx, p)
		}
		pause(ctx, askEvery)
	}
}

// ask asks one process until it does not answer.
func (n *node) ask(ctx context.Context, p *process) {
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
	var top admin.TopSample
	wg.Go(func() {
		_ = admin.Stream(ctx, c, admin.MethodTop, admin.TopRequest{Interval: time.Second}, func(s *admin.TopSample) error {
			mu.Lock()
			defer mu.Unlock()
			top = *s
			return nil
		})
	})
	for {
		s, err := callNode[admin.Status](ctx, c, admin.MethodStatus, admin.Empty{})
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
		if n.run == p {
			n.said = r
		}
		n.mu.Unlock()
		pause(ctx, askEvery)
	}
}

func (n *node) dial(ctx context.Context) (*admin.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatient)
	defer cancel()
	return admin.Dial(ctx, n.socket)
}

func callNode[Resp any](ctx context.Context, c *admin.Client, method string, req any) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatient)
	defer cancel()
	return admin.Call[Resp](ctx, c, method, req)
}

// request makes a request of the node, on a connection of its own.
func request[Resp any](ctx context.Context, n *node, method string, req any) (*Resp, error) {
	c, err := n.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return callNode[Resp](ctx, c, method, req)
}

// pause waits, or not so long when the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// newNode is a node that was not started yet.
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
