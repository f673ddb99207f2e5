package resource

import "net/netip"

// Checks and helpers for the kinds of other packages, so that one fault has one
// wording everywhere. A check reports a fault, or returns its message and "" if
// there is none.

// CheckAddress checks the address of a peer.
func CheckAddress(s string) string { return checkAddress(s, false) }

// CheckHost checks an IP address or a host name to be resolved.
func CheckHost(s string) string { return checkHost(s) }

// CheckRef reports a reference that is missing or is not a valid name.
func CheckRef(path, name string, fault func(path, message string, value any)) {
	checkRef(path, name, fault)
}

// CheckCA reports a bundle of certificates that cannot be parsed. A text without
// PEM is a file name and passes.
func CheckCA(path, text string, fault func(path, message string, value any)) {
	checkCA(path, text, fault)
}

// CAFile lists the file that a bundle is to be read from, if ca is a file name;
// path begins with "spec".
func CAFile(path string, ca *string) []FileRef { return caFile(path, ca) }

// IsPEM reports whether text is PEM rather than a file name.
func IsPEM(text string) bool { return isPEM(text) }

// Item returns "path[i]".
func Item(path string, i int) string { return item(path, i) }

// DidYouMean returns ", did you mean X?" for the known word nearest to word, or
// "" if none is near.
func DidYouMean(word string, known []string) string { return didYouMean(word, known) }

// SplitAddress splits an address into host and port and removes the brackets of
// an IPv6 address.
func SplitAddress(s string) (host, port string, ok bool) { return splitAddress(s) }

// AnyHost reports whether the host of a listen address is not a specific one: it
// is empty (the node's --bind) or a wildcard.
func AnyHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}
