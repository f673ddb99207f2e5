package catalog

import (
	"fmt"
	"strings"
	"testing"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
)

// Resources of a reserved owner are changed by that one alone, and it changes no
// others.
func TestReservedResourcesHaveOneWriter(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	f.cfg.Reserved = resource.AppliedByKubernetes
	const owned = `{kind: Service, name: web, labels: {penstock.io/applied-by: kubernetes}, spec: {endpoints: [{address: "127.0.0.1:%d"}]}}`
	web := func(port int) []resource.Object { return objects(t, fmt.Sprintf(owned, port)) }
	kubernetes := func(c Change) error {
		c.Owner = resource.AppliedByKubernetes
		_, err := f.Apply(t.Context(), c)
		return err
	}
	refused := func(what, want string, err error) {
		t.Helper()
		text := ""
		if e, ok := err.(*api.Error); ok { //nolint:errorlint // as it came
			text = e.Message
			for _, fault := range e.Faults {
				text += "\n" + fault.Key + " " + fault.Path + ": " + fault.Message
			}
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: %v %q, want %q", what, err, text, want)
		}
	}
	_, err := f.Apply(t.Context(), Change{Objects: web(1)})
	refused("an apply with the label", "leave it out", err)
	if err := kubernetes(Change{Objects: web(1)}); err != nil {
		t.Fatal(err)
	}
	const there = "Service/web : is applied from Kubernetes"
	_, err = f.Apply(t.Context(), Change{Objects: objects(t, `{kind: Service, name: web, spec: {endpoints: [{address: "127.0.0.1:2"}]}}`)})
	refused("an apply", there, err)
	_, err = f.Apply(t.Context(), Change{Objects: objects(t, base), Prune: map[string]string{resource.LabelAppliedBy: "kubernetes"}})
	refused("a prune", there, err)
	_, err = f.Delete(t.Context(), Target{Kind: "Service", Name: "web"})
	refused("a delete", "Service/web is applied from Kubernetes", err)
	if err := kubernetes(Change{Objects: web(2)}); err != nil {
		t.Fatal(err)
	}
	_, err = f.Rollback(t.Context(), Target{Kind: "Service", Name: "web"})
	refused("a rollback", there, err)

	if _, err := f.Apply(t.Context(), Change{Objects: objects(t, base)}); err != nil {
		t.Fatal(err)
	}
	apps := objects(t, strings.Replace(fmt.Sprintf(owned, 1), "web", "apps", 1))
	refused("another's from Kubernetes", "Service/apps : exists already, and not from Kubernetes", kubernetes(Change{Objects: apps}))
	refused("another's deleted from Kubernetes", "Listener/edge : exists already, and not from Kubernetes",
		kubernetes(Change{Delete: []resource.Key{{Kind: "Listener", Name: "edge"}}}))
	if err := kubernetes(Change{Delete: []resource.Key{{Kind: "Service", Name: "web"}, {Kind: "Service", Name: "none"}}}); err != nil {
		t.Fatal(err)
	}
	if set, _ := f.InForce(); set.Count("Service") != 1 {
		t.Errorf("%d services, want 1", set.Count("Service"))
	}
}
