package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"penstock/internal/testkit"
)

// Garbage in packets and in 10 MB streams, with and without the label, leaves
// no lasting memory use, and the members keep working.
//
// Not parallel: the test measures the memory of the process.
func TestGarbageOnThePort(t *testing.T) {
	all := group(t, "a", "b")
	target := all[0].Addr()
	labelled := append([]byte{244, 1}, 'c')
	huge := append(bytes.Clone(labelled), 10) // encrypted, with a length of 19 MB
	huge = binary.BigEndian.AppendUint32(huge, 19<<20)
	random := make([]byte, 64<<10)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(random)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for _, head := range [][]byte{nil, labelled, huge, {244, 200}, {6, 0xff, 0xff}} {
		for range 8 {
			wg.Go(func() {
				c, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				c.Write(head)
				for range 10 << 20 / len(random) {
					if _, err := c.Write(random); err != nil {
						return // the node has closed the stream
					}
				}
			})
		}
	}
	udp, err := net.Dial("udp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for i := range 500 {
		udp.Write(random[i : i+rand.IntN(1400)])
		udp.Write(append(bytes.Clone(labelled), random[i:i+rand.IntN(1400)]...))
	}
	wg.Wait()
	testkit.WaitFor(t, "the counters are 0 again", func() bool {
		all[0].transport.mu.Lock()
		defer all[0].transport.mu.Unlock()
		return all[0].transport.received.Load() == 0 && all[0].transport.count == 0 && len(all[0].transport.from) == 0
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("%d MB are kept", grown>>20)
	}
	for _, n := range all {
		if len(n.Members()) != 2 {
			t.Errorf("%s sees %v", n.id, n.Members())
		}
	}
	if err := all[0].SetFacts([]byte("fine"), false); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "b hears a", func() bool { return string(all[1].see("a").Facts) == "fine" })
}

// A stranger with the label cannot make a node hold more than a bounded amount.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	n := open(t, "a", timed(func(s *timing) { s.stream = time.Hour }))
	head := append([]byte{244, 1, 'c', 10}, binary.BigEndian.AppendUint32(nil, 19<<20)...)
	c, err := net.Dial("tcp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	sent, err := io.Copy(c, io.MultiReader(bytes.NewReader(head), io.LimitReader(zeros{}, 19<<20)))
	if err == nil {
		// The kernel may have buffered the rest before the close, and memberlist
		// sends the reason before it closes.
		_, err = io.Copy(io.Discard, c)
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) { // unread data causes a reset
		t.Errorf("%d bytes are accepted: %v", sent, err)
	}
	var idle []net.Conn
	for range 2 * maxStreamsFrom {
		c, err := net.Dial("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	testkit.WaitFor(t, "a stream over the limit is closed", func() bool {
		closed := 0
		for _, c := range idle {
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); err == io.EOF {
				closed++
			}
		}
		return closed >= maxStreamsFrom
	})
	n.transport.mu.Lock()
	if n.transport.count > maxStreamsFrom {
		t.Errorf("%d streams of one address", n.transport.count)
	}
	n.transport.mu.Unlock()
	begun := time.Now()
	n.Close()
	if took := time.Since(begun); took > prompt {
		t.Errorf("Close with open streams took %v", took)
	}
}

// prompt is far less than the stream timeout of an hour in these tests, and
// more than a busy machine needs.
const prompt = time.Minute

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A dead peer does not delay Close.
func TestCloseIsPrompt(t *testing.T) {
	t.Parallel()
	silent := testkit.Listen(t) // accepts and sends nothing
	n := open(t, "a", timed(func(s *timing) { s.stream = time.Hour }))
	done := make(chan error, 1)
	go func() {
		_, err := n.Join(t.Context(), []string{silent.Addr().String()})
		done <- err
	}()
	testkit.WaitFor(t, "the node dials", func() bool {
		n.transport.mu.Lock()
		defer n.transport.mu.Unlock()
		return len(n.transport.open) > 0
	})
	begun := time.Now()
	n.Close()
	if err := <-done; err == nil {
		t.Error("a join without a responding node succeeded")
	}
	if took := time.Since(begun); took > prompt {
		t.Errorf("it took %v", took)
	}
}

// Members' names, facts and meta data are bounded.
func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	b := newMemberTable(Member{ID: "self", State: Alive}, record{ID: "self"})
	g := &aliveDelegate{b}
	meta, err := encodeMeta(Meta{Name: "n", Instance: "i"})
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string) *memberlist.Node {
		return &memberlist.Node{Name: id, Addr: net.IPv4(127, 0, 0, 1).To4(), Port: 1, Meta: meta}
	}
	events := &eventDelegate{b}
	for i := range maxMembers + 10 {
		if n := at(fmt.Sprintf("n%d", i)); g.NotifyAlive(n) == nil {
			events.NotifyJoin(n)
		}
	}
	if n := len(b.list()); n != maxMembers {
		t.Errorf("%d members", n)
	}
	if _, news := b.mergeRecord(record{ID: "stranger", Version: 1, Facts: []byte("x")}); news {
		t.Error("facts of a non-member are kept")
	}
	for i := range maxMembers {
		events.NotifyLeave(at(fmt.Sprintf("n%d", i)))
	}
	if n := len(b.list()); n != maxDead+1 {
		t.Errorf("%d members after all died", n)
	}
	for what, n := range map[string]*memberlist.Node{
		"no name": at(""), "a long name": at(string(make([]byte, maxID+1))),
		"no meta data": {Name: "x", Addr: net.IPv4(1, 2, 3, 4).To4(), Port: 1},
		"no address":   {Name: "x", Port: 1, Meta: meta},
	} {
		if g.NotifyAlive(n) == nil || g.NotifyMerge([]*memberlist.Node{n}) == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	b.mu.Lock()
	for _, e := range b.entries {
		e.record = record{ID: e.ID, Version: 1, Facts: make([]byte, maxFacts)}
	}
	b.mu.Unlock()
	if n := len(encodeRecords(b.records(maxState)...)); n > maxState+maxFacts+1000 {
		t.Errorf("a push/pull carries %d bytes", n)
	}
}

func TestDeadMembersExpire(t *testing.T) {
	b := newMemberTable(Member{ID: "self", State: Alive}, record{ID: "self"})
	b.setAlive("x", "127.0.0.1:1", Meta{})
	b.setDead("x")
	b.mu.Lock()
	b.entries["x"].Since = time.Now().Add(-rememberDead - time.Second)
	b.mu.Unlock()
	if n := len(b.list()); n != 1 {
		t.Errorf("%d members", n)
	}
}
