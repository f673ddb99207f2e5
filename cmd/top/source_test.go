package top

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

// fakeNode answers members and samples. It dies by closing its connections.
type fakeNode struct {
	name   string
	server *rpc.Server
	down   atomic.Bool
	silent atomic.Bool // it streams no sample of the cluster

	mu    sync.Mutex
	conns []net.Conn
}

// fakeCluster has nodes at the addresses "n1:1" and "n2:1"; the user named n1.
type fakeCluster struct{ nodes map[string]*fakeNode }

func newFakeCluster() *fakeCluster {
	f := &fakeCluster{nodes: map[string]*fakeNode{}}
	var members api.Members
	for _, name := range []string{"n1", "n2"} {
		members = append(members, api.Member{Name: name, ID: "id-" + name, State: "serving", Address: name + ":1"})
	}
	for _, name := range []string{"n1", "n2"} {
		n := &fakeNode{name: name, server: rpc.NewServer(rpc.Config{})}
		rpc.Handle(n.server, api.MethodMembers, api.RoleReader, func(context.Context, *api.Empty) (*api.Members, error) { return &members, nil })
		rpc.HandleStream(n.server, api.MethodTop, api.RoleReader, n.top)
		f.nodes[name+":1"] = n
	}
	f.nodes[""] = f.nodes["n1:1"]
	return f
}

func (n *fakeNode) top(ctx context.Context, r *api.TopRequest, send func(*api.TopSample) error) error {
	for i := 0; r.Count == 0 || i < r.Count; i++ {
		select {
		case <-time.After(r.Interval):
		case <-ctx.Done():
			return ctx.Err()
		}
		if r.Cluster && n.silent.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		if err := send(&api.TopSample{Node: n.name, At: time.Now(), Interval: r.Interval}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeCluster) dial(ctx context.Context, addr string) (*rpc.Client, error) {
	n := f.nodes[addr]
	if n == nil || n.down.Load() {
		return nil, fmt.Errorf("%w at %q: refused", rpc.ErrUnreachable, addr)
	}
	near, far := net.Pipe()
	n.mu.Lock()
	n.conns = append(n.conns, far)
	n.mu.Unlock()
	go n.server.ServeConn(far, api.Principal{Name: "local", Role: api.RoleReader})
	return rpc.Connect(ctx, addr, near)
}

func (n *fakeNode) die() {
	n.down.Store(true)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}

// watch runs a source in a bubble of synctest, with nodes that belong to the bubble, and
// ends all of them afterwards.
func watch(t *testing.T, w want, test func(f *fakeCluster, messages <-chan any)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster()
		messages := make(chan any)
		s := newSource(Config{Dial: f.dial, Addr: "n1:1", Interval: time.Second}, messages)
		p, err := s.connect(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		s.setWant(w)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx, p) })
		test(f, messages)
		cancel()
		running.Wait()
		for _, addr := range []string{"n1:1", "n2:1"} {
			f.nodes[addr].die()
			if err := f.nodes[addr].server.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// next returns the next message of a type that a function wants.
func next[T any](messages <-chan any, wanted func(T) bool) T {
	for msg := range messages {
		if one, ok := msg.(T); ok && wanted(one) {
			return one
		}
	}
	panic("unreachable: the channel is never closed")
}

func sampleOf(node string) func(answer) bool {
	return func(a answer) bool {
		s, ok := a.value.(*api.TopSample)
		return ok && s.Node == node
	}
}

// When the node that is asked dies, another one is asked; when none answers, that shows,
// and it goes on once one answers again.
func TestASourceGoesOnWithAnotherNode(t *testing.T) {
	watch(t, want{}, func(f *fakeCluster, messages <-chan any) {
		anyLink := func(link) bool { return true }
		if l := next(messages, anyLink); l != (link{node: "n1", addr: "n1:1", up: true}) {
			t.Errorf("at first %+v", l)
		}
		next(messages, sampleOf("n1"))
		f.nodes["n1:1"].die()
		if l := next(messages, anyLink); l != (link{node: "n2", addr: "n2:1", why: "n1 no longer answers"}) {
			t.Errorf("after a death %+v", l)
		}
		if l := next(messages, anyLink); l != (link{node: "n2", addr: "n2:1", up: true, why: "n1 no longer answers"}) {
			t.Errorf("with another node %+v", l)
		}
		next(messages, sampleOf("n2"))
		f.nodes["n2:1"].die()
		l := next(messages, func(l link) bool { return l.wait > 0 })
		if l.wait != minBackoff || l.why != `cannot reach the node at "n2:1": refused` {
			t.Errorf("without a node %+v", l)
		}
		if l := next(messages, func(l link) bool { return l.wait > 0 }); l.wait != 2*minBackoff {
			t.Errorf("the second time %+v", l)
		}
		f.nodes["n2:1"].down.Store(false)
		next(messages, func(l link) bool { return l.up && l.node == "n2" && l.why == "" })
		next(messages, sampleOf("n2"))
	})
}

// A node that keeps its connection and says nothing is given up.
func TestASourceGivesUpASilentNode(t *testing.T) {
	watch(t, want{}, func(f *fakeCluster, messages <-chan any) {
		f.nodes["n1:1"].silent.Store(true)
		next(messages, func(l link) bool { return l.up })
		began := time.Now()
		next(messages, sampleOf("n2"))
		if took := time.Since(began); took < askTimeout || took > askTimeout+dialTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// A method that a node does not know is no death of the node, and is not asked for each
// second.
func TestAMethodThatANodeDoesNotKnowIsAFault(t *testing.T) {
	w := want{}
	w.connections.Limit = 5
	watch(t, w, func(_ *fakeCluster, messages <-chan any) {
		about := func(a answer) bool { return a.topic == topicConnections }
		began := time.Now()
		for range 2 {
			if a := next(messages, about); !refused(a.err, api.Unknown) || a.to != w {
				t.Errorf("%+v", a)
			}
		}
		if passed := time.Since(began); passed < time.Minute {
			t.Errorf("asked again after %v", passed)
		}
		next(messages, sampleOf("n1"))
	})
}
