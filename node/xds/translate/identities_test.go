package translate

import (
	"regexp"
	"testing"

	"penstock/routing/resource"
)

// Envoy is to accept the SPIFFE IDs that Penstock accepts by the same pattern.
func TestRegularExpressionsMatchWhatPatternsDo(t *testing.T) {
	t.Parallel()
	ids := []string{
		"spiffe://prod.example/web", "spiffe://prod-example/web", "spiffe://prod.example/ns/a/web", "spiffe://prod.example/ns/b/web",
		"spiffe://prod.example/ns/shop-web", "spiffe://prod.example", "spiffe://other/web", "spiffe://prod.example/ns", "https://prod.example/web",
	}
	for _, pattern := range []string{
		"spiffe://prod.example/*", "spiffe://prod.example/**", "spiffe://*/web", "spiffe://*/**",
		"spiffe://prod.example/ns/*/web", "spiffe://prod.example/ns/*-web", "spiffe://prod.example/ns/**",
	} {
		re, matched := regexp.MustCompile("^(?:"+spiffeRegex(pattern)+")$"), 0
		for _, id := range ids {
			want := resource.MatchSPIFFE(pattern, id)
			if got := re.MatchString(id); got != want {
				t.Errorf("%s, as %s, matches %s: %t, want %t", pattern, re, id, got, want)
			}
			if want {
				matched++
			}
		}
		if matched == 0 {
			t.Errorf("%s matches none", pattern)
		}
		if re.MatchString("spiffe://prod.example/ns/web?x") || re.MatchString("spiffe://prod.example/ns/%61/web") {
			t.Errorf("%s matches what is no ID", pattern)
		}
	}
}
