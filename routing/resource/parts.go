package resource

import "net/netip"

// What kinds of other packages are checked with, so that the same thing is told
// in the same words everywhere. Each reports a fault or gives what is wrong as
// a text, "" where nothing is.

// CheckAddress says what is wrong with the address of a peer.
func CheckAddress(s string) string { return checkAddress(s, false) }

// CheckHost says what is wrong with an IP address or a name to be looked up.
func CheckHost(s string) string { return checkHost(s) }

// CheckRef reports a reference that is missing or cannot be a name.
func CheckRef(path, name string, fault func(path, message string, value any)) {
	checkRef(path, name, fault)
}

// CheckCA reports a bundle of certificates that cannot be read. A text without
// PEM is the name of a file.
func CheckCA(path, text string, fault func(path, message string, value any)) {
	checkCA(path, text, fault)
}

// CAFile lists the file that a bundle is to be read from, if it is one; path
// begins with "spec".
func CAFile(path string, ca *string) []FileRef { return caFile(path, ca) }

// IsPEM tells PEM from the name of a file.
func IsPEM(text string) bool { return isPEM(text) }

// Item gives "path[i]".
func Item(path string, i int) string { return item(path, i) }

// DidYouMean gives ", did you mean X?" for the nearest of the known words, or "".
func DidYouMean(word string, known []string) string { return didYouMean(word, known) }

// SplitAddress cuts host and port apart, a v6 address out of its brackets.
func SplitAddress(s string) (host, port string, ok bool) { return splitAddress(s) }

// AnyHost tells whether an address to listen at is not that of one host: it has
// none (the node's --bind), or a wildcard.
func AnyHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}
