package validate_test

import (
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

const coveredPermissions = `
kind: TrafficPermission
name: no-batch
spec:
  from: [{networks: [192.0.2.0/24]}, {identities: ["spiffe://corp.example/ns/batch/**"]}]
  action: deny
---
kind: TrafficPermission
name: reports
spec:
  from: [{identities: ["spiffe://corp.example/ns/batch/report"]}, {identities: ["spiffe://corp.example/ns/web/report"]}]
  to: [{services: [orders]}]
  action: allow
`

const coveredReports = `TrafficPermission/reports spec.to[0]: allows nobody for from[0]: TrafficPermission "no-batch" denies the same or more (from[1])`

func withoutMissing(warnings resource.Warnings) (list []string) {
	for _, w := range warnings {
		if text := w.Error(); !strings.Contains(text, "there is no such") {
			list = append(list, text)
		}
	}
	return list
}

// A warning names both permissions and their entries, whichever of them comes last.
func TestPermissionsThatCoverEachOtherAreWarnedOf(t *testing.T) {
	objects := decode(t, coveredPermissions)
	for name, order := range map[string][]resource.Object{
		"the deny last": {objects[1], objects[0]}, "the allow last": {objects[0], objects[1]},
	} {
		before := mustWith(t, new(validate.Set), resource.Put(order[0]))
		_, faults, warnings := before.With([]resource.Change{resource.Put(order[1])})
		if list := withoutMissing(warnings); len(faults) > 0 || len(list) != 1 || !strings.Contains(list[0], coveredReports) {
			t.Errorf("%s: %v %q, want %q", name, faults, list, coveredReports)
		}
	}
	both := mustWith(t, new(validate.Set), puts(objects)...)
	_, _, warnings := both.With(puts(decode(t, "kind: Service\nname: orders\nspec: {endpoints: [{address: \"192.0.2.7:80\"}]}\n")))
	if list := withoutMissing(warnings); len(list) > 0 {
		t.Errorf("a change of something else warns of %q", list)
	}
}

// However many entries one permission covers, the warnings are few.
func TestWarningsOfCoveredPermissionsAreBounded(t *testing.T) {
	changes := puts(decode(t, "kind: TrafficPermission\nname: all\nspec: {action: deny}\n"))
	spec := &resource.TrafficPermission{Action: "allow"}
	for range 5 {
		spec.From = append(spec.From, resource.TrafficSource{Services: []string{"web"}})
	}
	for i := range 40 {
		changes = append(changes, put("TrafficPermission", "p"+string(rune('a'+i%26))+string(rune('a'+i/26)), spec))
	}
	_, _, warnings := new(validate.Set).With(changes)
	list := withoutMissing(warnings)
	if last := list[len(list)-1]; len(list) != 21 || !strings.Contains(last, "there are 180 more entries") {
		t.Errorf("%d warnings, the last: %s", len(list), last)
	}
}
