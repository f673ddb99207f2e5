package proxyproto

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
)

// The beginnings of a line.
const (
	lineTCP4    = "PROXY TCP4 "
	lineTCP6    = "PROXY TCP6 "
	lineUnknown = "PROXY UNKNOWN"
)

// The longest texts of an address.
const (
	maxText4 = len("255.255.255.255")
	maxText6 = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
)

// parseV1 reads a line (section 2.1).
func parseV1(b []byte) (Header, int, error) {
	var kind string
	wrong := 0 // the byte at which b left the last of the beginnings
	for _, k := range []string{lineTCP4, lineTCP6, lineUnknown} {
		same := 0
		for same < min(len(b), len(k)) && b[same] == k[same] {
			same++
		}
		if same == len(k) {
			kind = k
			break
		}
		if same == len(b) {
			return Header{}, len(b) + 1, ErrMore
		}
		wrong = max(wrong, same)
	}
	switch {
	case kind == "" && wrong < len("PROXY "):
		return Header{}, 0, fmt.Errorf("%w: byte %d is 0x%02x", ErrNoHeader, wrong, b[wrong])
	case kind == "":
		return Header{}, 0, fmt.Errorf("%w: neither TCP4, TCP6 nor UNKNOWN (byte %d is 0x%02x)", ErrMalformed, wrong, b[wrong])
	case kind == lineUnknown:
		return parseUnknown(b)
	}
	return parseTCP(b, kind == lineTCP6)
}

// parseUnknown skips what follows UNKNOWN up to the line's end.
func parseUnknown(b []byte) (Header, int, error) {
	if at := len(lineUnknown); len(b) > at && b[at] != ' ' && b[at] != '\r' {
		return Header{}, 0, fmt.Errorf("%w: byte %d is 0x%02x, not a space or the end", ErrMalformed, at, b[at])
	}
	n, err := lineEnd(b, len(lineUnknown))
	if err != nil {
		return Header{}, n, err
	}
	return Header{Local: true}, n, nil
}

// lineEnd finds the CRLF at or after from. A CR or an LF that is not part of
// one is refused, as another receiver may take it for the end.
func lineEnd(b []byte, from int) (n int, err error) {
	i := from + bytes.IndexAny(b[from:], "\r\n")
	switch {
	case i < from: // neither is there
		if len(b) >= MaxV1-1 {
			return 0, fmt.Errorf("%w: no CRLF in the first %d bytes", ErrTooLong, MaxV1)
		}
	case b[i] == '\n':
		return 0, fmt.Errorf("%w: LF without CR at byte %d", ErrMalformed, i)
	case i+2 > MaxV1:
		return 0, fmt.Errorf("%w: no CRLF in the first %d bytes", ErrTooLong, MaxV1)
	case i+1 < len(b) && b[i+1] != '\n':
		return 0, fmt.Errorf("%w: CR without LF at byte %d", ErrMalformed, i)
	case i+1 < len(b):
		return i + 2, nil
	}
	return len(b) + 1, ErrMore
}

// parseTCP reads the four fields after TCP4 or TCP6. Each is checked as soon
// as the byte that ends it is there.
func parseTCP(b []byte, v6 bool) (h Header, n int, err error) {
	f := fields{b: b, at: len(lineTCP4)}
	src := f.address(v6)
	dst := f.address(v6)
	srcPort := f.port(' ')
	dstPort := f.port('\r')
	if f.err != nil {
		return Header{}, f.need, f.err
	}
	if n, err = lineEnd(b, f.at-1); err != nil {
		return Header{}, n, err
	}
	h.Source = netip.AddrPortFrom(src, srcPort)
	h.Destination = netip.AddrPortFrom(dst, dstPort)
	return h, n, nil
}

// fields takes a line apart; the first error stays.
type fields struct {
	b    []byte
	at   int
	need int // with ErrMore
	err  error
}

// next gives the field up to the byte end, and steps over that byte.
func (f *fields) next(what string, longest int, end byte, ok func(byte) bool) []byte {
	if f.err != nil {
		return nil
	}
	rest := f.b[f.at:]
	for i, c := range rest {
		switch {
		case c == end && i > 0:
			f.at += i + 1
			return rest[:i]
		case !ok(c):
			f.err = fmt.Errorf("%w: byte %d is 0x%02x, in the %s", ErrMalformed, f.at+i, c, what)
			return nil
		case i == longest:
			f.err = fmt.Errorf("%w: %s at byte %d is longer than %d", ErrMalformed, what, f.at, longest)
			return nil
		}
	}
	if len(f.b) >= MaxV1-1 {
		f.err = fmt.Errorf("%w: no CRLF in the first %d bytes", ErrTooLong, MaxV1)
		return nil
	}
	f.need, f.err = len(f.b)+1, ErrMore
	return nil
}

func (f *fields) address(v6 bool) netip.Addr {
	longest, ok := maxText4, inText4
	if v6 {
		longest, ok = maxText6, inText6
	}
	at := f.at
	text := f.next("address", longest, ' ', ok)
	if f.err != nil {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(string(text))
	if err != nil || a.Is6() != v6 {
		f.err = fmt.Errorf("%w: address %q at byte %d", ErrMalformed, text, at)
		return netip.Addr{}
	}
	return a.Unmap()
}

func (f *fields) port(end byte) uint16 {
	at := f.at
	text := f.next("port", 5, end, isDigit)
	if f.err != nil {
		return 0
	}
	p, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil || len(text) > 1 && text[0] == '0' {
		f.err = fmt.Errorf("%w: port %q at byte %d", ErrMalformed, text, at)
		return 0
	}
	return uint16(p)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func inText4(c byte) bool { return isDigit(c) || c == '.' }

func inText6(c byte) bool {
	return isDigit(c) || c == ':' || c == '.' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func appendV1(dst []byte, h Header) []byte {
	src, to, ok := h.addresses()
	if !ok {
		return append(dst, lineUnknown+"\r\n"...)
	}
	if src.Is4() {
		dst = append(dst, lineTCP4...)
	} else {
		dst = append(dst, lineTCP6...)
	}
	dst = append(appendText(dst, src), ' ')
	dst = append(appendText(dst, to), ' ')
	dst = append(strconv.AppendUint(dst, uint64(h.Source.Port()), 10), ' ')
	dst = strconv.AppendUint(dst, uint64(h.Destination.Port()), 10)
	return append(dst, "\r\n"...)
}

// appendText writes an address. The specification knows IPv6 as groups of
// hexadecimal digits only, so a mapped address is not written with dots.
func appendText(dst []byte, a netip.Addr) []byte {
	if !a.Is4In6() {
		return a.AppendTo(dst)
	}
	v4 := a.Unmap().As4()
	dst = append(dst, "::ffff:"...)
	dst = strconv.AppendUint(dst, uint64(v4[0])<<8|uint64(v4[1]), 16)
	dst = append(dst, ':')
	return strconv.AppendUint(dst, uint64(v4[2])<<8|uint64(v4[3]), 16)
}

// addresses gives both addresses in one family, IPv4 where both are; false
// where there are none to write.
func (h *Header) addresses() (src, dst netip.Addr, ok bool) {
	if h.Local || !h.Source.IsValid() || !h.Destination.IsValid() {
		return src, dst, false
	}
	src = h.Source.Addr().WithZone("").Unmap()
	dst = h.Destination.Addr().WithZone("").Unmap()
	if src.Is4() != dst.Is4() {
		src, dst = netip.AddrFrom16(src.As16()), netip.AddrFrom16(dst.As16())
	}
	return src, dst, true
}
