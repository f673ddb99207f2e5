package proxyproto

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// headers are what can be written in version 2 without loss.
func headers() map[string]Header {
	v4 := Header{Source: addrPort("192.0.2.1:56324"), Destination: addrPort("198.51.100.11:443")}
	v6 := Header{Source: addrPort("[2001:db8::1]:56324"), Destination: addrPort("[2001:db8:0:1::11]:0")}
	all := v4
	all.Authority, all.ALPN, all.UniqueID = "api.example.com", "h2", []byte{0, 1, 2, 0xff}
	all.SSL = &SSL{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", CommonName: "jürgen", Verified: true, ClientCert: true}
	mixed := Header{Source: v4.Source, Destination: v6.Destination}
	resumed := v6
	resumed.SSL = &SSL{Version: "TLSv1.2", ClientCert: true, Resumed: true}
	bare := v4
	bare.SSL = &SSL{Version: "TLSv1.3"}
	return map[string]Header{
		"local": {Local: true}, "v4": v4, "v6": v6, "mixed": mixed,
		"all": all, "resumed": resumed, "no client certificate": bare,
	}
}

// inV1 is what version 1 keeps of h.
func inV1(h Header) Header {
	return Header{Local: !h.Source.IsValid(), Source: h.Source, Destination: h.Destination}
}

// inV2 is what version 2 keeps of h.
func inV2(h Header) Header {
	if !h.Source.IsValid() {
		return Header{Local: true}
	}
	return h
}

// tlv is one TLV.
func tlv(kind byte, value string) string {
	return string([]byte{kind, byte(len(value) >> 8), byte(len(value))}) + value
}

// v2 is a header of that command and family with that block.
func v2(command, family byte, block string) string {
	return signature + string([]byte{0x20 | command, family, byte(len(block) >> 8), byte(len(block))}) + block
}

// v4Block is the address block of headers()["v4"].
const v4Block = "\xc0\x00\x02\x01\xc6\x33\x64\x0b\xdc\x04\x01\xbb"

// v4With is headers()["v4"] with TLVs.
func v4With(tlvs ...string) string { return v2(1, 0x11, v4Block+strings.Join(tlvs, "")) }

// withSum is v4With and a right checksum at the end.
func withSum(tlvs ...string) []byte {
	b := []byte(v4With(append(tlvs, tlv(typeCRC32C, "\x00\x00\x00\x00"))...))
	binary.BigEndian.PutUint32(b[len(b)-4:], sumCRC(b, len(b)-4))
	return b
}

func mustParse(t testing.TB, b []byte) Header {
	t.Helper()
	h, n, err := Parse(b)
	if err != nil || n != len(b) {
		t.Fatalf("%q: n=%d of %d, %v", b, n, len(b), err)
	}
	return h
}

// mustBe parses b, cut at every byte and with bytes after it as well.
func mustBe(t *testing.T, b []byte, want Header) {
	t.Helper()
	for i := range b {
		if _, need, err := Parse(b[:i]); err != ErrMore || need <= i || need > len(b) {
			t.Fatalf("%d of %d bytes: need %d, %v", i, len(b), need, err)
		}
	}
	got, n, err := Parse(append(slices.Clone(b), "\x16\x03\x01"...))
	if err != nil || n != len(b) || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, n=%d of %d, %v\nwant %+v", got, n, len(b), err, want)
	}
}

// rule 12: a header may arrive in pieces, and is read as it was written; both
// versions, in and out.
func TestHeaderIsReadAsWritten(t *testing.T) {
	for name, h := range headers() {
		t.Run(name, func(t *testing.T) {
			mustBe(t, Append(nil, V1, h), inV1(h))
			mustBe(t, Append(nil, V2, h), h)
			if b := Append([]byte("x"), None, h); string(b) != "x" {
				t.Fatalf("None wrote %q", b)
			}
			for _, v := range []Version{V1, V2} {
				if b := Append([]byte("x"), v, h); string(b) != "x"+string(Append(nil, v, h)) {
					t.Fatalf("v%d after another byte: %q", v, b)
				}
			}
		})
	}
}

// What the specification says that is written, byte by byte.
func TestWrittenHeaders(t *testing.T) {
	h := headers()
	zoned := Header{Source: addrPort("[fe80::1%eth0]:1"), Destination: addrPort("[::ffff:192.0.2.1]:2")}
	mapped := Header{Source: addrPort("[::ffff:192.0.2.1]:1"), Destination: addrPort("192.0.2.2:2")}
	half := Header{Source: addrPort("192.0.2.1:1")}
	session := Header{Source: h["v4"].Source, Destination: h["v4"].Destination, SSL: h["resumed"].SSL}
	for _, c := range []struct {
		name string
		v    Version
		h    Header
		want string
	}{
		{"v4", V1, h["v4"], "PROXY TCP4 192.0.2.1 198.51.100.11 56324 443\r\n"},
		{"v6", V1, h["v6"], "PROXY TCP6 2001:db8::1 2001:db8:0:1::11 56324 0\r\n"},
		{"mixed", V1, h["mixed"], "PROXY TCP6 ::ffff:c000:201 2001:db8:0:1::11 56324 0\r\n"},
		{"zones", V1, Header{Source: zoned.Source, Destination: zoned.Source}, "PROXY TCP6 fe80::1 fe80::1 1 1\r\n"},
		{"zone", V1, zoned, "PROXY TCP6 fe80::1 ::ffff:c000:201 1 2\r\n"},
		{"mapped", V1, mapped, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"},
		{"one address", V1, half, "PROXY UNKNOWN\r\n"},
		{"local", V1, Header{Local: true, Source: mapped.Source, Destination: mapped.Destination}, "PROXY UNKNOWN\r\n"},
		{"v4", V2, h["v4"], v2(1, 0x11, v4Block)},
		{"mapped", V2, mapped, v2(1, 0x11, "\xc0\x00\x02\x01\xc0\x00\x02\x02\x00\x01\x00\x02")},
		{"mixed", V2, h["mixed"], v2(1, 0x21, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01"+
			"\x20\x01\x0d\xb8\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x11\xdc\x04\x00\x00")},
		{"one address", V2, half, v2(0, 0, "")},
		{"no address but a name", V2, Header{Authority: "a"}, v2(0, 0, "")},
		{"local", V2, Header{Local: true, Authority: "a", Source: mapped.Source, Destination: mapped.Destination}, v2(0, 0, "")},
		{"all TLVs", V2, h["all"], v4With(tlv(2, "api.example.com"), tlv(1, "h2"), tlv(5, "\x00\x01\x02\xff"),
			tlv(0x20, "\x07\x00\x00\x00\x00"+tlv(0x21, "TLSv1.3")+tlv(0x22, "jürgen")+tlv(0x23, "TLS_AES_128_GCM_SHA256")))},
		{"no client certificate", V2, h["no client certificate"], v4With(tlv(0x20, "\x01\x00\x00\x00\x01"+tlv(0x21, "TLSv1.3")))},
		{"unverified, of the session", V2, session, v4With(tlv(0x20, "\x05\x00\x00\x00\x01"+tlv(0x21, "TLSv1.2")))},
	} {
		if got := string(Append(nil, c.v, c.h)); got != c.want {
			t.Errorf("%s, v%d\ngot  %q\nwant %q", c.name, c.v, got, c.want)
		}
	}
}

// What would break a rule of Parse is left out, and the rest still written.
func TestUnfitTLVsAreLeftOut(t *testing.T) {
	long := strings.Repeat("a", MaxV2)
	bad := headers()["v4"]
	bad.Authority, bad.ALPN, bad.UniqueID = "\xff", long, make([]byte, MaxUniqueID+1)
	bad.SSL = &SSL{Version: "TLSv1.3", Cipher: "\n", CommonName: "\xff"}
	want := headers()["v4"]
	want.SSL = &SSL{Version: "TLSv1.3"}
	mustBe(t, Append(nil, V2, bad), want)
	for _, version := range []string{"", "é", long} {
		bad.SSL = &SSL{Version: version, ClientCert: true}
		mustBe(t, Append(nil, V2, bad), headers()["v4"])
	}
	fits := headers()["v4"]
	fits.ALPN = long[:MaxV2-sizeFixed-sizeTCP4-sizeTLV]
	if b := Append(nil, V2, fits); len(b) != MaxV2 {
		t.Fatalf("%d bytes", len(b))
	}
	mustBe(t, Append(nil, V2, fits), fits)

	fits.ALPN, fits.SSL = "", &SSL{Version: long[:MaxV2-sizeFixed-sizeTCP4-2*sizeTLV-sizeSSL]}
	if b := Append(nil, V2, fits); len(b) != MaxV2 {
		t.Fatalf("with SSL, %d bytes", len(b))
	}
	mustBe(t, Append(nil, V2, fits), fits)
}

func TestHeadersOfHAProxy(t *testing.T) {
	for name, want := range map[string]Header{
		"v1-tcp4": {Source: addrPort("127.0.0.1:40572"), Destination: addrPort("127.0.0.1:39305")},
		"v1-tcp6": {Source: addrPort("[::1]:48278"), Destination: addrPort("[::1]:51577")},
		"v1-unix": {Local: true},
		"v2-tcp4": {Source: addrPort("127.0.0.1:39566"), Destination: addrPort("127.0.0.1:49343")},
		"v2-tcp6": {Source: addrPort("[::1]:41748"), Destination: addrPort("[::1]:44117")},
		"v2-unix": {Local: true},
		"v2-options": {
			Source: addrPort("127.0.0.1:41224"), Destination: addrPort("127.0.0.1:47809"),
			Authority: "api.example.com", ALPN: "kafka", UniqueID: []byte("id-0-25680"),
			SSL: &SSL{Version: "TLSv1.3", Cipher: "TLS_AES_256_GCM_SHA384", CommonName: "api.example.com", Verified: true, ClientCert: true},
		},
		"v2-no-client-certificate": {
			Source: addrPort("127.0.0.1:37840"), Destination: addrPort("127.0.0.1:39199"),
			Authority: "api.example.com", SSL: &SSL{Version: "TLSv1.3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile("testdata/haproxy-" + name + ".bin")
			if err != nil {
				t.Fatal(err)
			}
			mustBe(t, b, want)
		})
	}
}

// rule 12: LOCAL and the length are honoured, what is not known is passed
// over, and the longest that is allowed is.
func TestAcceptedHeaders(t *testing.T) {
	const ffff = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	v4 := headers()["v4"]
	most := netip.MustParseAddr(ffff)
	longest := Header{Source: netip.AddrPortFrom(most, 65535), Destination: netip.AddrPortFrom(most, 65535)}
	mapped := Header{Source: addrPort("192.0.2.1:1"), Destination: addrPort("192.0.2.2:2")}
	id := strings.Repeat("u", MaxUniqueID)
	for _, c := range []struct {
		name, b string
		want    Header
	}{
		{"v1 TCP4 of 56 bytes", "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
			Header{Source: addrPort("255.255.255.255:65535"), Destination: addrPort("255.255.255.255:65535")}},
		{"v1 TCP6 of 104 bytes", "PROXY TCP6 " + ffff + " " + ffff + " 65535 65535\r\n", longest},
		{"v1 TCP6 in capitals", "PROXY TCP6 " + strings.ToUpper(ffff) + " " + ffff + " 65535 65535\r\n", longest},
		{"v1 UNKNOWN of 107 bytes", "PROXY UNKNOWN " + ffff + " " + ffff + " 65535 65535\r\n", Header{Local: true}},
		{"v1 UNKNOWN with anything", "PROXY UNKNOWN \x00 x\r\n", Header{Local: true}},
		{"v1 mapped, with dots", "PROXY TCP6 ::ffff:192.0.2.1 ::FFFF:c000:202 1 2\r\n", mapped},
		{"v2 mapped", v2(1, 0x21, strings.Repeat("\x00", 10)+"\xff\xff\xc0\x00\x02\x01"+
			strings.Repeat("\x00", 10)+"\xff\xff\xc0\x00\x02\x02\x00\x01\x00\x02"), mapped},
		{"LOCAL with addresses", v2(0, 0x11, v4Block), Header{Local: true}},
		{"LOCAL with a family to be ignored and a block to be skipped", v2(0, 0xf7, "\x02\xff\xffanything"), Header{Local: true}},
		{"LOCAL shorter than its family's addresses", v2(0, 0x21, "abc"), Header{Local: true}},
		{"UNSPEC", v2(1, 0, ""), Header{}},
		{"UNSPEC with TLVs", v2(1, 0, tlv(2, "a")), Header{Authority: "a"}},
		{"UNIX with TLVs", v2(1, 0x31, strings.Repeat("/", 216)+tlv(2, "a")), Header{Authority: "a"}},
		{"unknown and NOOP TLVs, twice", v4With(tlv(4, ""), tlv(0x30, "netns"), tlv(4, "\xff"), tlv(0x30, "x"), tlv(0xee, "y")), v4},
		{"empty TLVs", v4With(tlv(1, ""), tlv(2, ""), tlv(5, "")), v4},
		{"SSL of a client without TLS", v4With(tlv(0x20, "\x00\x00\x00\x00\x00")), v4},
		{"checksum", string(withSum()), v4},
		{"checksum among others", string(withSum(tlv(4, "abc"), tlv(0xff, "x"))), v4},
		{"unique id of 128 bytes", v4With(tlv(5, id)),
			Header{Source: v4.Source, Destination: v4.Destination, UniqueID: []byte(id)}},
		{"4 KiB", v4With(tlv(4, strings.Repeat("x", MaxV2-sizeFixed-len(v4Block)-sizeTLV))), v4},
		{"LOCAL of 4 KiB", v2(0, 0, strings.Repeat("x", MaxV2-sizeFixed)), Header{Local: true}},
	} {
		t.Run(c.name, func(t *testing.T) { mustBe(t, []byte(c.b), c.want) })
	}
}

func TestHeaderDoesNotReferToTheBytes(t *testing.T) {
	want := headers()["all"]
	b := Append(nil, V2, want)
	got := mustParse(t, b)
	clear(b)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v after the bytes changed", got)
	}
}

// The checksum covers every byte: none can be changed unnoticed.
func TestChecksumCoversTheHeader(t *testing.T) {
	b := withSum(tlv(2, "api.example.com"))
	for i := range b {
		for bit := range 8 {
			damaged := slices.Clone(b)
			damaged[i] ^= 1 << bit
			h, _, err := Parse(damaged)
			switch {
			case err != nil:
			case h.Local: // has no TLVs to look at
			case i == len(b)-sizeCRC-sizeTLV: // no longer a checksum's type
			default:
				t.Errorf("bit %d of byte %d: accepted as %+v", bit, i, h)
			}
		}
	}
}

// A peer that sends a byte at a time costs one call for the body of a
// version 2 header.
func TestTrickledHeaderIsNotParsedAgainForEachByte(t *testing.T) {
	b := Append(nil, V2, headers()["all"])
	calls := 0
	for need := 0; ; calls++ {
		_, n, err := Parse(b[:need])
		if err == nil {
			break
		}
		if err != ErrMore {
			t.Fatal(err)
		}
		need = n
	}
	if calls > sizeFixed+1 {
		t.Fatalf("%d calls", calls)
	}
}

func TestEveryRefusalHasItsError(t *testing.T) {
	for _, c := range refusals() {
		_, _, err := Parse([]byte(c.b))
		if !errors.Is(err, c.is) {
			t.Errorf("%s: %v is not %v", c.name, err, c.is)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	h := headers()
	for _, c := range []struct {
		name string
		b    []byte
	}{
		{"V1", Append(nil, V1, h["v4"])},
		{"V1v6", Append(nil, V1, h["v6"])},
		{"V2", Append(nil, V2, h["v4"])},
		{"V2AllTLVs", Append(nil, V2, h["all"])},
		{"V2Checksum", withSum()},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(c.b)
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	h := headers()["all"]
	buf := make([]byte, 0, 512)
	for name, v := range map[string]Version{"V1": V1, "V2AllTLVs": V2} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Append(buf, v, h)
			}
		})
	}
}
