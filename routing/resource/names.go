package resource

import (
	"fmt"
	"strings"
)

// maxName is the length of the longest name.
const maxName = 253

// nameFault returns what is wrong with the name of a resource, or "". Names are
// lower-case host names (RFC 1123), so that they fit into a file name, a metric
// label and a host name.
func nameFault(s string) string {
	if isName(s, "-.") {
		return ""
	}
	return fmt.Sprintf("must be lower-case letters, digits, '-' and '.', with a letter or digit first and last, at most %d in all", maxName)
}

// serviceNameFault is nameFault for Services, whose names may have '_' inside,
// as Kuma's names for Kubernetes services do: backend_kuma-demo_svc_3001.
func serviceNameFault(s string) string {
	if isName(s, "-._") {
		return ""
	}
	return fmt.Sprintf(
		"must be lower-case letters, digits, '-', '_' and '.', with a letter or digit first and last, at most %d in all", maxName,
	)
}

func NameFault(kind, name string) string {
	if kind == "Service" {
		return serviceNameFault(name)
	}
	return nameFault(name)
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
func NameOK(s string) bool { return nameFault(s) == "" }
