package netio

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// open makes connections that an echo has answered.
func open(t testing.TB, addr string, n int) []*net.TCPConn {
	t.Helper()
	conns := make([]*net.TCPConn, n)
	for i := range conns {
		conns[i] = dial(t, addr)
		roundTrip(t, conns[i], "x")
	}
	return conns
}

// collect returns a begin for Visit that collects the IDs by loop, and what to do with
// each connection.
func collect(into map[int][]uint64, with func(c *Conn) bool) func(int) (func(*Conn) bool, func()) {
	var mu sync.Mutex
	return func(loop int) (func(*Conn) bool, func()) {
		var ids []uint64
		return func(c *Conn) bool {
				ids = append(ids, c.ID())
				return with(c)
			}, func() {
				mu.Lock()
				defer mu.Unlock()
				into[loop] = ids
			}
	}
}

func TestAVisitShowsEveryConnectionOnce(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	const n = 3*visitSlice + 1
	open(t, addr, n)
	got := map[int][]uint64{}
	if err := r.Visit(t.Context(), collect(got, func(*Conn) bool { return true })); err != nil {
		t.Fatal(err)
	}
	total := 0
	for loop, ids := range got {
		if !slices.IsSortedFunc(ids, func(a, b uint64) int { return int(int64(b - a)) }) {
			t.Errorf("loop %d shows %v, want the newest first", loop, ids)
		}
		total += len(slices.Compact(ids))
	}
	if total != n || len(got) != 2 {
		t.Errorf("%d connections on %d loops, want %d on 2", total, len(got), n)
	}
	r.onLoops(func(l *loop) {
		if len(l.visits) != 0 {
			t.Errorf("loop %d still has %d visits", l.index, len(l.visits))
		}
	})
}

// A connection that ends before its turn is not shown, whether it comes next or ends in
// the slice before.
func TestAConnectionEndsDuringAVisit(t *testing.T) {
	r := newRig(t, Config{Loops: 1}, testkit.Serve(t, echo), Profile{})
	open(t, r.serve(t, Listener{}), visitSlice+10)
	var all []*Conn
	r.onConns(func(c *Conn) { all = append(all, c) })
	ended := map[uint64]bool{}
	got := map[int][]uint64{}
	err := r.Visit(t.Context(), collect(got, func(c *Conn) bool {
		switch c {
		case all[0]: // itself, the next, and the one with which the next slice begins
			for _, i := range []int{0, 1, visitSlice + 1} {
				ended[all[i].id] = i > 0
				all[i].abort(Internal)
			}
		case all[visitSlice]: // the last of the slice: whose successor is where it goes on
			ended[all[visitSlice+2].id] = true
			all[visitSlice+2].abort(Internal)
		}
		return true
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := len(all) - 3
	if len(got[0]) != want || slices.ContainsFunc(got[0], func(id uint64) bool { return ended[id] }) {
		t.Errorf("%d connections are shown, want %d without those that had ended", len(got[0]), want)
	}
}

func TestAVisitEndsEarly(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	open(t, r.serve(t, Listener{}), 3*visitSlice)
	got := map[int][]uint64{}
	if err := r.Visit(t.Context(), collect(got, func(*Conn) bool { return false })); err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Concat(slices.Collect(maps.Values(got))...)); n != 2 {
		t.Errorf("%d connections are shown, want the first of each loop", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := r.Visit(ctx, func(loop int) (func(*Conn) bool, func()) {
		return func(*Conn) bool {
			if loop == 0 {
				n++
				cancel()
			}
			return true
		}, func() {}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a visit that is given up ends with %v", err)
	}
	r.onLoops(func(*loop) {})
	if n > visitSlice {
		t.Errorf("it went on for %d connections", n)
	}
	r.Close()
	if err := r.Visit(t.Context(), collect(got, func(*Conn) bool { return true })); !errors.Is(err, ErrClosed) {
		t.Errorf("a visit of an engine that is closed: %v", err)
	}
}

// A visit that panics ends, and so does one in an engine that is closed meanwhile.
func TestAVisitThatFails(t *testing.T) {
	r := newRig(t, Config{Log: quiet}, testkit.Serve(t, echo), Profile{})
	open(t, r.serve(t, Listener{}), 4)
	if err := r.Visit(t.Context(), collect(map[int][]uint64{}, func(*Conn) bool { panic("no") })); err != nil {
		t.Error(err)
	}
	r.onLoops(func(l *loop) {
		if len(l.visits) != 0 {
			t.Errorf("loop %d still has %d visits", l.index, len(l.visits))
		}
	})
	var once sync.Once
	err := r.Visit(t.Context(), func(int) (func(*Conn) bool, func()) {
		once.Do(func() { go r.Close() })
		return func(*Conn) bool { return true }, func() {}
	})
	if err != nil && !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestCloseSome(t *testing.T) {
	for _, over := range []time.Duration{0, 200 * time.Millisecond} {
		t.Run(fmt.Sprint(over), func(t *testing.T) {
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			addr := r.serve(t, Listener{})
			const n = 5 * visitSlice
			open(t, addr, n)
			var mu sync.Mutex
			asked := map[uint64]int{}
			closing, err := r.CloseSome(t.Context(), over, ClosedByOperator, func(c *Conn) bool {
				mu.Lock()
				defer mu.Unlock()
				asked[c.ID()]++
				// An eighth of them is spared at once, another one later.
				return c.ID()%8 != 0 && (c.ID()%8 != 1 || asked[c.ID()] == 1)
			})
			mu.Lock()
			all, stay := len(asked), 0
			for id := range asked {
				if id%8 < 2 {
					stay++
				}
			}
			mu.Unlock()
			if err != nil || all != n || closing <= n-stay || closing >= n {
				t.Fatalf("%d are to be closed (%v), of %d of which %d are asked", closing, err, n, all)
			}
			late := dial(t, addr) // came afterwards
			for _, e := range r.waitEndings(t, n-stay) {
				if e.why != ClosedByOperator || e.id%8 < 2 {
					t.Errorf("%d ended with %q", e.id, e.why)
				}
			}
			roundTrip(t, late, "y")
		})
	}
}

// A session that is never between two messages is closed at the end of the window.
func TestCloseSomeOfABusySession(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
	c := dial(t, r.serve(t, Listener{}))
	mustRead(t, c, "hello\n")
	s := testkit.Receive(t, "a session", all)
	if n, err := r.CloseSome(t.Context(), 100*time.Millisecond, ClosedByOperator, func(*Conn) bool { return true }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r.wantEnd(t, ClosedByOperator)
	if s.leftFor.Load() != ClosedByOperator || s.clean.Load() {
		t.Errorf("it was left for %v, clean %v", s.leftFor.Load(), s.clean.Load())
	}
}
