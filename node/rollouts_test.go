package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/kinds"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/routing/resource"
)

// twoVersions returns the resources of a listener, a service with two versions, and
// a canary route with a rollout.
func twoVersions(v1, v2, steps string) string {
	return fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Service
name: apps
spec:
  connect: {attempts: 1, timeout: 20s}
  endpoints: [{address: %q, tags: {version: v1}}, {address: %q, tags: {version: v2}}]
---
`, v1, v2) + canary(steps)
}

func canary(steps string) string {
	return `
kind: MeshTCPRoute
name: canary
spec:
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules:
    - default: {backendRefs: [{kind: MeshServiceSubset, name: apps, tags: {version: v1}}, ` +
		`{kind: MeshServiceSubset, name: apps, tags: {version: v2}}]}
  rollout:
    backend: {name: apps, tags: {version: v2}}
    abort: {connections: 5, window: 30s}
    steps: ` + steps + "\n"
}

func (n *testNode) rollout(t *testing.T) api.Rollout {
	t.Helper()
	list, err := rpc.Call[api.Rollouts](t.Context(), n.client, api.MethodRollouts,
		api.RolloutsRequest{Route: "canary"})
	if err != nil || len(*list) != 1 {
		t.Fatalf("rollouts: %+v, %v", list, err)
	}
	return (*list)[0]
}

func (n *testNode) command(what string) (*api.RolloutResult, error) {
	return rpc.Call[api.RolloutResult](context.Background(), n.client, api.MethodRollout,
		api.RolloutRequest{Do: what, Route: "canary"})
}

func (n *testNode) mustCommand(t *testing.T, what, phase string, step, weight int) {
	t.Helper()
	r, err := n.command(what)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Rollout; got.Phase != phase || got.Step != step || got.Weight != weight || got.Reason != what+" by dev" {
		t.Fatalf("%s leads to %+v", what, got)
	}
}

// shares opens count connections and counts the answers by backend.
func (n *testNode) shares(t *testing.T, count int) map[string]int {
	t.Helper()
	at, got := n.at(t, "edge"), map[string]int{}
	for range count {
		got[nodetest.Attempt(at)]++
	}
	return got
}

func TestRolloutRunsToCompletion(t *testing.T) {
	t.Parallel()
	n := startNode(t, twoVersions(nodetest.NewBackend(t, "v1").At(), nodetest.NewBackend(t, "v2").At(),
		"[{weight: 20, for: 1s}, {weight: 60, for: 720h}, {weight: 100, for: 1s}]"))
	held, name := nodetest.Dial(t, n.at(t, "edge"))
	testkit.WaitFor(t, "the second step", func() bool { return n.rollout(t).Step == 2 })
	if got := n.shares(t, 100); got["v1"] != 40 || got["v2"] != 60 {
		t.Errorf("at 60 %% the shares are %v", got)
	}
	n.mustCommand(t, "pause", resource.RolloutPaused, 2, 60)
	if s := n.mustStatus(t).Rollouts; len(s) != 1 || s[0].Phase != resource.RolloutPaused || s[0].Backend != "apps {version=v2}" {
		t.Errorf("status has %+v", s)
	}
	n.waitMetric(t, `penstock_rollouts{phase="paused"}`, "1")
	if _, err := n.command("pause"); err == nil ||
		!strings.Contains(err.Error(), "rollout of canary: pause cannot be done now: it is paused") {
		t.Errorf("a second pause: %v", err)
	}
	n.mustCommand(t, "resume", resource.RolloutRunning, 2, 60)
	testkit.WaitFor(t, "the leader to have seen the connections", func() bool { return n.rollout(t).Connects >= 60 })
	if r := n.rollout(t); r.Left <= 0 || r.Left > 720*time.Hour || r.Nodes != 1 || r.Endpoints != 1 {
		t.Errorf("it is at %+v", r)
	}
	// Applying the same file changes nothing; a changed rollout restarts.
	n.mustApply(t, canary("[{weight: 20, for: 1s}, {weight: 60, for: 720h}, {weight: 100, for: 1s}]"))
	if r := n.rollout(t); r.Step != 2 {
		t.Errorf("after the same file it is at %+v", r)
	}
	n.mustApply(t, canary("[{weight: 50, for: 720h}, {weight: 90}]"))
	if r := n.rollout(t); r.Step != 1 || r.Weight != 50 || r.Steps != 2 {
		t.Errorf("the changed rollout is at %+v", r)
	}
	testkit.WaitFor(t, "the changed rollout to be noted", func() bool { return !n.rollout(t).Since.IsZero() })
	n.mustCommand(t, "rollback", resource.RolloutRolledBack, 1, 0)
	if got := n.shares(t, 20); got["v1"] != 20 {
		t.Errorf("rolled back, the shares are %v", got)
	}
	if _, err := n.command("resume"); err == nil {
		t.Error("what was rolled back is resumed")
	}
	n.mustCommand(t, "restart", resource.RolloutRunning, 1, 50)
	nodetest.Echo(t, held) // at either version
	if name != "v1" && name != "v2" {
		t.Errorf("the first connection is at %q", name)
	}
	n.checkHistory(t)
}

// A route that is deleted and applied again at once begins at its first step,
// whatever the state of the previous rollout.
func TestRecreatedRouteRestartsRollout(t *testing.T) {
	t.Parallel()
	const steps = "[{weight: 20, for: 1h}, {weight: 100}]"
	v1, v2 := nodetest.NewBackend(t, "v1").At(), nodetest.NewBackend(t, "v2").At()
	n := startNode(t, twoVersions(v1, v2, steps))
	for _, end := range []func(){
		func() { n.mustDelete(t, "meshtcproute", "canary") },
		func() { n.mustApply(t, strings.Split(canary(steps), "  rollout:")[0]) },
	} {
		n.mustCommand(t, "rollback", resource.RolloutRolledBack, 1, 0)
		end()
		n.mustApply(t, canary(steps))
		if got := n.shares(t, 50); got["v2"] != 10 {
			t.Errorf("at the first step of 20 %% the shares are %v", got)
		}
		testkit.WaitFor(t, "what it has come to", func() bool { return !n.rollout(t).Since.IsZero() })
		if r := n.rollout(t); r.Phase != resource.RolloutRunning || r.Step != 1 {
			t.Errorf("it begins as %+v", r)
		}
	}
}

// checkHistory checks that the history has the author of each change.
func (n *testNode) checkHistory(t *testing.T) {
	t.Helper()
	h, err := rpc.Call[api.HistoryResult](t.Context(), n.client, api.MethodHistory,
		api.HistoryRequest{Kind: "rollout", Name: "canary"})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range h.Revisions {
		lines = append(lines, r.Who+": "+r.What)
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		"dev: rollout running: step 1 of 2, 50 %",
		"dev: rollout rolled back: step 1 of 2, 0 %",
		"n1: rollout running: step 1 of 2, 50 %",
		"dev: rollout paused: step 2 of 3, 60 %",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the history does not have %q:\n%s", want, all)
		}
	}
}

// A backend that refuses connections loses its share until an operator restarts
// the rollout.
func TestRolloutOfBrokenBackendIsAborted(t *testing.T) {
	t.Parallel()
	n := startNode(t, twoVersions(nodetest.NewBackend(t, "v1").At(), testkit.FreeAddress(t),
		"[{weight: 50, for: 1h}, {weight: 100}]"))
	testkit.WaitFor(t, "the rollout to be noted", func() bool { return !n.rollout(t).Since.IsZero() })
	testkit.WaitFor(t, "the abort", func() bool {
		n.shares(t, 10)
		return n.rollout(t).Phase == resource.RolloutAborted
	})
	r := n.rollout(t)
	if r.Weight != 0 || !strings.Contains(r.Reason, "failed or were reset, more than 5 %") {
		t.Errorf("aborted: %+v", r)
	}
	if got := n.shares(t, 20); got["v1"] != 20 {
		t.Errorf("after the abort the shares are %v", got)
	}
	n.waitMetric(t, `penstock_rollout_changes_total{phase="aborted"}`, "1") // it is in the store before it is counted
	// A restart resets the counts of failures.
	n.mustCommand(t, "restart", resource.RolloutRunning, 1, 50)
	if r := n.rollout(t); r.Failed != 0 {
		t.Errorf("begun anew it has %+v", r)
	}
}

// If the new version has all of the weight and loses its last endpoint, the
// rollout is aborted and the old version gets the connections again.
func TestRolloutWithoutUsableBackendIsAborted(t *testing.T) {
	t.Parallel()
	v1, v2 := nodetest.NewBackend(t, "v1").At(), nodetest.NewBackend(t, "v2").At()
	n := startNode(t, twoVersions(v1, v2, "[{weight: 100, for: 1h}]"))
	testkit.WaitFor(t, "the rollout to be noted", func() bool { return !n.rollout(t).Since.IsZero() })
	n.mustApply(t, "kind: Service\nname: apps\nspec: {endpoints: [{address: \""+v1+"\", tags: {version: v1}}]}\n")
	testkit.WaitFor(t, "the abort", func() bool {
		n.shares(t, 10)
		return n.rollout(t).Phase == resource.RolloutAborted
	})
	if got := n.shares(t, 20); got["v1"] != 20 {
		t.Errorf("after the abort the shares are %v", got)
	}
}

// Users cannot write the state of a rollout.
func TestRolloutStateCannotBeChangedByHand(t *testing.T) {
	n := startNode(t, twoVersions(nodetest.NewBackend(t, "v1").At(), nodetest.NewBackend(t, "v2").At(),
		"[{weight: 50, for: 1h}, {weight: 100}]"))
	testkit.WaitFor(t, "the rollout to be noted", func() bool { return !n.rollout(t).Since.IsZero() })
	got, err := rpc.Call[api.GetResult](t.Context(), n.client, api.MethodGet, api.GetRequest{Kind: "rollouts", Name: "canary"})
	if err != nil || len(got.Documents) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	_, applied := rpc.Call[api.ApplyResult](t.Context(), n.client, api.MethodApply,
		api.ApplyRequest{Documents: [][]byte{got.Documents[0].Data}})
	_, deleted := rpc.Call[api.DeleteResult](t.Context(), n.client, api.MethodDelete,
		api.DeleteRequest{Kind: "rollout", Name: "canary"})
	_, back := rpc.Call[api.ApplyResult](t.Context(), n.client, api.MethodRollback,
		api.RollbackRequest{Kind: "Rollout", Name: "canary"})
	for what, err := range map[string]error{"apply": applied, "delete": deleted, "rollback": back} {
		var refusal *api.Error
		if !errors.As(err, &refusal) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		text := refusal.Message
		for _, f := range refusal.Faults {
			text += " " + f.Message
		}
		if !strings.Contains(text, "is written only by the cluster's leader") {
			t.Errorf("%s: %s", what, text)
		}
	}
	// Deleting the route deletes the state of its rollout.
	n.mustDelete(t, "meshtcproute", "canary")
	testkit.WaitFor(t, "the note to be gone", func() bool {
		_, err := rpc.Call[api.GetResult](t.Context(), n.client, api.MethodGet, api.GetRequest{Kind: "rollouts", Name: "canary"})
		var refusal *api.Error
		return errors.As(err, &refusal) && refusal.Code == api.NotFound
	})
	if _, err := n.command("pause"); err == nil || !strings.Contains(err.Error(), `there is no MeshTCPRoute "canary"`) {
		t.Errorf("a command about no route: %v", err)
	}
}

// Nodes of the previous release would stop at a rollout.
func TestRolloutIsRefusedWithOlderMembers(t *testing.T) {
	for _, o := range nodetest.Objects(t, twoVersions("127.0.0.1:1", "127.0.0.1:2", "[{weight: 100}]")) {
		want := 0
		if r, ok := o.Spec.(*resource.MeshTCPRoute); ok {
			want = record.LevelPolicies
			without := *r
			without.Rollout = nil
			if got := kinds.Level(resource.Object{Key: o.Key, Spec: &without}); got != 0 {
				t.Errorf("a route without one is of level %d", got)
			}
		}
		if got := kinds.Level(o); got != want {
			t.Errorf("%v is of level %d, want %d", o.Key, got, want)
		}
	}
	if got := kinds.Level(resource.Object{
		Key: resource.Key{Kind: resource.KindRollout}, Spec: new(resource.Rollout),
	}); got != record.LevelPolicies {
		t.Errorf("how far one has come is of level %d", got)
	}
}
