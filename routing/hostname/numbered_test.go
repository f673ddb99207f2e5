package hostname

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func mustNumbered(t testing.TB, s string) Numbered {
	t.Helper()
	p, err := ParseNumbered(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return p
}

func TestNumberedNamesAreParsedStrictly(t *testing.T) {
	p := mustNumbered(t, "Broker-$(nodeId).T1.example.com")
	if p.String() != "broker-$(nodeId).t1.example.com" || p.Name(7) != "broker-7.t1.example.com" {
		t.Errorf("%v, %s", p, p.Name(7))
	}
	for name, want := range map[string]int32{
		"broker-0.t1.example.com": 0, "broker-17.t1.example.com": 17, "broker-2147483647.t1.example.com": math.MaxInt32,
		"broker-07.t1.example.com": -1, "broker-.t1.example.com": -1, "broker-2147483648.t1.example.com": -1,
		"broker--1.t1.example.com": -1, "broker-+1.t1.example.com": -1, "broker-1.t2.example.com": -1, "broker-1xt1.example.com": -1,
		"a.broker-1.t1.example.com": -1, "broker-1": -1, "": -1, "broker-1a.t1.example.com": -1, "broker-1.a.t1.example.com": -1,
	} {
		got, ok := p.Match(name)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	for s, want := range map[string]error{
		"broker.example.com": ErrPlaceholder, "$(nodeId)": ErrPlaceholder, "a.$(nodeId).example.com": ErrPlaceholder,
		"$(nodeId)-$(nodeId).example.com": ErrPlaceholder,
		"b1$(nodeId).example.com":         ErrPlaceholderDigit, "b$(nodeId)1.example.com": ErrPlaceholderDigit,
		"b_$(nodeId)!.example.com": ErrCharacter, "-$(nodeId).example.com": ErrHyphen, "b$(nodeId).*.com": ErrWildcard,
	} {
		if _, err := ParseNumbered(s); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", s, err, want)
		}
	}
}

// Two patterns meet if some name matches both. EachNumbered finds the pattern
// of each name.
func TestNumberedOverlapIfANameMatchesBoth(t *testing.T) {
	part := rapid.SampledFrom([]string{"", "a", "a-", "a1-", "-5", "-a", "-05-", "a0-"})
	draw := func(t *rapid.T, which string) (Numbered, bool) {
		domain := rapid.SampledFrom([]string{"x.y", "z.y"}).Draw(t, which+" domain")
		p, err := ParseNumbered(part.Draw(t, which+" before") + Placeholder + part.Draw(t, which+" after") + "." + domain)
		return p, err == nil
	}
	rapid.Check(t, func(t *rapid.T) {
		p, ok := draw(t, "p")
		q, too := draw(t, "q")
		if !ok || !too {
			return
		}
		common := ""
		for n := range int32(20) {
			if _, ok := q.Match(p.Name(n)); ok {
				common = p.Name(n)
			}
			found := false
			EachNumbered(p.Name(n), func(x Numbered, m int32) bool {
				found = found || x == p && m == n
				return true
			})
			if !found {
				t.Fatalf("%s is not found to be of %v", p.Name(n), p)
			}
		}
		if p.Overlaps(q) != (common != "") || p.Overlaps(q) != q.Overlaps(p) {
			t.Fatalf("%v and %v: %v, %v, in common %q", p, q, p.Overlaps(q), q.Overlaps(p), common)
		}
	})
}
