package kuma

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

// TestPrefixesMatchWhatBeginsWithThem: the patterns that stand for a prefix match
// exactly the SPIFFE IDs that begin with it, and give it back.
func TestPrefixesMatchWhatBeginsWithThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringMatching(`(/[ab]{1,2}){1,4}`)
		id := "spiffe://td" + path.Draw(t, "id")
		prefix := "spiffe://td" + path.Draw(t, "prefix")
		prefix = prefix[:rapid.IntRange(len("spiffe://td/"), len(prefix)).Draw(t, "cut")]
		if rapid.Bool().Draw(t, "of the ID") {
			prefix = id[:min(len(id), len(prefix))]
		}
		patterns, match := prefixPatterns(prefix), false
		for _, p := range patterns {
			match = match || resource.MatchSPIFFE(p, id)
		}
		// No ID ends in a slash, so "/a/" does not match "/a".
		if want := strings.HasPrefix(id, prefix); match != want {
			t.Fatalf("prefix %s, patterns %q: %s matches: %v, want %v", prefix, patterns, id, match, want)
		}
		if again, n := prefixOf(patterns); again != prefix || n != len(patterns) {
			t.Fatalf("%q became the prefix %q of %d patterns", patterns, again, n)
		}
	})
}

// What Kuma cannot say is not exported as something else.
func TestExportRefusesWhatKumaCannotSay(t *testing.T) {
	minute := resource.Duration(time.Minute)
	rate := &resource.Rate{Rate: 5}
	to := func(services ...string) []resource.PermissionDestination {
		return []resource.PermissionDestination{{Services: services}}
	}
	for why, s := range map[string]resource.Spec{
		"one service or all":   &resource.TrafficPermission{Action: "allow", To: to("a", "b")},
		"no onChange":          &resource.TrafficPermission{Action: "allow", OnChange: "close"},
		"and no window":        &resource.TrafficPermission{Action: "allow", Window: minute},
		"it denies everyone":   &resource.TrafficPermission{Action: "deny", To: to("a")},
		"networks, principals": &resource.TrafficPermission{Action: "allow", From: []resource.TrafficSource{{Principals: []string{"User:a"}}}},
		"no pattern like":      &resource.TrafficPermission{Action: "allow", From: []resource.TrafficSource{{Identities: []string{"spiffe://td/*/a"}}}},
		"and something else": &resource.TrafficPermission{
			Action: "allow", From: []resource.TrafficSource{{Identities: []string{"spiffe://td/a"}, Services: []string{"a"}}},
		},
		"selects everyone":               &resource.TrafficPermission{Action: "allow", From: []resource.TrafficSource{{}, {Services: []string{"a"}}}},
		"destinations but one service":   &resource.TrafficPermission{Action: "allow", To: []resource.PermissionDestination{{Listeners: []string{"a"}}}},
		"for one service or for each":    &resource.RateLimit{Connections: rate},
		"it has no rate":                 &resource.RateLimit{By: "destination"},
		"of each node":                   &resource.RateLimit{By: "destination", Scope: "cluster", Connections: rate},
		"Kuma has no burst":              &resource.RateLimit{By: "destination", Connections: &resource.Rate{Rate: 5, Burst: 6}},
		"rates of connections and requ":  &resource.RateLimit{By: "destination", BytesIn: &resource.ByteRate{Rate: 1024}},
		"only MeshTCPRoute, MeshHTTPRou": &resource.Service{},
	} {
		kind := "Service"
		switch s.(type) {
		case *resource.TrafficPermission:
			kind = resource.KindPermission
		case *resource.RateLimit:
			kind = resource.KindRateLimit
		}
		_, err := Export(resource.Object{Key: resource.Key{Kind: kind, Name: "x"}, Spec: s})
		if !errors.Is(err, ErrKind) || !strings.Contains(err.Error(), why) {
			t.Errorf("want an error with %q, got: %v", why, err)
		}
	}
}
