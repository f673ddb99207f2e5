package proxyproto

import (
	"strings"
	"testing"
)

// A refusal is the shortest bytes that are refused, and how.
type refusal struct {
	name, b string
	is      error
	want    string // the rest of the error
}

func refusals() []refusal {
	const (
		ffff = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
		p4   = "PROXY TCP4 "
		ips  = "PROXY TCP4 1.1.1.1 2.2.2.2 "
	)
	sum := string(withSum())
	wrongSum := sum[:len(sum)-1] + string([]byte{sum[len(sum)-1] ^ 1})
	return []refusal{
		// No header at all, at the first byte that shows it.
		{"HTTP", "G", ErrNoHeader, "byte 0 is 0x47"},
		{"HTTP PUT", "PU", ErrNoHeader, "byte 1 is 0x55"},
		{"TLS", "\x16", ErrNoHeader, "byte 0 is 0x16"},
		{"small letters", "p", ErrNoHeader, "byte 0 is 0x70"},
		{"no space", "PROXYT", ErrNoHeader, "byte 5 is 0x54"},
		{"CRLF", "\r\n\r\n\r", ErrNoHeader, "byte 4 is 0x0d"},
		{"last byte of the signature", "\r\n\r\n\x00\r\nQUIT\r", ErrNoHeader, "byte 11 is 0x0d"},

		// Version 1.
		{"v1 UDP4", "PROXY UD", ErrMalformed, "neither TCP4, TCP6 nor UNKNOWN (byte 7 is 0x44)"},
		{"v1 TCP5", "PROXY TCP5", ErrMalformed, "neither TCP4, TCP6 nor UNKNOWN (byte 9 is 0x35)"},
		{"v1 two spaces after PROXY", "PROXY  ", ErrMalformed, "neither TCP4, TCP6 nor UNKNOWN (byte 6 is 0x20)"},
		{"v1 two spaces after TCP4", p4 + " ", ErrMalformed, "byte 11 is 0x20, in the address"},
		{"v1 two spaces between addresses", p4 + "1.1.1.1  ", ErrMalformed, "byte 19 is 0x20, in the address"},
		{"v1 two spaces before a port", ips + " ", ErrMalformed, "byte 27 is 0x20, in the port"},
		{"v1 two spaces between ports", ips + "1  ", ErrMalformed, "byte 29 is 0x20, in the port"},
		{"v1 space at the end", ips + "1 2 ", ErrMalformed, "byte 30 is 0x20, in the port"},
		{"v1 tab", p4 + "1.1.1.1\t", ErrMalformed, "byte 18 is 0x09, in the address"},
		{"v1 host name", p4 + "l", ErrMalformed, "byte 11 is 0x6c, in the address"},
		{"v1 octet with a leading zero", p4 + "1.1.1.01 ", ErrMalformed, `address "1.1.1.01" at byte 11`},
		{"v1 octet over 255", p4 + "1.1.1.256 ", ErrMalformed, `address "1.1.1.256" at byte 11`},
		{"v1 three octets", p4 + "1.1.1 ", ErrMalformed, `address "1.1.1" at byte 11`},
		{"v1 address too long", p4 + strings.Repeat("1", 16), ErrMalformed, "address at byte 11 is longer than 15"},
		{"v1 IPv6 in TCP4", p4 + ":", ErrMalformed, "byte 11 is 0x3a, in the address"},
		{"v1 IPv4 in TCP6", "PROXY TCP6 1.1.1.1 ", ErrMalformed, `address "1.1.1.1" at byte 11`},
		{"v1 IPv6 of two ::", "PROXY TCP6 1::2::3 ", ErrMalformed, `address "1::2::3" at byte 11`},
		{"v1 IPv6 with a zone", "PROXY TCP6 fe80::1%", ErrMalformed, "byte 18 is 0x25, in the address"},
		{"v1 second address", p4 + "1.1.1.1 2.2.2 ", ErrMalformed, `address "2.2.2" at byte 19`},
		{"v1 port with a leading zero", ips + "080 ", ErrMalformed, `port "080" at byte 27`},
		{"v1 port 00", ips + "1 00\r", ErrMalformed, `port "00" at byte 29`},
		{"v1 port over 65535", ips + "65536 ", ErrMalformed, `port "65536" at byte 27`},
		{"v1 port of six digits", ips + "100000", ErrMalformed, "port at byte 27 is longer than 5"},
		{"v1 signed port", ips + "+", ErrMalformed, "byte 27 is 0x2b, in the port"},
		{"v1 no second port", ips + "1\r", ErrMalformed, "byte 28 is 0x0d, in the port"},
		{"v1 empty second port", ips + "1 \r", ErrMalformed, "byte 29 is 0x0d, in the port"},
		{"v1 LF alone", ips + "1 2\n", ErrMalformed, "byte 30 is 0x0a, in the port"},
		{"v1 CR alone", ips + "1 2\rx", ErrMalformed, "CR without LF at byte 30"},
		{"v1 only TCP4", "PROXY TCP4\r", ErrMalformed, "neither TCP4, TCP6 nor UNKNOWN (byte 10 is 0x0d)"},
		{"v1 UNKNOWNS", "PROXY UNKNOWNS", ErrMalformed, "byte 13 is 0x53, not a space or the end"},
		{"v1 UNKNOWN, LF alone", "PROXY UNKNOWN\n", ErrMalformed, "byte 13 is 0x0a, not a space or the end"},
		{"v1 UNKNOWN x, LF alone", "PROXY UNKNOWN x\n", ErrMalformed, "LF without CR at byte 15"},
		{"v1 UNKNOWN, CR alone", "PROXY UNKNOWN x\ry", ErrMalformed, "CR without LF at byte 15"},
		{"v1 UNKNOWN of 108 bytes", "PROXY UNKNOWN " + strings.Repeat("x", 92), ErrTooLong, "no CRLF in the first 107 bytes"},
		{"v1 TCP6 of more than 107 bytes", "PROXY TCP6 " + ffff[:30] + "255.255.255.255 " + ffff[:30] + "255.255.255.255 111",
			ErrTooLong, "no CRLF in the first 107 bytes"},

		// Version 2: the fixed part.
		{"v2 version 1", signature + "\x11", ErrUnsupported, "version 1"},
		{"v2 version 3", signature + "\x30", ErrUnsupported, "version 3"},
		{"v2 command 2", signature + "\x22", ErrUnsupported, "command 2"},
		{"v2 UDP over IPv4", signature + "\x21\x12", ErrUnsupported, "datagrams (family and protocol 0x12)"},
		{"v2 UDP over IPv6", signature + "\x21\x22", ErrUnsupported, "datagrams (family and protocol 0x22)"},
		{"v2 unix datagrams", signature + "\x21\x32", ErrUnsupported, "datagrams (family and protocol 0x32)"},
		{"v2 family 4", signature + "\x21\x41", ErrUnsupported, "family and protocol 0x41"},
		{"v2 protocol 3", signature + "\x21\x13", ErrUnsupported, "family and protocol 0x13"},
		{"v2 IPv4 without protocol", signature + "\x21\x10", ErrUnsupported, "family and protocol 0x10"},
		{"v2 TCP4 too short", signature + "\x21\x11\x00\x0b", ErrMalformed, "length 11, the addresses take 12"},
		{"v2 TCP6 too short", signature + "\x21\x21\x00\x23", ErrMalformed, "length 35, the addresses take 36"},
		{"v2 unix too short", signature + "\x21\x31\x00\xd7", ErrMalformed, "length 215, the addresses take 216"},
		{"v2 over 4 KiB", signature + "\x21\x11\x0f\xf1", ErrTooLong, "4097 bytes, limit 4096"},
		{"v2 LOCAL of 64 KiB", signature + "\x20\x00\xff\xff", ErrTooLong, "65551 bytes, limit 4096"},

		// Its TLVs, once they are all there.
		{"v2 UNSPEC with bytes that are no TLVs", v2(1, 0, v4Block), ErrMalformed, "TLV 0x33 has 25611 bytes, 4 are left (byte 21)"},
		{"v2 TLV without length", v4With("\x02\x00"), ErrMalformed, "TLV cut off after 2 bytes (byte 28)"},
		{"v2 TLV longer than the header", v4With("\x02\x00\x02a"), ErrMalformed, "TLV 0x02 has 2 bytes, 1 are left (byte 28)"},
		{"v2 two authorities", v4With(tlv(2, "a"), tlv(2, "b")), ErrMalformed, "TLV 0x02 a second time (byte 32)"},
		{"v2 two ALPNs", v4With(tlv(1, "h2"), tlv(1, "h2")), ErrMalformed, "TLV 0x01 a second time (byte 33)"},
		{"v2 two unique ids", v4With(tlv(5, ""), tlv(5, "")), ErrMalformed, "TLV 0x05 a second time (byte 31)"},
		{"v2 two checksums", v4With(sum[28:], sum[28:]), ErrMalformed, "checksum is"},
		{"v2 two SSLs", v4With(tlv(0x20, "\x00\x00\x00\x00\x00"), tlv(0x20, "")), ErrMalformed, "TLV 0x20 a second time (byte 36)"},
		{"v2 authority that is not UTF-8", v4With(tlv(2, "\xff")), ErrMalformed, "authority is not UTF-8 (byte 28)"},
		{"v2 unique id of 129 bytes", v4With(tlv(5, strings.Repeat("u", 129))), ErrMalformed, "unique id has 129 bytes, limit 128 (byte 28)"},
		{"v2 checksum of 3 bytes", v4With(tlv(3, "abc")), ErrMalformed, "checksum has 3 bytes, not 4 (byte 28)"},
		{"v2 wrong checksum", wrongSum, ErrMalformed, "checksum is"},
		{"v2 SSL of 4 bytes", v4With(tlv(0x20, "\x01\x00\x00\x00")), ErrMalformed, "SSL has 4 bytes, at least 5 are due (byte 31)"},
		{"v2 SSL without version", v4With(tlv(0x20, "\x01\x00\x00\x00\x00")), ErrMalformed, "SSL has no version (byte 36)"},
		{"v2 SSL, sub-TLV cut off", v4With(tlv(0x20, "\x01\x00\x00\x00\x00\x21\x00\x08TLSv1.3"), tlv(4, "x")),
			ErrMalformed, "TLV 0x21 has 8 bytes, 7 are left (byte 36)"},
		{"v2 SSL, two versions", v4With(tlv(0x20, "\x01\x00\x00\x00\x00"+tlv(0x21, "a")+tlv(0x21, "b"))),
			ErrMalformed, "TLV 0x21 a second time (byte 40)"},
		{"v2 SSL, version with a newline", v4With(tlv(0x20, "\x01\x00\x00\x00\x00"+tlv(0x21, "a\n"))),
			ErrMalformed, "SSL TLV 0x21 is no text (byte 36)"},
		{"v2 SSL, cipher not ASCII", v4With(tlv(0x20, "\x01\x00\x00\x00\x00"+tlv(0x21, "a")+tlv(0x23, "\xc3\xa9"))),
			ErrMalformed, "SSL TLV 0x23 is no text (byte 40)"},
		{"v2 SSL, common name not UTF-8", v4With(tlv(0x20, "\x01\x00\x00\x00\x00"+tlv(0x21, "a")+tlv(0x22, "\xff"))),
			ErrMalformed, "SSL TLV 0x22 is no text (byte 40)"},
	}
}

// rule 12: a v1 line is at most 107 bytes long, v2 is bounded, and both are
// refused at the first byte that shows the fault, not a byte before.
func TestRefusedHeaders(t *testing.T) {
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			h, _, err := Parse([]byte(c.b))
			if err == nil || !strings.HasPrefix(err.Error(), c.is.Error()+": "+c.want) {
				t.Fatalf("got  %v\nwant %v: %s", err, c.is, c.want)
			}
			if h.Source.IsValid() || h.Authority != "" {
				t.Fatalf("a refused header gave %+v", h)
			}
			for i := range c.b {
				if _, need, err := Parse([]byte(c.b[:i])); err != ErrMore || need <= i || need > len(c.b) {
					t.Fatalf("with %d of %d bytes: need %d, %v", i, len(c.b), need, err)
				}
			}
			// It stays refused, whatever follows.
			for _, more := range []string{"\r", "\r\n", "\r\n 1 2\r\n"} {
				if _, _, err := Parse([]byte(c.b + more)); err == nil || err == ErrMore {
					t.Fatalf("with %q after it: %v", more, err)
				}
			}
		})
	}
}
