// Package validate finds the faults of resources, all at once.
//
// Faults are found in three layers. Spec checks one spec and depends on nothing
// but its content, not even the time. Set checks all objects together, at the
// cost of what a change touches. Admit checks what matters only when an object
// is applied.
//
// Kinds of other packages implement Validator and, if they can conflict with
// other objects, SetChecker; they use the checks here, so that one fault has one
// wording everywhere. Such a check reports a fault, or returns its message and
// "" if there is none.
package validate

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"penstock/routing/resource"
)

// Report receives a fault. Paths are relative to the spec ("endpoints[2].address").
type Report = func(path, message string, value any)

// Validator is a spec of another package, which reports the faults that can be
// seen in it alone.
type Validator interface {
	Validate(report Report)
}

// Spec reports the faults that can be seen in a spec alone. The specs of
// package resource are validated here, all others are Validators.
func Spec(spec resource.Spec, fault Report) {
	switch s := spec.(type) {
	case *resource.Listener:
		validateListener(s, fault)
	case *resource.Service:
		validateService(s, fault)
	case *resource.MeshTCPRoute:
		validateTCPRoute(s, fault)
	case *resource.MeshHTTPRoute:
		validateHTTPRoute(s, fault)
	case *resource.Certificate:
		validateCertificate(s, fault)
	case *resource.Host:
		validateHost(s, fault)
	case *resource.EndpointProvider:
		validateProvider(s, fault)
	case *resource.TrafficPermission:
		validatePermission(s, fault)
	case *resource.Mesh:
		validateMesh(s, fault)
	case *resource.RateLimit:
		validateRateLimit(s, fault)
	case *resource.WorkloadIdentity:
		validateWorkload(s, fault)
	case *resource.TrustBundle:
		validateTrustBundle(s, fault)
	case *resource.Telemetry:
		validateTelemetry(s, fault)
	case *resource.Rollout:
		Fields(s, fault)
	default:
		spec.(Validator).Validate(fault)
	}
}

// nodeSocket is the name of a node's own socket in its data folder.
const nodeSocket = "penstock.sock"

// maxUnixPath is the longest path that fits in sockaddr_un with its closing zero.
const maxUnixPath = 107

// checkAddress returns what is wrong with host:port, [v6]:port or unix:PATH, or
// "". Listeners may leave out the host and use port 0.
func checkAddress(s string, listener bool) string {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		switch {
		case path == "":
			return "unix: needs a path"
		case len(path) > maxUnixPath:
			return fmt.Sprintf("the path of a unix socket must have at most %d bytes, not %d", maxUnixPath, len(path))
		case strings.ContainsRune(path, 0):
			return "the path of a unix socket must not contain a zero byte"
		case !listener && filepath.Base(path) == nodeSocket:
			return "is a node's own socket, which gives all rights: no endpoint can be one"
		}
		return ""
	}
	shape := "must be host:port, [v6]:port or unix:PATH"
	if listener {
		shape = "must be host:port, [v6]:port, :port or unix:PATH"
	}
	if s == "" {
		return "is required and " + shape
	}
	host, port, ok := resource.SplitAddress(s)
	if !ok {
		return shape
	}
	least := uint64(1)
	if listener {
		least = 0
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < least || port != strconv.FormatUint(n, 10) {
		return fmt.Sprintf("the port must be a number from %d to 65535", least)
	}
	if listener && host != "" {
		if _, err := netip.ParseAddr(host); err != nil { // a name can be resolved, but not bound
			return shape + ": the host must be an IP address"
		}
		return ""
	}
	if listener || Host(host) == "" {
		return ""
	}
	return shape + ": " + Host(host)
}

// Host returns what is wrong with an IP address or a host name to be
// resolved, or "". Such names may have underscores, unlike server names.
func Host(s string) string {
	if _, err := netip.ParseAddr(s); err == nil {
		return ""
	}
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > maxName {
		return fmt.Sprintf("the host must have 1 to %d bytes", maxName)
	}
	if strings.Trim(name, "0123456789.") == "" {
		return "the host is neither an IP address nor a name"
	}
	for label := range strings.SplitSeq(name, ".") {
		bad := strings.IndexFunc(label, func(r rune) bool {
			return r != '-' && r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
		}) >= 0
		if bad || label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "the host must be an IP address or labels of letters, digits, '-' and '_', each of 1 to 63 bytes"
		}
	}
	return ""
}

// checkTags reports tags that cannot be written as k=v,k=v.
func checkTags(path string, tags map[string]string, fault Report) {
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		v := tags[k]
		if message := tagFault(k, v); message != "" {
			fault(string(resource.AppendStep([]byte(path), k)), message, v)
		}
	}
}

const maxTag = 253

func tagFault(key, value string) string {
	odd := func(r rune) bool { return r <= ' ' || r >= unicode.MaxASCII || r == ',' || r == '=' || r == '"' }
	switch {
	case key == "" || len(key) > maxTag || strings.IndexFunc(key, odd) >= 0:
		return fmt.Sprintf("the name of a tag must be 1 to %d printable ASCII characters without spaces, commas, '=' or quotes", maxTag)
	case value == "" || len(value) > maxTag || strings.IndexFunc(value, odd) >= 0:
		return fmt.Sprintf("the value of a tag must be 1 to %d printable ASCII characters without spaces, commas, '=' or quotes", maxTag)
	}
	return ""
}

// checkALPN reports protocol names that TLS cannot carry (RFC 7301), and duplicates.
func checkALPN(path string, protocols []string, fault Report) {
	for i, p := range protocols {
		if p == "" || len(p) > 255 {
			fault(resource.Item(path, i), "the name of a protocol must have 1 to 255 bytes", p)
		}
	}
	checkDuplicates(path, protocols, fault)
}

// checkDuplicates reports duplicates in a list.
func checkDuplicates(path string, list []string, fault Report) {
	seen := make(map[string]bool, len(list))
	for i, s := range list {
		if seen[s] {
			fault(resource.Item(path, i), "duplicate", s)
		}
		seen[s] = true
	}
}

// Ref reports a reference that is missing or is not a valid name.
func Ref(path, name string, fault Report) { checkRef("", path, name, fault) }

func checkServiceRef(path, name string, fault Report) { checkRef("Service", path, name, fault) }

func checkRef(kind, path, name string, fault Report) {
	if name == "" {
		fault(path, "is required", nil)
	} else if message := Name(kind, name); message != "" {
		fault(path, message, name)
	}
}

// Address returns what is wrong with the address of a peer, or "".
func Address(s string) string { return checkAddress(s, false) }
