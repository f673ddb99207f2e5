package trace

import (
	"slices"
	"testing"
	"time"
)

// kept collects spans.
type kept []*Span

func (k *kept) Export(s *Span) { *k = append(*k, s) }

func TestOutcomeIsKept(t *testing.T) {
	id := ID{15: 1} // the first to be sampled
	for _, c := range []struct {
		name    string
		policy  Policy
		outcome Outcome
		sampled bool
		kept    bool
	}{
		{"nothing", Policy{Overall: 1}, Outcome{}, false, false},
		{"all", Policy{Sample: 1, Overall: 1}, Outcome{}, true, true},
		{"failed", Policy{Overall: 1, Errors: true}, Outcome{Failed: true}, false, true},
		{"failed, which is not wanted", Policy{Overall: 1}, Outcome{Failed: true}, false, false},
		{"slow", Policy{Overall: 1, Slow: time.Second}, Outcome{Took: time.Second}, false, true},
		{"sampled by the caller", Policy{Client: 1, Overall: 1}, Outcome{Continued: true, Sampled: true}, true, true},
		{"not sampled by the caller", Policy{Sample: 1, Client: 1, Overall: 1}, Outcome{Continued: true}, false, false},
		{"not sampled by the caller, and failed", Policy{Sample: 1, Overall: 1, Errors: true}, Outcome{Continued: true, Failed: true}, false, true},
		{"another listener", Policy{Sample: 1, Overall: 1, Errors: true, Listeners: map[string]bool{"edge": true}}, Outcome{Failed: true}, false, false},
	} {
		var to kept
		c.policy.To, c.outcome.TraceID = &to, id
		policies := []*Policy{&c.policy}
		if got := c.outcome.SampledBy(policies); got != c.sampled {
			t.Errorf("%s: sampled is %v", c.name, got)
		}
		if got := c.outcome.WantedBy(policies); got != c.kept {
			t.Errorf("%s: kept is %v", c.name, got)
		}
		if c.outcome.Export(policies, &Span{}); (len(to) == 1) != c.kept {
			t.Errorf("%s: %d spans", c.name, len(to))
		}
	}
}

// Only those get a span late who had not kept it before.
func TestExportAfter(t *testing.T) {
	var all, failed kept
	policies := []*Policy{{Sample: 1, Overall: 1, To: &all}, {Overall: 1, Errors: true, To: &failed}}
	after := Outcome{TraceID: ID{1}, Failed: true}
	before := after
	before.Failed = false
	after.ExportAfter(&before, policies, &Span{})
	if len(all) != 0 || len(failed) != 1 {
		t.Errorf("%d and %d spans, want 0 and 1", len(all), len(failed))
	}
}

func TestClientsAreHidden(t *testing.T) {
	var open, hidden kept
	o := Outcome{TraceID: ID{1}}
	span := &Span{Name: "tcp edge", Attrs: []Attr{String(KeyListener, "edge")}}
	span.AddClient(String(KeyClientAddress, "192.0.2.1"), Int(KeyClientPort, 1))
	o.Export([]*Policy{{Sample: 1, Overall: 1, To: &open}, {Sample: 1, Overall: 1, To: &hidden, HideClients: true}}, span)
	keys := func(s *Span) (list []string) {
		for _, a := range s.Attrs {
			list = append(list, a.Key)
		}
		return list
	}
	if got := keys(open[0]); !slices.Equal(got, []string{KeyListener, KeyClientAddress, KeyClientPort}) {
		t.Errorf("attributes %v", got)
	}
	if got := keys(hidden[0]); !slices.Equal(got, []string{KeyListener}) || hidden[0].Name != span.Name {
		t.Errorf("attributes with clients hidden: %v", got)
	}
}
