package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"penstock/routing/resource"
)

// maxName is the length of the longest name.
const maxName = 253

// Name returns what is wrong with the name of a resource, or "". Names are
// lower-case host names (RFC 1123), so that they fit into a file name, a metric
// label and a host name. Those of Services may have '_' inside, as Kuma's names
// for Kubernetes services do: backend_kuma-demo_svc_3001.
func Name(kind, name string) string {
	marks, shown := "-.", "'-'"
	if kind == "Service" {
		marks, shown = "-._", "'-', '_'"
	}
	if kind == resource.KindMesh && name != "default" {
		return "must be default: there is one mesh"
	}
	if kind == resource.KindTrustBundle && name == resource.OwnTrustDomain {
		return "must not be cluster, which stands for the cluster's own trust domain"
	}
	if isName(name, marks) {
		return ""
	}
	return fmt.Sprintf(
		"must be lower-case letters, digits, %s and '.', with a letter or digit first and last, at most %d in all", shown, maxName,
	)
}

// isName reports whether s has only lower-case letters and digits, and marks inside.
func isName(s, marks string) bool {
	edge := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	ok := s != "" && len(s) <= maxName && edge(s[0]) && edge(s[len(s)-1])
	for i := 0; ok && i < len(s); i++ {
		ok = edge(s[i]) || strings.IndexByte(marks, s[i]) >= 0
	}
	return ok
}

// NameOK reports whether a text is a valid resource name.
func NameOK(s string) bool { return Name("", s) == "" }

// Bounds of labels. Those of names and values are Kubernetes', so that its
// labels can be used unchanged.
const (
	MaxLabels      = 64  // of one resource
	maxLabelPrefix = 253 // bytes before the "/" of a name
	maxLabelWord   = 63  // bytes of a name, without its prefix, and of a value
)

// Labels returns the faults of labels outside a document, such as those of
// a selector.
func Labels(labels map[string]string) (faults []string) {
	EachLabelFault(labels, func(key, message, value string) {
		if key != "" {
			message = fmt.Sprintf("label %s: %s (%s)", resource.Show(key), message, resource.Show(value))
		}
		faults = append(faults, message)
	})
	return faults
}

// EachLabelFault reports the faults of labels. key is "" for a fault of all of
// them; value is the offending text.
func EachLabelFault(labels map[string]string, report func(key, message, value string)) {
	if len(labels) > MaxLabels {
		report("", fmt.Sprintf("%d labels; a resource has at most %d", len(labels), MaxLabels), "")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		prefix, word, prefixed := strings.Cut(key, "/")
		if !prefixed {
			word = key
		}
		switch value := labels[key]; {
		case prefixed && !NameOK(prefix):
			report(key, fmt.Sprintf("the prefix of a label, before '/', must be a lower-case host name of at most %d bytes", maxLabelPrefix), key)
		case word == "" || !isLabelValue(word):
			report(key, "the name of a label must be "+labelRule, key)
		case !isLabelValue(value):
			report(key, "the value of a label must be empty or "+labelRule, value)
		}
	}
}

var labelRule = fmt.Sprintf("letters, digits, '-', '_' and '.', with a letter or digit first and last, at most %d in all", maxLabelWord)

// isLabelValue reports whether a label can have that value. Names follow the
// same rule but must not be empty.
func isLabelValue(s string) bool {
	edge := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	if s == "" {
		return true
	}
	ok := len(s) <= maxLabelWord && edge(s[0]) && edge(s[len(s)-1])
	for i := 0; ok && i < len(s); i++ {
		ok = edge(s[i]) || s[i] == '-' || s[i] == '_' || s[i] == '.'
	}
	return ok
}
