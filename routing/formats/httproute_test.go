package formats

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// drawHTTPRoute draws any valid route, with each type of match and filter.
func drawHTTPRoute(t *rapid.T) *resource.MeshHTTPRoute {
	tcp := drawRoute(t)
	r := &resource.MeshHTTPRoute{TargetRef: tcp.TargetRef}
	for _, to := range tcp.To {
		http := resource.HTTPRouteTo{TargetRef: to.TargetRef}
		for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
			rule := resource.HTTPRule{Matches: []resource.HTTPMatch{drawMatch(t, i)}}
			rule.Default.Filters = drawFilters(t)
			if i == 0 && rapid.Bool().Draw(t, "redirects") {
				rule.Default.Filters = append(rule.Default.Filters, resource.HTTPFilter{
					Type: "RequestRedirect",
					RequestRedirect: &resource.RequestRedirect{
						Scheme:     rapid.SampledFrom([]string{"", "http", "https"}).Draw(t, "scheme"),
						Hostname:   "a.example.com",
						StatusCode: new(rapid.SampledFrom([]int{301, 302, 303, 307, 308}).Draw(t, "status")),
					},
				})
			} else {
				rule.Default.BackendRefs = to.Rules[0].Default.BackendRefs
			}
			http.Rules = append(http.Rules, rule)
		}
		r.To = append(r.To, http)
	}
	return r
}

// drawMatch draws a match that differs from those of other numbers.
func drawMatch(t *rapid.T, number int) resource.HTTPMatch {
	value := rapid.StringMatching(`[!-~]{1,9}`)
	m := resource.HTTPMatch{Method: rapid.SampledFrom([]string{"", "GET", "POST"}).Draw(t, "method")}
	m.Path = &resource.PathMatch{
		Type:  rapid.SampledFrom([]string{"Exact", "PathPrefix", "RegularExpression"}).Draw(t, "path"),
		Value: fmt.Sprintf("/%d", number),
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "headers") {
		h := resource.HeaderMatch{
			Type: rapid.SampledFrom([]string{"", "Exact", "Present", "Absent", "Prefix"}).Draw(t, "type"),
			Name: fmt.Sprintf("x-%d", i),
		}
		if h.Type != "Present" && h.Type != "Absent" {
			h.Value = value.Draw(t, "value")
		}
		m.Headers = append(m.Headers, h)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "parameters") {
		m.QueryParams = append(m.QueryParams, resource.QueryMatch{Type: "Exact", Name: fmt.Sprintf("q%d", i), Value: value.Draw(t, "value")})
	}
	return m
}

func drawFilters(t *rapid.T) (filters []resource.HTTPFilter) {
	change := func() *resource.HeaderModifier {
		return &resource.HeaderModifier{
			Set:    []resource.HeaderValue{{Name: "x-set", Value: rapid.StringMatching(`[!-~]{1,9}`).Draw(t, "value")}},
			Add:    []resource.HeaderValue{{Name: "x-add", Value: "true"}},
			Remove: []string{"x-gone"},
		}
	}
	if rapid.Bool().Draw(t, "changes requests") {
		filters = append(filters, resource.HTTPFilter{Type: "RequestHeaderModifier", RequestHeaderModifier: change()})
	}
	if rapid.Bool().Draw(t, "changes answers") {
		filters = append(filters, resource.HTTPFilter{Type: "ResponseHeaderModifier", ResponseHeaderModifier: change()})
	}
	return filters
}

// HTTP routes are the same after each format, like TCP routes.
func TestHTTPRoutesRoundTripInEachFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := resource.Object{Key: resource.Key{Kind: "MeshHTTPRoute", Name: "r"}, Spec: drawHTTPRoute(t)}
		validate.Spec(o.Spec, func(path, message string, value any) { t.Fatalf("%s %s (%v)", path, message, value) })
		if form := rapid.SampledFrom([]string{"", "kuma", "kuma-kubernetes"}).Draw(t, "form"); form != "" {
			o.Labels = map[string]string{"penstock/format": form, "kuma.io/mesh": "default"}
		}
		checkRoundTrip(t, o)
	})
}
