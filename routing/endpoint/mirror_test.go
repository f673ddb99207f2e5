package endpoint

import (
	"testing"
	"time"
)

// A mirroring group starts with the state of each common endpoint, and does not
// affect the original.
func TestMirrorCopiesStateAndLeavesOriginalUnchanged(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	specs := []Spec{{Address: "a:1"}, {Address: "b:1"}, {Address: "c:1"}}
	g := NewGroup("apps", nil)
	g.Configure(&Ejection{Failures: 1, Window: time.Minute, Duration: time.Minute, MaxShare: 100}, now)
	all := g.Update(specs, now)
	g.Acquire(all[0], Connection)
	g.Failed(all[0], ConnectFailed, now)
	all[1].SetHealth(Unhealthy, now)
	all[1].SetHealth(Healthy, now) // its slow start begins
	if !all[0].Ejected(now) || all[1].UsableSince().IsZero() {
		t.Fatal("the state that is to be mirrored is not there")
	}
	m := NewGroup("apps", nil)
	twins := m.Update(specs[:2], now)
	m.Mirror(g, t0)
	if a := twins[0]; !a.Ejected(now) || a.Active() != 1 || !a.EjectedUntil().Equal(all[0].EjectedUntil()) {
		t.Errorf("ejected %v, %d active", a.Ejected(now), a.Active())
	}
	if b := twins[1]; b.Health() != Healthy || !b.UsableSince().Equal(all[1].UsableSince()) || b.Ejected(now) {
		t.Errorf("%v since %v", b.Health(), b.UsableSince())
	}
	m.Acquire(twins[0], Connection)
	twins[1].SetHealth(Unhealthy, now)
	m.Sweep(now.Add(time.Hour))
	if all[0].Active() != 1 || all[1].Health() != Healthy || !all[0].Ejected(now) || twins[0].Ejected(now.Add(time.Hour)) {
		t.Error("what is done with the mirror is seen by the group, or the ejection does not end")
	}
}
