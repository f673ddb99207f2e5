package integration

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"penstock/internal/testkit"
)

// rule 19: on SIGTERM a node becomes unready, then stops accepting, and then
// closes connections over a window, most idle first and busy ones last.
func TestDrainSpreadsCloses(t *testing.T) {
	t.Parallel()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+listener("plain", "service: echo"),
		"--drain-wait", "3s", "--drain-timeout", "4s", "--loops", "1")
	addr := n.addr("plain")
	busy := dial(t, addr)
	var idle []*net.TCPConn
	for range 6 {
		c := dial(t, addr)
		roundTrip(t, c, "x") // the order of the last bytes is that of the list
		idle = append(idle, c)
	}
	ended := make(chan int, len(idle))
	for i, c := range idle {
		go func() {
			if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("idle connection %d: read %d, %v; want a clean end", i, n, err)
			}
			ended <- i
		}()
	}
	var talking sync.WaitGroup
	talking.Go(func() {
		for p := []byte("x"); ; {
			if _, err := busy.Write(p); err != nil {
				return
			}
			if _, err := io.ReadFull(busy, p); err != nil {
				return
			}
		}
	})
	n.signal(syscall.SIGTERM)
	testkit.WaitFor(t, "/readyz to say so", func() bool {
		code, why := n.fetch("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(why, "draining")
	})
	late := dial(t, addr)
	roundTrip(t, late, "accepted all the same")
	if code, _ := n.fetch("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz is %d", code)
	}
	testkit.WaitFor(t, "nobody to listen", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	var order []int
	for range idle {
		order = append(order, <-ended)
	}
	if !slices.IsSorted(order) {
		t.Errorf("closed in the order %v, want the most idle first", order)
	}
	talking.Wait()
	n.wantExit(0)
	last := ""
	for _, a := range n.accesses() {
		if a.Msg != "connection closed" || a.Reason == "client_fin" || a.Reason == "client_reset" || a.Reason == "client_gone" {
			continue // probes of whether the listener is open
		}
		if a.Reason != "drained" {
			t.Errorf("ended with %q: %+v", a.Reason, a)
		}
		last = a.Client
	}
	if last != busy.LocalAddr().String() {
		t.Errorf("the last one closed is %s, want the busy one, %s", last, busy.LocalAddr())
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+listener("plain", "service: echo"),
		"--drain-wait", "10m", "--drain-timeout", "10m")
	c := dial(t, n.addr("plain"))
	roundTrip(t, c, "x")
	n.signal(syscall.SIGTERM)
	testkit.WaitFor(t, "the drain to begin", func() bool {
		code, _ := n.fetch("/readyz")
		return code == http.StatusServiceUnavailable
	})
	roundTrip(t, c, "still served")
	n.signal(syscall.SIGTERM)
	n.wantExit(0)
	mustReset(t, c)
	n.wantEnd(c, "shutdown")
}

func TestDrainByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+listener("plain", "service: echo"))
	addr := n.addr("plain")
	c := dial(t, addr)
	roundTrip(t, c, "x")
	if r := n.run("drain", "somebody-else"); r.code != 1 || !strings.Contains(r.err, `there is no node "somebody-else"`) {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	roundTrip(t, c, "not meant")
	if out := n.must("drain", "n1", "--over", "100ms"); !strings.Contains(out, "n1 is draining: 1 connections") {
		t.Errorf("drain says %q", out)
	}
	mustEnd(t, c)
	n.wantEnd(c, "drained")
	testkit.WaitFor(t, "the drain to end", func() bool { return n.status().Nodes[0].State == "drained" })
	testkit.WaitFor(t, "nobody to listen", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if code, why := n.fetch("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(why, "drained") {
		t.Errorf("/readyz: %d %s", code, why)
	}
	n.must("get", "listeners") // the process keeps running and answers
}
