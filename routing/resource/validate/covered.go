package validate

import (
	"fmt"
	"strings"

	"penstock/routing/permit"
	"penstock/routing/resource"
)

const (
	// maxCoveredEntries bounds the warnings about one permission, and maxCovered
	// those about all.
	maxCoveredEntries = 3
	maxCovered        = 20
)

// checkCovered warns of entries of permissions that never decide who may connect,
// because of other ones, where a change touches either.
func (c *checker) checkCovered(changes []resource.Change) {
	changed := map[string]bool{}
	for i := range changes {
		if ch := &changes[i]; ch.Kind == resource.KindPermission && !ch.Delete {
			changed[ch.Name] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	group := c.set.objects.Group(resource.KindPermission)
	found := permit.FindCovered(func(yield func(string, *resource.TrafficPermission) bool) {
		for name, m := range group.All() {
			if spec, ok := m.Spec.(*resource.TrafficPermission); ok && !yield(name, spec) {
				return
			}
		}
	}, func(name string) bool { return changed[name] })
	said, of := 0, map[string]int{}
	var last *resource.Object
	for _, f := range found {
		if of[f.Entry.Permission]++; said == maxCovered || of[f.Entry.Permission] > maxCoveredEntries {
			continue
		}
		m, _ := group.Get(f.Entry.Permission)
		last = &m.Object
		c.warn(last, coveredPath(f.Entry), coveredText(&f), nil)
		said++
	}
	if rest := len(found) - said; rest > 0 {
		c.warn(last, "", fmt.Sprintf("there are %d more entries of TrafficPermissions that decide nothing", rest), nil)
	}
}

// coveredPath is the place of an entry: that of its to, if it has one.
func coveredPath(e permit.Entry) string {
	switch {
	case e.To >= 0:
		return resource.Item("spec.to", e.To)
	case e.From >= 0:
		return "spec." + fromText(e)
	case e.Rule >= 0:
		return "spec." + resource.Item("rules", e.Rule)
	}
	return "spec"
}

// coveredText says what never happens, and because of what.
func coveredText(f *permit.Covered) string {
	what := "decides nothing"
	if f.Denied {
		what = "allows nobody"
	}
	if from := fromText(f.Entry); from != "" && f.Entry.To >= 0 {
		what += " for " + from
	}
	verb := map[string]string{resource.ActionAllow: "allows", resource.ActionDeny: "denies", resource.ActionShadowDeny: "counts"}[f.Action]
	return fmt.Sprintf("%s: TrafficPermission %q %s the same or more%s", what, f.By.Permission, verb, entryText(f.By))
}

// entryText names the entries of from and to; "" if there are none.
func entryText(e permit.Entry) string {
	from := fromText(e)
	switch {
	case from != "" && e.To >= 0:
		return fmt.Sprintf(" (%s with to[%d])", from, e.To)
	case from != "":
		return " (" + from + ")"
	case e.To >= 0:
		return fmt.Sprintf(" (to[%d])", e.To)
	}
	return ""
}

// fromText names an entry of from, or the rule that has none; "": neither.
func fromText(e permit.Entry) string {
	text := ""
	if e.From >= 0 {
		text = resource.Item("from", e.From)
	}
	if e.Rule < 0 {
		return text
	}
	return strings.TrimSuffix(resource.Item("rules", e.Rule)+"."+text, ".")
}
