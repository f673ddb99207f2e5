package resource

import (
	"strings"
	"testing"
)

func TestParseSPIFFEID(t *testing.T) {
	for _, valid := range []string{
		"spiffe://example.org", "spiffe://example.org/a", "spiffe://a_b-c.1/ns/shop/sa/Web_1.2-x", "spiffe://d/...",
		"spiffe://" + strings.Repeat("a", 255), "spiffe://d/" + strings.Repeat("a", 2037),
	} {
		id, err := ParseSPIFFEID(valid)
		if err != nil || id.String() != valid {
			t.Errorf("%.60s: %v, %v", valid, id, err)
		}
	}
	for _, invalid := range []string{
		"", "spiffe:", "spiffe://", "spiffe:///a", "SPIFFE://d/a", "spiffe://D/a", "https://d/a", "spiffe://d:80/a",
		"spiffe://u@d/a", "spiffe://d/", "spiffe://d/a/", "spiffe://d//a", "spiffe://d/./a", "spiffe://d/a/..",
		"spiffe://d/a?b", "spiffe://d?b", "spiffe://d/a#b", "spiffe://d/%61", "spiffe://d/é", "spiffe://d/a b", "spiffe://d/*",
		"spiffe://" + strings.Repeat("a", 256), "spiffe://d/" + strings.Repeat("a", 2038), "spiffe://[::1]/a",
	} {
		if id, err := ParseSPIFFEID(invalid); err == nil {
			t.Errorf("%.60s is %v", invalid, id)
		}
	}
}

func TestMatchSPIFFE(t *testing.T) {
	for pattern, ids := range map[string][2][]string{ // those that match, those that do not
		"spiffe://d/a":  {{"spiffe://d/a"}, {"spiffe://d", "spiffe://d/a/b", "spiffe://e/a", "spiffe://d/A", "a", ""}},
		"spiffe://d":    {{"spiffe://d"}, {"spiffe://d/a"}},
		"spiffe://*/a":  {{"spiffe://d/a", "spiffe://e.f/a"}, {"spiffe://d", "spiffe://d/b", "spiffe://d/a/a"}},
		"spiffe://d/*":  {{"spiffe://d/a"}, {"spiffe://d", "spiffe://d/a/b"}},
		"spiffe://d/**": {{"spiffe://d/a", "spiffe://d/a/b/c"}, {"spiffe://d", "spiffe://e/a", "spiffe://dd/a"}},
		"spiffe://*/**": {{"spiffe://d/a", "spiffe://e/a/b"}, {"spiffe://d"}},
		"spiffe://d/ns/*/sa/web-*": {
			{"spiffe://d/ns/shop/sa/web-1", "spiffe://d/ns/x/sa/web-"},
			{"spiffe://d/ns/shop/sa/web", "spiffe://d/ns/a/b/sa/web-1", "spiffe://d/ns/shop/sa/web-1/x"},
		},
		"spiffe://d/*a*b": {{"spiffe://d/ab", "spiffe://d/xaybab"}, {"spiffe://d/ba", "spiffe://d/aab/b", "spiffe://d/abc"}},
		"spiffe://d/a/**": {{"spiffe://d/a/b"}, {"spiffe://d/a", "spiffe://d/ab/c"}},
	} {
		if err := CheckSPIFFEPattern(pattern); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
		for _, id := range ids[0] {
			if !MatchSPIFFE(pattern, id) {
				t.Errorf("%s does not match %s", pattern, id)
			}
		}
		for _, id := range ids[1] {
			if MatchSPIFFE(pattern, id) {
				t.Errorf("%s matches %s", pattern, id)
			}
		}
	}
	for _, invalid := range []string{
		"", "*", "d/a", "spiffe://", "spiffe://*.d/a", "spiffe://d/**/a", "spiffe://d/a**", "spiffe://d//**", "spiffe://d/", "spiffe://**/a", "spiffe://d/a?",
	} {
		if CheckSPIFFEPattern(invalid) == nil {
			t.Errorf("pattern %q is accepted", invalid)
		}
	}
}

func FuzzMatchSPIFFE(f *testing.F) {
	f.Add("spiffe://d/*a*b", "spiffe://d/xaybab")
	f.Add("spiffe://*/**", "spiffe://d/a")
	f.Fuzz(func(t *testing.T, pattern, id string) {
		if _, err := ParseSPIFFEID(id); err != nil {
			return
		}
		if CheckSPIFFEPattern(id) != nil || !MatchSPIFFE(id, id) {
			t.Errorf("%s is no pattern of itself", id)
		}
		if CheckSPIFFEPattern(pattern) == nil && !strings.Contains(pattern, "*") && MatchSPIFFE(pattern, id) != (pattern == id) {
			t.Errorf("%s, %s", pattern, id)
		}
	})
}
