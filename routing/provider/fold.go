package provider

import (
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
	maxAddress  = 260 // a host name and a port
	maxTags     = 64
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
// each address once, in its readiest form: an endpoint that moves from one
// list of its provider to another is in both for a moment.
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
		return int(x.State) - int(y.State)
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
func (e *Endpoint) Normalize() error {
	if len(e.Address) > maxAddress {
		return fmt.Errorf("address %.40q... has %d bytes; the maximum is %d", e.Address, len(e.Address), maxAddress)
	}
	host, port, err := net.SplitHostPort(e.Address)
	if err != nil {
		return fmt.Errorf("address %q is not host:port", e.Address)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("address %q: port must be 1 to 65535", e.Address)
	}
	switch addr, err := netip.ParseAddr(host); {
	case err == nil && (addr.IsUnspecified() || addr.IsMulticast()):
		return fmt.Errorf("address %q is not the address of one host", e.Address)
	case err == nil:
		var buf [maxAddress]byte
		if text := netip.AddrPortFrom(addr.Unmap(), uint16(n)).AppendTo(buf[:0]); string(text) != e.Address {
			e.Address = string(text)
		}
	case !isHostName(host):
		return fmt.Errorf("address %q: host must be an IP address or a host name", e.Address)
	default:
		e.Address = strings.ToLower(e.Address)
	}
	if e.Weight < 0 || e.Weight > MaxWeight {
		return fmt.Errorf("%s: weight %d must be 0 to %d", e.Address, e.Weight, MaxWeight)
	}
	return checkTags(e)
}

func checkTags(e *Endpoint) error {
	if len(e.Tags) > maxTags {
		return fmt.Errorf("%s has %d tags; the maximum is %d", e.Address, len(e.Tags), maxTags)
	}
	for k, v := range e.Tags {
		if k == "" || len(k) > maxTagBytes || len(v) > maxTagBytes || !isText(k) || !isText(v) {
			return fmt.Errorf("%s: tag %.40q: key and value must be printable text of at most %d bytes, the key not empty",
				e.Address, k, maxTagBytes)
		}
	}
	return nil
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
