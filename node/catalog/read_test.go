package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"penstock/consensus/store"
	"penstock/node/api"
)

func TestGetByLabels(t *testing.T) {
	c, _ := newOnMemory(t)
	mustApply(t, c, labelled)
	for _, test := range []struct {
		request api.GetRequest
		want    string
	}{
		{api.GetRequest{Kind: "service"}, "apps mine others"},
		{api.GetRequest{Kind: "service", Labels: map[string]string{"team": "a"}}, "apps mine"},
		{api.GetRequest{Kind: "service", Labels: map[string]string{"team": "a", "keep": "no"}}, "mine"},
		{api.GetRequest{Kind: "service", Name: "mine", Labels: map[string]string{"team": "a"}}, "mine"},
		{api.GetRequest{Kind: "service", Name: "mine", Labels: map[string]string{"team": "b"}}, "not_found"},
		{api.GetRequest{Kind: "service", Labels: map[string]string{"te am": "b"}}, "invalid"},
	} {
		r, err := c.Get(&test.request)
		got := string(code(err))
		if err == nil {
			var names []string
			for _, d := range r.Documents {
				names = append(names, d.Name)
			}
			if got = strings.Join(names, " "); r.Index != 1 {
				t.Errorf("%+v: at %d", test.request, r.Index)
			}
		}
		if got != test.want {
			t.Errorf("%+v: %s, want %s", test.request, got, test.want)
		}
	}
}

// startWatch returns the items of a watcher, which waits until each is
// received.
func startWatch(t *testing.T, c *Catalog, kind, name string) <-chan string {
	t.Helper()
	items := make(chan string)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- c.Watch(ctx, kind, name, func(i *api.WatchItem) error {
			words := []string{fmt.Sprint(i.Index)}
			for _, d := range i.Put {
				words = append(words, "+"+d.Name)
				if strings.Contains(string(d.Data), "PRIVATE") {
					t.Errorf("a secret is shown: %s", d.Data)
				}
			}
			for _, d := range i.Deleted {
				words = append(words, "-"+d.Name)
			}
			select {
			case items <- strings.Join(words, " "):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
	return items
}

func TestWatch(t *testing.T) {
	c, memory := newOnMemory(t)
	mustApply(t, c, labelled)
	all, one := startWatch(t, c, "services", ""), startWatch(t, c, "service", "new")
	want := func(items <-chan string, want string) {
		t.Helper()
		if got := <-items; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	want(all, "1 +apps +mine +others")
	want(one, "1")
	mustApply(t, c, "kind: Service\nname: new\nspec: {}")
	want(all, "2 +new")
	want(one, "2 +new")
	mustApply(t, c, "kind: Service\nname: new\nspec: {protocol: http}")
	want(all, "3 +new")
	want(one, "3 +new")
	mustApply(t, c, "kind: Listener\nname: x\nspec: {address: \":1\"}") // of another kind
	// These changes are not received: they are merged into one item of the last
	// state.
	for i := range 300 {
		mustApply(t, c, fmt.Sprintf("kind: Service\nname: new\nspec: {endpoints: [{address: \"a:%d\"}]}\n---\n"+
			"kind: Service\nname: brief\nspec: {endpoints: [{address: \"a:%d\"}]}", i+1, i+1))
	}
	for _, name := range []string{"brief", "mine", "new"} {
		if _, err := c.Delete(t.Context(), Target{Kind: "service", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	state := map[string]bool{"apps": true, "mine": true, "others": true, "new": true}
	for n, index := 1, ""; index != fmt.Sprint(memory.Snapshot().Index()); n++ {
		if n > 4 {
			t.Fatalf("%d items for a watcher that was away, at %s", n, index)
		}
		var changes string
		index, changes, _ = strings.Cut(<-all, " ")
		for _, w := range strings.Fields(changes) {
			if state[w[1:]] = true; w[0] == '-' {
				delete(state, w[1:])
			}
		}
	}
	if len(state) != 2 || !state["apps"] || !state["others"] {
		t.Errorf("the reported changes lead to %v", state)
	}
}

func TestReplace(t *testing.T) {
	c, memory := newOnMemory(t)
	sealed := newXOR(7)
	from := newSealed(t, store.NewMemory(store.Limits{}), sealed)
	all := append(objects(t, terminating+"---\nkind: Service\nname: same\nspec: {}"), certificate(t, "a", "a"))
	if _, err := from.Apply(t.Context(), Change{Objects: all}); err != nil {
		t.Fatal(err)
	}
	_, view := from.InForce()
	entries := make([]store.Entry, 0, view.Len())
	for e := range view.All() {
		entries = append(entries, e)
	}
	mustApply(t, c, base+"---\nkind: Service\nname: same\nspec: {}")
	before, _ := memory.Snapshot().Get(store.Key{Kind: "Service", Name: "same"})

	if _, err := c.Replace(t.Context(), Replacement{Entries: entries}); code(err) != api.Invalid ||
		!strings.Contains(fmt.Sprint(err.(*api.Error).Faults), "Certificate/a") {
		t.Errorf("without the keys: %v", err)
	}
	change := Replacement{Entries: entries, Open: sealed.Open, ID: store.ID{1}, Note: store.Note{Who: "ann"}}
	for range 2 {
		r, err := c.Replace(t.Context(), change)
		if err != nil || r.Resources != 4 || r.Deleted != 0 || r.Index != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	checkAgrees(t, c, memory)
	set, _ := c.InForce()
	if set.Len() != 4 {
		t.Errorf("%d objects", set.Len())
	}
	if after, _ := memory.Snapshot().Get(store.Key{Kind: "Service", Name: "same"}); after.Version != before.Version {
		t.Errorf("an unchanged resource went from version %d to %d", before.Version, after.Version)
	}
	if r, err := c.Replace(t.Context(), Replacement{Entries: entries[:0]}); err != nil || r.Deleted != 4 || r.Resources != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	some := []store.Entry{}
	for _, e := range entries {
		if e.Kind == "Listener" {
			some = append(some, e)
		}
	}
	if _, err := c.Replace(t.Context(), Replacement{Entries: some, Open: sealed.Open}); code(err) != api.Invalid {
		t.Errorf("a snapshot that refers to nothing: %v", err)
	}
	checkAgrees(t, c, memory)
}
