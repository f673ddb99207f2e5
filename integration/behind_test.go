package integration

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/rpc"
)

// generations is a sequence of states, each applied as one change of two
// services: the endpoint of "left" returns the epoch, and both carry the
// generation as a tag. A node with an inconsistent state shows different tags;
// one that went back in time shows an earlier generation.
type generations struct {
	t          testing.TB
	backends   []string // by epoch
	generation int
}

var generationTag = regexp.MustCompile(`"?generation"?: *"?(\d+)`)

// apply applies the next generation through a node. If epoch is set, it also
// starts a new backend.
func (a *generations) apply(m *member, epoch bool) {
	a.t.Helper()
	if epoch {
		a.backends = append(a.backends, named(a.t, strconv.Itoa(len(a.backends))))
	}
	a.generation++
	doc := func(name, backend string) []byte {
		return fmt.Appendf(nil, `{"kind":"Service","name":%q,"spec":{"endpoints":[{"address":%q,"tags":{"generation":"%d"}}]}}`,
			name, backend, a.generation)
	}
	documents := [][]byte{doc("left", a.backends[len(a.backends)-1]), doc("right", "127.0.0.1:1")}
	testkit.WaitFor(a.t, "a change of generation "+strconv.Itoa(a.generation), func() bool {
		ctx, cancel := context.WithTimeout(a.t.Context(), testkit.Patience)
		defer cancel()
		c, err := rpc.DialConfig{}.Dial(ctx, m.sock())
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = rpc.Call[api.ApplyResult](ctx, c, api.MethodApply, api.ApplyRequest{Documents: documents, Wait: api.Wait{Nodes: -1}})
		return err == nil
	})
}

// applyUntil applies changes, 64 at a time, until holds returns true; if epochs
// is set, each batch starts with a new epoch. It allows as many changes as
// should suffice, however long they take on a busy machine.
func (a *generations) applyUntil(what string, m *member, epochs bool, holds func() bool) {
	a.t.Helper()
	const enough = 1000
	begun := time.Now()
	for n := 0; n < enough || time.Since(begun) < testkit.Patience; {
		for i := range 64 {
			a.apply(m, epochs && i == 0)
			n++
		}
		if holds() {
			return
		}
	}
	a.t.Fatalf("waited %v and %d changes for %s", time.Since(begun), enough, what)
}

// watchGenerations continuously checks a node's state and the answers of its
// traffic: never two generations at once, never an earlier one than before. It
// counts the checks of traffic.
func (tr *traffic) watchGenerations(m *member, port string) (looked *atomic.Int64) {
	looked = new(atomic.Int64)
	tr.done.Go(func() {
		last := 0
		for tr.pause(10 * time.Millisecond) {
			began := time.Now()
			left, right, err := generationsAt(tr.t.Context(), m)
			if err != nil { // the node may have been stopped during the request
				began = time.Now()
				left, right, err = generationsAt(tr.t.Context(), m)
			}
			switch {
			case err != nil:
				tr.fault(m.ip, "what the node has", began, err)
			case left != right || left < last || left == 0:
				tr.fault(m.ip, "what the node has", began, fmt.Errorf("generations %d and %d, after %d", left, right, last))
			default:
				last = left
			}
		}
	})
	tr.done.Go(func() {
		last := 0
		for tr.pause(5 * time.Millisecond) {
			if tr.isExcused(m.ip) {
				continue
			}
			began := time.Now()
			epoch, err := epochAt(net.JoinHostPort(m.ip, port))
			if err == nil && epoch < last {
				err = fmt.Errorf("epoch %d, after %d", epoch, last)
			}
			if err != nil {
				tr.fault(m.ip, "a connection of an epoch", began, err)
				continue
			}
			last = epoch
			looked.Add(1)
		}
	})
	return looked
}

// generationsAt returns the generations in a node's local state.
func generationsAt(ctx context.Context, m *member) (left, right int, err error) {
	ctx, cancel := context.WithTimeout(ctx, testkit.Patience)
	defer cancel()
	c, err := rpc.DialConfig{}.Dial(ctx, m.sock())
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	r, err := rpc.Call[api.GetResult](ctx, c, api.MethodGet, api.GetRequest{Kind: "Service", Stale: true})
	if err != nil {
		return 0, 0, err
	}
	for _, d := range r.Documents {
		if found := generationTag.FindSubmatch(d.Data); found != nil {
			generation, _ := strconv.Atoi(string(found[1]))
			if d.Name == "left" {
				left = generation
			} else {
				right = generation
			}
		}
	}
	return left, right, nil
}

// epochAt returns the epoch of the backend that a new connection reaches.
func epochAt(address string) (int, error) {
	c, err := net.DialTimeout("tcp", address, testkit.Patience)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line))
}

// compactedBefore returns an index before which the node's log is certainly
// compacted: the log keeps the entries after the last snapshot but one, and
// some before it.
func (m *member) compactedBefore() (index int) {
	m.t.Helper()
	entries, err := os.ReadDir(filepath.Join(m.dir, "raft", "snapshots"))
	if err != nil {
		m.t.Fatal(err)
	}
	newest := 0
	for _, e := range entries { // term-index-time
		parts := strings.Split(e.Name(), "-")
		at, err := strconv.Atoi(parts[min(1, len(parts)-1)])
		switch {
		case err != nil || strings.HasSuffix(e.Name(), ".tmp"):
		case at > newest:
			newest, index = at, newest
		case at > index:
			index = at
		}
	}
	return index - 32
}

// countLines counts the lines that contain all words.
func countLines(log string, words ...string) (n int) {
	for line := range strings.Lines(log) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}

// A node that was away until the other nodes compacted the entries it lacks
// receives a snapshot, and serves throughout: first its old state, then the new
// one.
func TestLaggingNodeInstallsSnapshot(t *testing.T) {
	t.Parallel()
	f := startClusterOf(t, shortLog.program(t), 3, "--log-level", "debug")
	one := f.members[0]
	a := &generations{t: t}
	one.apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	a.apply(one, true)
	one.apply("kind: Listener\nname: left\nspec: {address: \":9101\", service: left}\n")
	f.mustAgree()
	tr := startTraffic(f, "9100", 100)
	lead := f.waitLeader()
	behind := f.members[0]
	if behind == lead {
		behind = f.members[1]
	}
	looked := tr.watchGenerations(behind, "9101")
	tr.watchGenerations(lead, "9101")
	for _, how := range []string{"stopped", "killed"} {
		at, since := int(behind.metric("raft_last_index")), time.Now()
		installed := strings.Count(behind.log(), "Installed remote snapshot")
		if how == "stopped" {
			behind.signal(syscall.SIGSTOP)
		} else {
			tr.excuseNode(behind)
			behind.kill()
			installed = 0 // a new process starts a new log
		}
		gaveUp := func() int { return countLines(lead.log(), "aborting pipeline replication", behind.ip) }
		sends, sending := gaveUp(), how == "stopped"
		a.applyUntil("the others' logs to begin after what it has", lead, true, func() bool {
			if sending && gaveUp() > sends {
				// The node may still read what is in flight when it continues.
				at, sending = int(lead.metric("raft_last_index")), false
			}
			if time.Since(since) > testkit.Patience/2 { // clients time out after patience
				tr.excuseNode(behind)
			}
			return !sending && !slices.ContainsFunc(f.members, func(m *member) bool { return m != behind && m.compactedBefore() <= at })
		})
		before, began := looked.Load(), time.Now()
		if how == "stopped" {
			behind.signal(syscall.SIGCONT)
		} else {
			behind.launch()
			t.Logf("killed: ready after %v, with change %v", time.Since(began).Round(time.Millisecond), behind.metric("configuration_index"))
		}
		if tr.isExcused(behind.ip) {
			tr.endExcuse(behind)
		}
		testkit.WaitFor(t, "the node to act on what there is", func() bool {
			left, _, err := generationsAt(t.Context(), behind)
			epoch, eerr := epochAt(behind.ip + ":9101")
			return err == nil && eerr == nil && left == a.generation && epoch == len(a.backends)-1
		})
		t.Logf("%s: the log here ended at %d, %d changes ago; caught up after %v",
			how, at, a.generation, time.Since(began).Round(time.Millisecond))
		testkit.WaitFor(t, how+": it to say that a snapshot brought that", func() bool { // Raft logs it afterwards
			return strings.Count(behind.log(), "Installed remote snapshot") > installed
		})
		testkit.WaitFor(t, "traffic through it", func() bool { return looked.Load() > before+20 })
		a.apply(behind, true)
		f.waitSettled(3)
	}
	tr.mustBeUnbroken()
	f.mustAgree()
}
