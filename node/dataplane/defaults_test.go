package dataplane

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

// droppingAddress returns an address that neither accepts nor refuses connections:
// its accept queue is full, so the kernel leaves every further SYN unanswered.
func droppingAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	fill, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fill) })
	if err := syscall.Connect(fill, name); err != nil { // the queue holds one
		t.Fatal(err)
	}
	return at
}

// countServed makes connections, some of them concurrently, and counts those that reach
// an endpoint.
func countServed(at string, n, together int) int {
	var wg sync.WaitGroup
	var good atomic.Int64
	left := atomic.Int64{}
	left.Store(int64(n))
	for range together {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if nodetest.Attempt(at) == "ok" {
					good.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(good.Load())
}

// With default settings, endpoints that refuse or do not answer fail no connection
// while one endpoint is healthy, whatever the rate.
func TestDefaultsOutliveDeadEndpoints(t *testing.T) {
	t.Parallel()
	good := nodetest.NewBackend(t, "ok").At()
	refusing := []string{testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t)}
	dropping := []string{droppingAddress(t), droppingAddress(t)}
	cases := []struct {
		name      string
		endpoints []string
	}{
		{"refusing-1-of-2", []string{refusing[0], good}},
		{"refusing-2-of-3", []string{refusing[0], good, refusing[1]}},
		{"refusing-4-of-5", append([]string{good}, refusing...)},
		{"dropping-1-of-2", []string{dropping[0], good}},
		{"dropping-2-of-3", []string{dropping[0], dropping[1], good}},
	}
	var text strings.Builder
	for _, c := range cases {
		text.WriteString(nodetest.PlainService(c.name, c.endpoints...))
	}
	n := start(t, text.String())
	var wg sync.WaitGroup
	for _, c := range cases {
		wg.Go(func() {
			at := n.at(t, c.name)
			if got := countServed(at, 50, 1); got != 50 {
				t.Errorf("%s: %d of 50 connections were served, one after the other", c.name, got)
			}
			if got := countServed(at, 500, 50); got != 500 {
				t.Errorf("%s: %d of 500 connections were served, 50 at once", c.name, got)
			}
		})
	}
	wg.Wait()
}

// A service is served as soon as its endpoints are back, if its only endpoint or
// all of its endpoints were down for a while.
func TestEndpointPausesAddNoDelay(t *testing.T) {
	t.Parallel()
	down := []string{testkit.FreeAddress(t), testkit.FreeAddress(t)}
	n := start(t, nodetest.PlainService("one", down[0])+nodetest.PlainService("two", down...))
	for _, name := range []string{"one", "two"} {
		at := n.at(t, name)
		if got := countServed(at, 50, 5); got != 0 {
			t.Fatalf("%s: %d connections were not served", name, got)
		}
		b := nodetest.ServeBackendAt(t, "ok", down[0], nil)
		if got := countServed(at, 50, 5); got != 50 {
			t.Errorf("%s: %d of 50 connections were served after the return", name, got)
		}
		b.Close()
	}
}

// The same holds for requests that are routed individually.
func TestDefaultsOutliveDeadEndpointsOfRequests(t *testing.T) {
	t.Parallel()
	good := nodetest.NamedServer(t, "v1")
	refusing := []string{testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t)}
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", good)+
		nodetest.WebService("v1", "", refusing[0], good, refusing[1], refusing[2], refusing[3])+
		nodetest.WebService("v2", "", droppingAddress(t), good)+
		nodetest.WebRoute(nodetest.Rule("/v1", nodetest.To("v1")), nodetest.Rule("/v2", nodetest.To("v2"))))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	for _, path := range []string{"/v1", "/v2"} {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 20 {
					if a, err := c.Try("POST", path, "text"); err != nil || a.StatusCode != http.StatusOK {
						t.Errorf("%s: %v, %v", path, a.Response, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}
