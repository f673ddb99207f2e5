package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of labels. Those of names and values are Kubernetes', so that its
// labels can be used unchanged.
const (
	MaxLabels      = 64  // of one resource
	maxLabelPrefix = 253 // bytes before the "/" of a name
	maxLabelWord   = 63  // bytes of a name, without its prefix, and of a value
)

// LabelFaults returns the faults of labels outside a document, such as those of
// a selector.
func LabelFaults(labels map[string]string) (faults []string) {
	EachLabelFault(labels, func(key, message, value string) {
		if key != "" {
			message = fmt.Sprintf("label %s: %s (%s)", Show(key), message, Show(value))
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
		case prefixed && nameFault(prefix) != "":
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
