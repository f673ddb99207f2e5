package provider

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of one endpoint. Sources read from places that nobody here has
// checked.
const (
	MaxWeight   = 1_000_000
	MaxPriority = 127
	maxAddress  = 260 // a host name and a port
	MaxTags     = 64
	maxTagBytes = 256
)

// answer is the usable part of a reported answer.
type answer struct {
	endpoints []Endpoint // sorted by address, each once
	// unused is how many endpoints are left out: over the limit, or invalid for
	// the reason in fault, which is the first one's.
	unused int
	fault  string
}

// fold sorts an answer, leaves out what is invalid or over the limit and keeps
// each address once, in its readiest form and then with its lowest priority: an
// endpoint that moves from one list of its provider to another is in both for a
// moment.
func fold(list []Endpoint, limit int) answer {
	var a answer
	valid := list[:0]
	for i := range list {
		if err := list[i].Normalize(); err != nil {
			a.unused++
			if a.fault == "" {
				a.fault = err.Error()
			}
			continue
		}
		valid = append(valid, list[i])
	}
	slices.SortStableFunc(valid, func(x, y Endpoint) int {
		if c := strings.Compare(x.Address, y.Address); c != 0 {
			return c
		}
		return cmp.Or(int(x.State)-int(y.State), x.Priority-y.Priority)
	})
	valid = slices.CompactFunc(valid, func(x, y Endpoint) bool { return x.Address == y.Address })
	if len(valid) > limit {
		a.unused += len(valid) - limit
		if a.fault == "" {
			a.fault = fmt.Sprintf("the answer has %d endpoints; only the first %d by address are used", len(valid), limit)
		}
		valid = valid[:limit]
	}
	a.endpoints = slices.Clip(valid)
	return a
}

// Normalize brings Address into the form in which addresses are compared. It
// reports why an endpoint cannot be used.
func (e *Endpoint) Normalize() (err error) {
	if e.Address, err = CheckAddress(e.Address); err != nil {
		return err
	}
	if e.Weight < 0 || e.Weight > MaxWeight {
		return fmt.Errorf("%s: weight %d must be 0 to %d", e.Address, e.Weight, MaxWeight)
	}
	if e.Priority < 0 || e.Priority > MaxPriority {
		return fmt.Errorf("%s: priority %d must be 0 to %d", e.Address, e.Priority, MaxPriority)
	}
	return checkTags(e)
}

// CheckAddress returns an address in its normal form: lower case, IP addresses
// as netip.Addr writes them. It must be that of one host, IP:port, [v6]:port or
// host:port with at most 260 bytes.
func CheckAddress(address string) (normal string, err error) {
	if len(address) > maxAddress {
		return "", fmt.Errorf("address %.40q... has %d bytes; the maximum is %d", address, len(address), maxAddress)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("address %q is not host:port", address)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("address %q: port must be 1 to 65535", address)
	}
	port = strconv.FormatUint(n, 10)
	switch addr, err := netip.ParseAddr(host); {
	case err == nil && (addr.IsUnspecified() || addr.IsMulticast()):
		return "", fmt.Errorf("address %q is not the address of one host", address)
	case err == nil:
		return net.JoinHostPort(addr.Unmap().String(), port), nil
	case !isHostName(host):
		return "", fmt.Errorf("address %q: host must be an IP address or a host name", address)
	}
	return strings.ToLower(host) + ":" + port, nil
}

func checkTags(e *Endpoint) error {
	if len(e.Tags) > MaxTags {
		return fmt.Errorf("%s has %d tags; the maximum is %d", e.Address, len(e.Tags), MaxTags)
	}
	for k, v := range e.Tags {
		if !TagOK(k, v) {
			return fmt.Errorf("%s: tag %.40q: key and value must be printable text of at most %d bytes, the key not empty",
				e.Address, k, maxTagBytes)
		}
	}
	return nil
}

// TagOK reports whether an endpoint may have a tag: printable text of at most 256
// bytes each, the key not empty.
func TagOK(key, value string) bool {
	return key != "" && len(key) <= maxTagBytes && len(value) <= maxTagBytes && isText(key) && isText(value)
}

func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isHostName reports whether host may be looked up: letters, digits, hyphens and
// underscores in labels of 1 to 63 bytes (RFC 1123, with the underscore that
// names in use have), not all of the last one digits.
func isHostName(host string) bool {
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
		for i := range len(l) {
			c := l[i] | 0x20
			if (c < 'a' || c > 'z') && (l[i] < '0' || l[i] > '9') && l[i] != '-' && l[i] != '_' {
				return false
			}
		}
	}
	_, err := strconv.ParseUint(labels[len(labels)-1], 10, 64)
	return err != nil && len(host) <= 253
}

// diff compares the endpoints in force, by address, with an answer.
func diff(applied map[string]Endpoint, next []Endpoint) (put []Endpoint, gone []string) {
	same := 0
	for i := range next {
		e := &next[i]
		old, ok := applied[e.Address]
		if ok {
			same++
		}
		if !ok || !old.Equal(e) {
			put = append(put, *e)
		}
	}
	if same == len(applied) {
		return put, nil
	}
	stays := make(map[string]bool, same)
	for i := range next {
		stays[next[i].Address] = true
	}
	for address := range applied {
		if !stays[address] {
			gone = append(gone, address)
		}
	}
	slices.Sort(gone)
	return put, gone
}
