package routing

import (
	"strings"
	"testing"

	"penstock/routing/resource"
)

func hostOf(listener, service string, names ...string) *resource.Host {
	return &resource.Host{Listener: listener, Names: names, Service: service}
}

// A Host that does not compile affects no other and leaves nothing behind,
// neither when it is applied nor when it is deleted.
func TestHostThatDoesNotCompileIsLeftOut(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Listener", "l", &resource.Listener{Protocol: "tls", Hosts: []resource.HostRule{rule("own.example", "own")}}),
		put("Host", "good", hostOf("l", "good", "good.example", "*.good.example")))
	want := dump(r.Table())
	for what, ch := range map[string]resource.Change{
		"name":       put("Host", "bad", hostOf("l", "bad", "new.example", "127.0.0.1")),
		"listener's": put("Host", "bad", hostOf("l", "bad", "new.example", "OWN.example")),
		"host's":     put("Host", "bad", hostOf("l", "bad", "new.example", "*.Good.example")),
		"twice":      put("Host", "bad", hostOf("l", "bad", "new.example", "other.example", "New.example")),
		"kind":       put("Host", "bad", &resource.Service{}),
	} {
		if _, err := r.Apply([]resource.Change{ch}, t0); err == nil || !strings.Contains(err.Error(), "Host/bad is left out") {
			t.Errorf("%s: %v", what, err)
		}
		if got := dump(r.Table()); got != want {
			t.Errorf("%s is left out:\n%s\nwant:\n%s", what, got, want)
		}
		mustApply(t, r, resource.Delete(key("Host", "bad")))
		if got := dump(r.Table()); got != want {
			t.Errorf("%s is deleted:\n%s\nwant:\n%s", what, got, want)
		}
	}
}

// A change of Hosts does not list their listener as changed.
func TestHostChangesNoListener(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Listener", "l", &resource.Listener{Protocol: "tls"}))
	for _, ch := range []resource.Change{
		put("Host", "h", hostOf("l", "s", "a.example")),
		put("Host", "h", hostOf("l", "s", "b.example")),
		put("Host", "h", hostOf("elsewhere", "s", "b.example")),
		resource.Delete(key("Host", "h")),
	} {
		a := mustApply(t, r, ch)
		if len(a.Listeners)+len(a.Services) > 0 || a.Hosts {
			t.Errorf("%v changed %v, %v", ch.Key, a.Listeners, a.Services)
		}
	}
	if l, _ := r.Table().Listener("l"); l.Names() != 0 {
		t.Errorf("%d names are left", l.Names())
	}
}

// Two versions derived from the same target do not overwrite each other.
func TestTargetVersionsAreIndependent(t *testing.T) {
	with := func(from *target, protocol string) *target {
		t.Helper()
		next, err := from.with(&resource.HostRule{Service: protocol, ALPN: []string{protocol}}, "")
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	base := (*target)(nil)
	for _, protocol := range []string{"a", "b", "c"} {
		base = with(base, protocol)
	}
	base.limited = append(make([]limited, 0, 8), base.limited...)
	first := with(base, "first")
	with(base, "second")
	if got := first.limited[3].service; got != "first" {
		t.Errorf("the first table has the rule of %q", got)
	}
}
