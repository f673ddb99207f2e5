package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// acked are the acts of one node that were acknowledged.
type acked struct {
	mu      sync.Mutex
	applied []string
	saved   int
}

func (a *acked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return min(len(a.applied), a.saved)
}

// act changes resources, which is recorded with the change, and saves snapshots, which
// is recorded after it, until stop is closed.
func (a *acked) act(m *member, stop <-chan struct{}) {
	file := filepath.Join(m.t.TempDir(), "snapshot")
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		name := fmt.Sprintf("%s-%d", m.name, i)
		done := m.pipe(fmt.Sprintf("kind: Service\nname: %s\nspec: {endpoints: [{address: \"192.0.2.1:80\"}]}\n", name), "apply", "-f", "-")
		saved := m.run("snapshot", "save", file, "--force")
		a.mu.Lock()
		if done.code == 0 {
			a.applied = append(a.applied, name)
		}
		if saved.code == 0 {
			a.saved++
		}
		a.mu.Unlock()
	}
}

// audited returns what was done, by act, as a node tells it; nothing while it cannot.
func (m *member) audited() map[string][]api.AuditEntry {
	m.t.Helper()
	all := map[string][]api.AuditEntry{}
	said := m.run("audit", "-o", "json")
	if said.code != 0 { // no leader for a moment
		return all
	}
	var list []api.AuditEntry
	if err := json.Unmarshal([]byte(said.out), &list); err != nil {
		m.t.Fatal(err)
	}
	for _, e := range list {
		if e.Outcome == api.AuditDone {
			all[e.Act] = append(all[e.Act], e)
		}
	}
	return all
}

// What was acknowledged is in the audit log once, on every node, although the leader
// is killed meanwhile; and so are the removal of that leader and the departure of
// another node.
func TestAuditLogHasEachActOnceAcrossLeaders(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 4)
	lead := f.waitLeader()
	stop := make(chan struct{})
	var acting sync.WaitGroup
	acts := map[*member]*acked{}
	for _, m := range f.members {
		if m != lead {
			a := &acked{}
			acts[m] = a
			acting.Go(func() { a.act(m, stop) })
		}
	}
	enough := func(n int) func() bool {
		return func() bool {
			for _, a := range acts {
				if a.count() < n {
					return false
				}
			}
			return true
		}
	}
	testkit.WaitFor(t, "acts under the first leader", enough(3))
	before := map[*member]int{}
	for m, a := range acts {
		before[m] = a.count()
	}
	lead.kill()
	testkit.WaitFor(t, "acts under the second leader", func() bool {
		for m, a := range acts {
			if a.count() < before[m]+3 {
				return false
			}
		}
		return true
	})
	close(stop)
	acting.Wait()
	next := f.waitLeader()
	next.must("remove", lead.name, "--force")
	rest := slices.DeleteFunc(slices.Clone(f.up()), func(m *member) bool { return m == next })
	gone := rest[0]
	next.must("leave", gone.name, "--over", "0s")
	for _, m := range []*member{next, rest[1]} {
		for who, a := range acts {
			m.wantOnce(who.name, a)
		}
		testkit.WaitFor(t, "the departures", func() bool {
			all := m.audited()
			return len(all[api.MethodRemove]) == 1 && len(all[api.MethodLeave]) == 1 && all[api.MethodLeave][0].Node == gone.name
		})
	}
}

// wantOnce fails unless the audit log has each of a node's acknowledged acts once.
func (m *member) wantOnce(node string, a *acked) {
	m.t.Helper()
	var wrong []string
	testkit.WaitFor(m.t, "the acts of "+node, func() bool {
		all := m.audited()
		saved := 0
		for _, e := range all[api.MethodSave] {
			if e.Node == node {
				saved++
			}
		}
		times := map[string]int{}
		for _, e := range all[api.MethodApply] {
			times[e.What]++
		}
		wrong = nil
		for _, name := range a.applied {
			if n := times["Service/"+name]; n != 1 {
				wrong = append(wrong, fmt.Sprintf("%s %d times", name, n))
			}
		}
		return saved >= a.saved && len(wrong) == 0
	})
	if m.t.Failed() {
		m.t.Errorf("%s: %v", node, wrong)
	}
}
