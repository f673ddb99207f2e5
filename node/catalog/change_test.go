package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
)

// resultText describes a result or error in one line.
func resultText(r *api.ApplyResult, err error) string {
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			words := []string{string(e.Code)}
			for _, f := range e.Faults {
				words = append(words, strings.TrimSpace(f.Key+" "+f.Path)+": "+f.Message)
			}
			return strings.Join(words, "; ")
		}
		return err.Error()
	}
	var words []string
	for _, c := range r.Changes {
		words = append(words, fmt.Sprintf("%s/%s %s", c.Kind, c.Name, c.Action))
	}
	return strings.Join(words, ", ")
}

func wantResult(t *testing.T, what, want string, r *api.ApplyResult, err error) {
	t.Helper()
	if got := resultText(r, err); got != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

func newOnMemory(t *testing.T) (*Catalog, *store.Memory) {
	t.Helper()
	memory := store.NewMemory(store.Limits{})
	c := New(Config{Store: memory, Kinds: resource.RoutingKinds()})
	startFollow(t, c, nil)
	return c, memory
}

const labelled = `
kind: Listener
name: edge
labels: {team: a}
spec: {address: ":9000", service: apps}
---
kind: Service
name: apps
labels: {team: a}
spec: {}
---
kind: Service
name: mine
labels: {team: a, keep: "no"}
spec: {}
---
kind: Service
name: others
labels: {team: b}
spec: {}
`

func TestPruneDeletesOmittedResourcesWithTheLabels(t *testing.T) {
	c, memory := newOnMemory(t)
	mustApply(t, c, labelled)
	team := map[string]string{"team": "a"}
	edge := objects(t, labelled)[:1]

	r, err := c.Apply(t.Context(), Change{Objects: edge, Prune: team})
	wantResult(t, "what is in use", "refused; Service/apps: is in use by Listener/edge (spec.service); prune would delete it", r, err)
	other := objects(t, "kind: Listener\nname: edge\nlabels: {team: a}\nspec: {address: \":9000\", service: nobody}")
	r, err = c.Apply(t.Context(), Change{Objects: other, Prune: team})
	wantResult(t, "all faults at once", "invalid; Listener/edge spec.service: there is no such Service", r, err)

	moved := objects(t, "kind: Listener\nname: edge\nlabels: {team: a}\nspec: {address: \":9000\", service: others}")
	r, err = c.Apply(t.Context(), Change{Objects: moved, Prune: team, DryRun: true})
	wantResult(t, "dry run", "Listener/edge configured, Service/apps deleted, Service/mine deleted", r, err)
	if err == nil && (!strings.Contains(r.Changes[1].Before, "name: apps") || r.Changes[1].After != "") {
		t.Errorf("dry run: %+v", r.Changes[1])
	}
	if n := memory.Snapshot().Len(); n != 4 {
		t.Fatalf("the dry run left %d", n)
	}
	r, err = c.Apply(t.Context(), Change{Objects: moved, Prune: map[string]string{"team": "a", "keep": "no"}})
	wantResult(t, "all labels count", "Listener/edge configured, Service/mine deleted", r, err)
	r, err = c.Apply(t.Context(), Change{Objects: moved, Prune: team})
	wantResult(t, "with the change that frees it", "Listener/edge unchanged, Service/apps deleted", r, err)
	mustApply(t, c, labelled)
	id := store.ID{1}
	for _, what := range []string{"everything", "again"} {
		r, err = c.Apply(t.Context(), Change{Prune: team, ID: id})
		wantResult(t, what, "Listener/edge deleted, Service/apps deleted, Service/mine deleted", r, err)
	}
	unlabelled := objects(t, "kind: Service\nname: x\nspec: {}")
	if r, err := c.Apply(t.Context(), Change{Objects: unlabelled, Prune: team}); err != nil ||
		len(r.Warnings) != 1 || r.Warnings[0].Path != "labels" {
		t.Errorf("a document without the labels: %+v, %v", r, err)
	}
	if _, err := c.Apply(t.Context(), Change{Prune: map[string]string{"a b": "c"}}); code(err) != api.Invalid {
		t.Errorf("no label: %v", err)
	}
	checkAgrees(t, c, memory)
}

// TestRepeatedRequestAppliesOnce: whatever became of the first response, and
// whatever has changed since.
func TestRepeatedRequestAppliesOnce(t *testing.T) {
	c, memory := newOnMemory(t)
	mustApply(t, c, "kind: Service\nname: b\nspec: {}")
	change := Change{
		Objects: objects(t, "kind: Service\nname: a\nspec: {}\n---\n"+
			"kind: Service\nname: b\nspec: {protocol: http}\n---\n"+
			"kind: Service\nname: c\nspec: {}"),
		ID: store.ID{1},
	}
	const want = "Service/a created, Service/b configured, Service/c created"
	r, err := c.Apply(t.Context(), change)
	wantResult(t, "first", want, r, err)
	first := r.Index
	mustApply(t, c, "kind: Service\nname: a\nspec: {protocol: http2}")
	gone := Target{Kind: "service", Name: "c", ID: store.ID{2}}
	for range 2 {
		if d, err := c.Delete(t.Context(), gone); err != nil || d.Index != first+2 {
			t.Errorf("delete: %+v, %v", d, err)
		}
	}
	r, err = c.Apply(t.Context(), change)
	wantResult(t, "again", want, r, err)
	if err == nil && r.Index != first {
		t.Errorf("again: at %d, the first was at %d", r.Index, first)
	}
	dry := change
	dry.DryRun = true
	r, err = c.Apply(t.Context(), dry)
	wantResult(t, "a dry run under the same ID", "Service/a configured, Service/b unchanged, Service/c created", r, err)
	back := Target{Kind: "service", Name: "a", ID: store.ID{3}}
	for range 2 {
		r, err = c.Rollback(t.Context(), back)
		wantResult(t, "rollback", "Service/a configured", r, err)
	}
	if i := memory.Snapshot().Index(); i != first+3 {
		t.Errorf("the store is at %d, want %d", i, first+3)
	}
	// A repeated request joins a pending change.
	slow, manual := newOnManualStore(t)
	manual.hold()
	results := make(chan string, 2)
	for range 2 {
		go func() { results <- resultText(slow.Apply(t.Context(), change)) }()
	}
	if err := manual.waitHeld(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	manual.release(func(*store.Batch) error { return nil })
	for range 2 {
		if got := <-results; got != "Service/a created, Service/b created, Service/c created" {
			t.Error(got)
		}
	}
	if i := manual.Snapshot().Index(); i != 1 {
		t.Errorf("it acted %d times", i)
	}
}

func TestDeleteChecksTheVersion(t *testing.T) {
	c, _ := newOnMemory(t)
	mustApply(t, c, "kind: Service\nname: a\nspec: {}")
	mustApply(t, c, "kind: Service\nname: a\nspec: {protocol: http}")
	if _, err := c.Delete(t.Context(), Target{Kind: "service", Name: "a", Version: 1}); code(err) != api.Refused ||
		!strings.Contains(err.Error(), "version 2") {
		t.Errorf("an old version: %v", err)
	}
	if r, err := c.Delete(t.Context(), Target{Kind: "service", Name: "a", Version: 2}); err != nil || r.Index != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestHistoryAndRollback(t *testing.T) {
	c, memory := newOnMemory(t)
	service := func(protocol string) string {
		return "kind: Service\nname: a\nlabels: {p: " + protocol + "}\nspec: {protocol: " + protocol + "}"
	}
	for _, p := range []string{"tcp", "http", "http2"} {
		if _, err := c.Apply(t.Context(), Change{Objects: objects(t, service(p)), Note: store.Note{Who: "ann"}}); err != nil {
			t.Fatal(err)
		}
	}
	rollback := func(version uint64, want string) {
		t.Helper()
		r, err := c.Rollback(t.Context(), Target{Kind: "services", Name: "a", Version: version, Note: store.Note{Who: "bob"}})
		if got := resultText(r, err); got != want {
			t.Errorf("rollback to %d: %s (%v), want %s", version, got, err, want)
		}
	}
	rollback(0, "Service/a configured")
	rollback(1, "Service/a configured")
	rollback(1, "Service/a unchanged")
	if _, err := c.Delete(t.Context(), Target{Kind: "service", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	rollback(6, "refused")
	rollback(99, "not_found")
	rollback(0, "Service/a created")
	rollback(0, "refused") // it did not exist before that
	h, err := c.History("SERVICE", "a")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range h.Revisions {
		if r.At.IsZero() {
			t.Errorf("version %d has no time", r.Version)
		}
		protocol := ""
		for _, p := range []string{"tcp", "http", "http2"} {
			if r.YAML == service2yaml(p) {
				protocol = p
			}
		}
		lines = append(lines, fmt.Sprintf("%d %s %s %v %s", r.Version, r.Who, r.What, r.Deleted, protocol))
	}
	want := []string{
		"7 bob rollback to 5 false tcp", "6  delete true ", "5 bob rollback to 1 false tcp", "4 bob rollback to 2 false http",
		"3 ann apply false http2", "2 ann apply false http", "1 ann apply false tcp",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("history:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if _, err := c.History("service", "nobody"); code(err) != api.NotFound {
		t.Errorf("history of nothing: %v", err)
	}
	if _, err := c.Rollback(t.Context(), Target{Kind: "service", Name: "nobody"}); code(err) != api.NotFound {
		t.Errorf("rollback of nothing: %v", err)
	}
	checkAgrees(t, c, memory)
}

func service2yaml(protocol string) string {
	return "kind: Service\nname: a\nlabels:\n  p: " + protocol + "\nspec:\n  protocol: " + protocol + "\n"
}

// TestRollbackIsCheckedLikeAnyChange: the old content may refer to a deleted
// resource.
func TestRollbackIsCheckedLikeAnyChange(t *testing.T) {
	c, _ := newOnMemory(t)
	mustApply(t, c, base)
	mustApply(t, c, "kind: Listener\nname: edge\nspec: {address: \"127.0.0.1:9000\"}")
	if _, err := c.Delete(t.Context(), Target{Kind: "service", Name: "apps"}); err != nil {
		t.Fatal(err)
	}
	r, err := c.Rollback(t.Context(), Target{Kind: "listener", Name: "edge"})
	wantResult(t, "rollback", "invalid; Listener/edge spec.service: there is no such Service", r, err)
	if _, err := c.Rollback(t.Context(), Target{Kind: "service", Name: "apps"}); err != nil {
		t.Error(err)
	}
	r, err = c.Rollback(t.Context(), Target{Kind: "listener", Name: "edge"})
	wantResult(t, "rollback", "Listener/edge configured", r, err)
}

// TestInternalEntriesAreIgnored: the catalog ignores internal entries,
// but its index advances.
func TestInternalEntriesAreIgnored(t *testing.T) {
	c, memory := newOnMemory(t)
	mustApply(t, c, base)
	node := store.Key{Kind: "_node", Name: "n1"}
	if _, err := memory.Commit(t.Context(), &store.Batch{Ops: []store.Op{{Key: node, Value: []byte{0xff}}}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Await(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(&api.GetRequest{Kind: "_node"}); code(err) != api.Invalid {
		t.Errorf("get: %v", err)
	}
	if _, err := c.History("_node", "n1"); code(err) != api.Invalid {
		t.Errorf("history: %v", err)
	}
	if _, err := c.Delete(t.Context(), Target{Kind: "_node", Name: "n1"}); code(err) != api.Invalid {
		t.Errorf("delete: %v", err)
	}
	if _, err := c.Replace(t.Context(), Replacement{Entries: []store.Entry{{Key: node, Value: []byte{1}}}}); err != nil {
		t.Errorf("replace: %v", err)
	}
	if e, ok := memory.Snapshot().Get(node); !ok || e.Version != 2 || memory.Snapshot().Len() != 1 {
		t.Errorf("%+v of %d entries", e, memory.Snapshot().Len())
	}
}
