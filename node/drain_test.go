package node

import (
	"context"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

// TestLastDrainWindowWins: a second command shortens a drain over an hour,
// and so does a signal to end the node.
func TestLastDrainWindowWins(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*testNode) error{
		"by another command": func(n *testNode) error {
			over := 50 * time.Millisecond
			_, err := rpc.Call[api.DrainResult](t.Context(), n.client, api.MethodDrain, api.DrainRequest{Over: &over})
			return err
		},
		"by a signal": func(n *testNode) error { go n.Stop(context.Background()); return nil },
	} {
		for phase, wait := range map[string]time.Duration{"in the window": 0, "in the wait": 300 * time.Millisecond} {
			t.Run(name+" "+phase, func(t *testing.T) {
				t.Parallel()
				n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")), func(c *Config) {
					c.DrainWait, c.DrainTimeout = wait, 50*time.Millisecond
				})
				conn, _ := nodetest.Dial(t, n.at(t, "edge"))
				long := time.Hour
				if _, err := rpc.Call[api.DrainResult](t.Context(), n.client, api.MethodDrain, api.DrainRequest{Over: &long}); err != nil {
					t.Fatal(err)
				}
				testkit.WaitFor(t, "the drain to begin", func() bool { return n.state.NotReady() != "" })
				if wait == 0 {
					testkit.WaitFor(t, "the listeners to close", func() bool { return len(n.data.Engine.Listeners()) == 0 })
				}
				if err := again(n); err != nil {
					t.Fatal(err)
				}
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Error("the connection carries on")
				} else if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
					t.Error("the connection waits for the first window's end")
				}
			})
		}
	}
}

// TestDrainCanBeUndone: an undo puts the node back into service without a restart,
// and open connections stay.
func TestDrainCanBeUndone(t *testing.T) {
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")), func(c *Config) { c.DrainWait, c.DrainTimeout = 0, time.Hour })
	drain := func(r api.DrainRequest) error {
		_, err := rpc.Call[api.DrainResult](t.Context(), n.client, api.MethodDrain, r)
		return err
	}
	if err := drain(api.DrainRequest{Undo: true}); err == nil {
		t.Error("a node that does not drain was undrained")
	}
	conn, _ := nodetest.Dial(t, n.at(t, "edge"))
	for range 2 {
		if err := drain(api.DrainRequest{}); err != nil {
			t.Fatal(err)
		}
		testkit.WaitFor(t, "the listeners to close", func() bool { return len(n.data.Engine.Listeners()) == 0 })
		if err := drain(api.DrainRequest{Undo: true}); err != nil {
			t.Fatal(err)
		}
		if why := n.state.NotReady(); why != "" {
			t.Errorf("not ready: %s", why)
		}
		again, _ := nodetest.Dial(t, n.at(t, "edge"))
		again.Close()
	}
	if _, err := conn.Write([]byte("still here\n")); err != nil {
		t.Fatal(err)
	}
	if got := nodetest.ReadLine(t, conn); got != "still here" {
		t.Errorf("the connection from before answers %q", got)
	}
}
