package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/internal/testkit/process"
	"penstock/node/api"
	"penstock/node/rpc"
)

// cluster is a cluster of Penstock processes.
type cluster struct {
	e     *env
	nodes []*node
	join  []string // --join and --token of further nodes
}

// node is one node of a cluster.
type node struct {
	e        *env
	name, ip string
	dir      string
	flags    []string // passed at every start
	inside   []string // command prefix that enters the node's network namespace; nil: none
	proc     *process.Process
	*connected
}

// connected is a connection to the node's unix socket.
type connected struct{ client *rpc.Client }

var nets atomic.Int32

// freshNet returns the prefix of unused loopback addresses, 127.x.y.
func freshNet() string { return fmt.Sprintf("127.%d.%d.", 216+os.Getpid()%32, nets.Add(1)) }

// plan configures a cluster.
type plan struct {
	size   int
	dir    string // parent of the data folders; "": in memory
	prefix string // of addresses; "": a loopback network
	flags  []string
	inside func(i int) []string
	// together starts all joining nodes at once instead of one by one.
	together bool
}

// startCluster starts a cluster and waits until all nodes are ready, each sees
// all others, and the expected number of them vote.
func startCluster(e *env, p plan) (*cluster, error) {
	f := &cluster{e: e}
	if p.dir == "" {
		p.dir = e.base
	}
	if p.prefix == "" {
		p.prefix = freshNet()
	}
	dir, err := os.MkdirTemp(p.dir, "f")
	if err != nil {
		return nil, err
	}
	for i := range p.size {
		n := &node{e: e, name: fmt.Sprintf("n%d", i+1), ip: fmt.Sprint(p.prefix, i+1), flags: p.flags}
		n.dir = filepath.Join(dir, n.name)
		if p.inside != nil {
			n.inside = p.inside(i)
		}
		f.nodes = append(f.nodes, n)
	}
	if err := f.start(p.together); err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

func (f *cluster) start(together bool) error {
	f.join = []string{"--init"}
	for i, n := range f.nodes {
		if err := n.begin(f.join...); err != nil {
			return err
		}
		if i == 0 {
			if err := f.readJoin(); err != nil {
				return err
			}
		}
		if !together {
			if err := n.waitReady(); err != nil {
				return err
			}
		}
	}
	return f.waitSettled(60 * time.Second)
}

// begin starts the process of a node. A node that was in a cluster before needs
// no join flags.
func (n *node) begin(join ...string) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	argv := append(slices.Clone(n.inside),
		"env", "-u", "PENSTOCK_ADDR", "PENSTOCK_PRINT_TOKEN=true",
		n.e.penstock, "start", "--name", n.name, "--data-dir", n.dir,
		"--bind", n.ip, "--gossip", n.ip+":7946", "--cluster", n.ip+":7947", "--http", n.ip+":7948", "--http-insecure",
		"--access-log", "off", "--log-format", "json", "--drain-wait", "0s", "--drain-timeout", "0s")
	var err error
	n.proc, err = process.Start(n.name, n.dir, append(append(argv, n.flags...), join...))
	return err
}

// readJoin parses --join and --token from the line that the first node prints.
func (f *cluster) readJoin() error {
	return until("the join line", 30*time.Second, func() error {
		text, err := os.ReadFile(f.nodes[0].proc.Log())
		if err != nil {
			return err
		}
		var found []string
		fields := strings.Fields(string(text))
		for i, w := range fields {
			if (w == "--join" || w == "--token") && i+1 < len(fields) && len(found) < 4 {
				found = append(found, w, strings.Trim(fields[i+1], `"'`))
			}
		}
		if len(found) < 4 {
			return fmt.Errorf("not in\n%s", f.nodes[0].proc.Output())
		}
		f.join = found
		return nil
	})
}

func (n *node) waitReady() error {
	return until(n.name+" to be ready", 60*time.Second, n.ready)
}

func (n *node) ready() error {
	ctx, cancel := context.WithTimeout(n.e.ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ip+":7948/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// dial returns the open connection to the node's unix socket, or opens one.
func (n *node) dial() (*rpc.Client, error) {
	if n.connected != nil {
		select {
		case <-n.client.Done():
		default:
			return n.client, nil
		}
	}
	c, err := n.connect()
	if err != nil {
		return nil, err
	}
	n.connected = &connected{c}
	return c, nil
}

// connect opens another connection to the node's unix socket.
func (n *node) connect() (*rpc.Client, error) {
	ctx, cancel := context.WithTimeout(n.e.ctx, 5*time.Second)
	defer cancel()
	return rpc.Dial(ctx, "unix:"+filepath.Join(n.dir, "penstock.sock"))
}

// ask sends a request to a node over its unix socket.
func ask[Resp any](n *node, limit time.Duration, method string, req any) (*Resp, error) {
	c, err := n.dial()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(n.e.ctx, limit)
	defer cancel()
	r, err := rpc.Call[Resp](ctx, c, method, req)
	if refused := (*api.Error)(nil); errors.As(err, &refused) && len(refused.Faults) > 0 {
		err = fmt.Errorf("%w: %+v", err, refused.Faults[0])
	}
	return r, err
}

// kill ends a node like a crash.
func (n *node) kill() error {
	if err := n.proc.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = n.proc.Wait() // always an error: the process was killed
	return nil
}

// stop kills all nodes and removes their folders.
func (f *cluster) stop() {
	for _, n := range f.nodes {
		if n.connected != nil {
			n.client.Close()
		}
		if n.proc != nil {
			n.proc.Kill()
		}
		if !f.e.keep {
			_ = os.RemoveAll(n.dir)
		}
	}
}

// waitSettled waits until each node is ready and sees all others serving, all
// agree on the leader, and the expected number of nodes vote.
func (f *cluster) waitSettled(limit time.Duration) error {
	voters := min(len(f.nodes)-(len(f.nodes)+1)%2, 5)
	return until(fmt.Sprintf("%d nodes to settle", len(f.nodes)), limit, func() error {
		leaders := map[string]bool{}
		for _, n := range f.nodes {
			if n.proc.Descriptors() == 0 {
				return fmt.Errorf("%s is gone:\n%s", n.name, n.proc.Output())
			}
			list, err := ask[api.Members](n, 5*time.Second, api.MethodMembers, api.Empty{})
			if err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
			serving, vote := 0, 0
			for _, m := range *list {
				if m.State == "serving" {
					serving++
				}
				if m.Role == "leader" {
					leaders[m.Name] = true
				}
				if m.Role == "leader" || m.Role == "voter" {
					vote++
				}
			}
			if serving != len(f.nodes) || vote != voters || len(leaders) != 1 {
				return fmt.Errorf("%s sees %d of %d serve, %d of %d vote, and leaders are %v", n.name, serving, len(f.nodes), vote, voters, leaders)
			}
		}
		return nil
	})
}

// leader returns the leader reported by the first node that answers.
func (f *cluster) leader() (*node, error) {
	for _, n := range f.nodes {
		list, err := ask[api.Members](n, 5*time.Second, api.MethodMembers, api.Empty{})
		if err != nil {
			continue
		}
		for _, m := range *list {
			for _, n := range f.nodes {
				if m.Role == "leader" && m.Name == n.name {
					return n, nil
				}
			}
		}
	}
	return nil, errors.New("nobody leads")
}

// until waits until met returns nil; after limit it returns an error that names
// what.
func until(what string, limit time.Duration, met func() error) error {
	return untilEvery(50*time.Millisecond, what, limit, met)
}

func untilEvery(pause time.Duration, what string, limit time.Duration, met func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := met()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w", what, limit, err)
		}
		time.Sleep(pause)
	}
}
