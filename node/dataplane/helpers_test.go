package dataplane

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/netio/tlsstream"
	"penstock/node/accesslog"
	"penstock/node/kinds"
	"penstock/node/nodetest"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

func TestMain(m *testing.M) {
	testkit.Parallel("5")
	goleak.VerifyTestMain(m)
}

// testPlane is a running data plane with its current resources.
type testPlane struct {
	*Dataplane
	set   *validate.Set
	lines *testkit.Log // the access log
	over  sync.Once
}

// halt ends every connection.
func (p *testPlane) halt() { p.over.Do(p.Shutdown) }

// start starts a data plane with these resources. It is closed at the end of
// the test.
func start(t testing.TB, resources string, change ...func(*Config)) *testPlane {
	t.Helper()
	p := &testPlane{set: new(validate.Set), lines: &testkit.Log{}}
	access := accesslog.New(accesslog.Config{})
	access.Add(accesslog.NewLines(accesslog.LinesConfig{Name: "test", Output: accesslog.To(p.lines)}))
	cfg := Config{
		Log: slog.New(slog.DiscardHandler), Bind: "127.0.0.1", Loops: 2, MaxRequests: 16384,
		Tickets: tlsstream.NewTickets(), Access: access,
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if p.Dataplane, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.halt()
		p.Close()
		access.Close()
	})
	p.mustApply(t, resources)
	return p
}

func (p *testPlane) mustApply(t testing.TB, text string) {
	t.Helper()
	var changes []resource.Change
	for _, o := range nodetest.Objects(t, text) {
		changes = append(changes, resource.Put(o))
	}
	p.change(t, changes)
}

func (p *testPlane) mustDelete(t testing.TB, kind, name string) {
	t.Helper()
	k, err := resource.FindKind(kinds.All(), kind)
	if err != nil {
		t.Fatal(err)
	}
	p.change(t, []resource.Change{resource.Delete(resource.Key{Kind: k.Name, Name: name})})
}

func (p *testPlane) change(t testing.TB, changes []resource.Change) {
	t.Helper()
	next, faults, _ := p.set.With(changes)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	p.set = next
	p.Apply(next, changes)
}

// at returns the address of a listener.
func (p *testPlane) at(t testing.TB, listener string) string {
	t.Helper()
	for _, l := range p.Engine.Listeners() {
		if l.Name == listener && l.Err == nil {
			return l.Address
		}
	}
	t.Fatalf("listener %s does not listen", listener)
	return ""
}

// metric returns the value of a counter by its series in node/metrics; "": there is
// none.
func (p *testPlane) metric(t testing.TB, series string) string {
	t.Helper()
	return p.series(t)[series]
}

func (p *testPlane) series(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	set := func(v any, format string, labels ...any) {
		all["penstock_"+fmt.Sprintf(format, labels...)] = fmt.Sprint(v)
	}
	for _, f := range p.Flows() {
		l, s := f.Listener(), f.Service()
		if s != "" {
			set(f.Counts().Connections, "routed_connections_total{listener=%q,service=%q}", l, s)
		}
		set(f.Counts().Active, "connections{listener=%q,service=%q}", l, s)
		for why, v := range f.Ended() {
			set(v, "connections_total{listener=%q,result=%q,service=%q}", l, why, s)
		}
		active, ended := f.Requests()
		for class, v := range ended {
			set(v, "http_requests_total{code=%q,listener=%q,service=%q}", class, l, s)
		}
		if active > 0 || len(ended) > 0 {
			set(active, "http_requests{listener=%q,service=%q}", l, s)
		}
	}
	for why, v := range p.Refusals() {
		set(v, "http_refused_total{reason=%q}", why)
	}
	for listener, v := range p.EvictedRequests() {
		set(v, "evictions_total{budget=\"requests\",listener=%q}", listener)
	}
	for name, d := range p.Router.Table().Permissions().Denials() {
		set(d.Count, "permission_denials_total{action=%q,permission=%q}", d.Action, name)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.Histograms()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			all[fmt.Sprintf("%s_count{service=%q}", family.GetName(), m.GetLabel()[0].GetValue())] =
				fmt.Sprint(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}
