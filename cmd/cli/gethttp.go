package cli

import (
	"fmt"
	"slices"
	"strings"

	"penstock/routing/resource"
)

func httpRouteRow(o resource.Object) []string {
	var to, backends []string
	rules := 0
	route := o.Spec.(*resource.MeshHTTPRoute)
	for _, d := range route.To {
		to = append(to, resource.SubsetText(d.TargetRef.Name, d.TargetRef.Tags))
		rules += len(d.Rules)
		for _, r := range d.Rules {
			for _, text := range backendTexts(r.Default.BackendRefs) {
				if !slices.Contains(backends, text) {
					backends = append(backends, text)
				}
			}
		}
	}
	return []string{sourceText(route.TargetRef), strings.Join(to, ", "), fmt.Sprint(rules), strings.Join(backends, ", ")}
}

// backendTexts formats backends with their weights: "apps {version=v1}:90".
func backendTexts(refs []resource.BackendRef) (texts []string) {
	for _, b := range refs {
		weight := 1
		if b.Weight != nil {
			weight = *b.Weight
		}
		texts = append(texts, fmt.Sprintf("%s:%d", resource.SubsetText(b.Name, b.Tags), weight))
	}
	return texts
}
