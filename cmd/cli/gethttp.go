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
	for _, d := range o.Spec.(*resource.MeshHTTPRoute).To {
		to = append(to, d.TargetRef.Name)
		rules += len(d.Rules)
		for _, r := range d.Rules {
			for _, text := range backendTexts(r.Default.BackendRefs) {
				if !slices.Contains(backends, text) {
					backends = append(backends, text)
				}
			}
		}
	}
	return []string{strings.Join(to, ","), fmt.Sprint(rules), strings.Join(backends, " ")}
}

// backendTexts writes backends with their weights: "apps[version:v1]:90".
func backendTexts(refs []resource.BackendRef) (texts []string) {
	for _, b := range refs {
		weight := 1
		if b.Weight != nil {
			weight = *b.Weight
		}
		text := fmt.Sprintf("%s:%d", b.Name, weight)
		if len(b.Tags) > 0 {
			text = fmt.Sprintf("%s%s:%d", b.Name, strings.TrimPrefix(fmt.Sprint(b.Tags), "map"), weight)
		}
		texts = append(texts, text)
	}
	return texts
}
