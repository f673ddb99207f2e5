package proxyproto

import (
	"bufio"
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	pires "github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
)

// github.com/pires/go-proxyproto is the second opinion: what it accepts is
// accepted here, with the same content, but for these, in which this package
// is stricter. Each is a part of an error's text.
var stricter = []string{
	"CR without LF", // in UNKNOWN, where it looks for LF alone
	"datagrams",     // it serves UDP too
	"limit 4096",    // its limit is for what follows the first 16 bytes
	// It leaves sums, and all TLVs but SSL, to its caller.
	"checksum", "a second time", "authority is not UTF-8", "unique id has",
	"SSL TLV", // printable ASCII; it takes control characters
}

// It refuses what the specification leaves to the receiver, PROXY with UNSPEC,
// and LOCAL with an undefined family, which the specification has ignored.
func looserThanPires(b []byte, h Header) bool {
	isV2 := b[0] == signature[0]
	return isV2 && (h.Local || b[13] == familyUnspec)
}

// byPires reads a header with the other library.
func byPires(b []byte) (h Header, err error) {
	p, err := pires.Read(bufio.NewReaderSize(bytes.NewReader(b), len(b)+16))
	if err != nil {
		return Header{}, err
	}
	if p.Command.IsLocal() {
		return Header{Local: true}, nil
	}
	if src, dst, ok := p.TCPAddrs(); ok {
		h.Source, h.Destination = unmapped(src), unmapped(dst)
	}
	tlvs, err := p.TLVs()
	if err != nil {
		return Header{}, err
	}
	for _, t := range tlvs {
		switch t.Type {
		case pires.PP2_TYPE_ALPN:
			h.ALPN = string(t.Value)
		case pires.PP2_TYPE_AUTHORITY:
			h.Authority = string(t.Value)
		case pires.PP2_TYPE_UNIQUE_ID:
			h.UniqueID = t.Value
		case pires.PP2_TYPE_SSL:
			s, err := tlvparse.SSL(t)
			if err != nil {
				return Header{}, err
			}
			h.SSL = sslOfPires(s)
		}
	}
	return h, nil
}

func unmapped(a *net.TCPAddr) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(a.IP)
	return netip.AddrPortFrom(ip.Unmap(), uint16(a.Port))
}

func sslOfPires(s tlvparse.PP2SSL) *SSL {
	if !s.ClientSSL() {
		return nil
	}
	cert := s.ClientCertConn() || s.ClientCertSess()
	// Its Verified looks at the number alone, which senders leave at 0 when
	// there was no certificate.
	o := &SSL{ClientCert: cert, Verified: cert && s.Verified(), Resumed: cert && !s.ClientCertConn()}
	o.Version, _ = s.SSLVersion()
	o.Cipher, _ = s.SSLCipher()
	o.CommonName, _ = s.ClientCN()
	return o
}

func sameHeader(a, b Header) bool {
	sameSSL := a.SSL == b.SSL || a.SSL != nil && b.SSL != nil && *a.SSL == *b.SSL
	return sameSSL && a.Local == b.Local && a.Source == b.Source && a.Destination == b.Destination &&
		a.Authority == b.Authority && a.ALPN == b.ALPN && bytes.Equal(a.UniqueID, b.UniqueID)
}

// compareWithPires fails where the two differ and no difference is known.
func compareWithPires(t *testing.T, b []byte) {
	ours, _, err := Parse(b)
	theirs, theirErr := byPires(b)
	switch {
	case err == nil && theirErr == nil:
		if !sameHeader(ours, theirs) {
			t.Fatalf("here %+v, go-proxyproto %+v, for\n%q", ours, theirs, b)
		}
	case err == nil:
		emptyInSSL := errors.Is(theirErr, pires.ErrMalformedTLV) && ours.SSL != nil &&
			(ours.SSL.Cipher == "" || ours.SSL.CommonName == "")
		if !looserThanPires(b, ours) && !emptyInSSL {
			t.Fatalf("here %+v, go-proxyproto %v, for\n%q", ours, theirErr, b)
		}
	case theirErr == nil:
		if !slices.ContainsFunc(stricter, func(s string) bool { return strings.Contains(err.Error(), s) }) {
			t.Fatalf("here %v, go-proxyproto %+v, for\n%q", err, theirs, b)
		}
	}
}

func TestGoProxyprotoReadsWhatIsWritten(t *testing.T) {
	for name, h := range headers() {
		t.Run(name, func(t *testing.T) {
			for _, v := range []Version{V1, V2} {
				b := Append(nil, v, h)
				want := h
				if v == V1 {
					want = inV1(h)
				}
				if got, err := byPires(b); err != nil || !sameHeader(got, want) {
					t.Errorf("v%d: got %+v, %v\nwant %+v", v, got, err, want)
				}
			}
		})
	}
}

func TestWhatGoProxyprotoWritesIsRead(t *testing.T) {
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(addrPort(s)) }
	unix := &net.UnixAddr{Net: "unix", Name: "/run/x.sock"}
	ssl, err := tlvparse.PP2SSL{
		Client: tlvparse.PP2_BITFIELD_CLIENT_SSL | tlvparse.PP2_BITFIELD_CLIENT_CERT_SESS,
		TLV: []pires.TLV{
			{Type: pires.PP2_SUBTYPE_SSL_VERSION, Value: []byte("TLSv1.3")},
			{Type: pires.PP2_SUBTYPE_SSL_CN, Value: []byte("a")},
		},
	}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	tlvs := []pires.TLV{
		{Type: pires.PP2_TYPE_NOOP}, {Type: pires.PP2_TYPE_AUTHORITY, Value: []byte("a.example")},
		{Type: pires.PP2_TYPE_UNIQUE_ID, Value: []byte{1}}, {Type: pires.PP2_TYPE_NETNS, Value: []byte("n")}, ssl,
	}
	withTLVs := Header{Authority: "a.example", UniqueID: []byte{1},
		SSL: &SSL{Version: "TLSv1.3", CommonName: "a", ClientCert: true, Verified: true, Resumed: true}}
	for _, c := range []struct {
		name     string
		v        byte
		src, dst net.Addr
		want     Header
	}{
		{"v4", 2, tcp("1.2.3.4:5"), tcp("6.7.8.9:10"), Header{Source: addrPort("1.2.3.4:5"), Destination: addrPort("6.7.8.9:10")}},
		{"v6", 2, tcp("[::1]:5"), tcp("[::2]:10"), Header{Source: addrPort("[::1]:5"), Destination: addrPort("[::2]:10")}},
		{"mixed", 2, tcp("1.2.3.4:5"), tcp("[::2]:10"), Header{Source: addrPort("1.2.3.4:5"), Destination: addrPort("[::2]:10")}},
		{"unix", 2, unix, unix, Header{}},
		{"v4", 1, tcp("1.2.3.4:5"), tcp("6.7.8.9:10"), Header{Source: addrPort("1.2.3.4:5"), Destination: addrPort("6.7.8.9:10")}},
		{"mixed", 1, tcp("1.2.3.4:5"), tcp("[::2]:10"), Header{Source: addrPort("1.2.3.4:5"), Destination: addrPort("[::2]:10")}},
		{"unix", 1, unix, unix, Header{Local: true}},
		{"local", 2, nil, nil, Header{Local: true}},
	} {
		h := pires.HeaderProxyFromAddrs(c.v, c.src, c.dst)
		if c.v == 2 {
			if err := h.SetTLVs(tlvs); err != nil {
				t.Fatal(err)
			}
			if !c.want.Local {
				c.want.Authority, c.want.UniqueID, c.want.SSL = withTLVs.Authority, withTLVs.UniqueID, withTLVs.SSL
			}
		}
		b, err := h.Format()
		if err != nil {
			t.Fatal(err)
		}
		if got := mustParse(t, b); !sameHeader(got, c.want) {
			t.Errorf("%s, v%d: got %+v, want %+v", c.name, c.v, got, c.want)
		}
	}
}

func TestGoProxyprotoReadsTheSameOfRefusedHeaders(t *testing.T) {
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) { compareWithPires(t, []byte(c.b)) })
	}
}

// Headers with a few bytes changed, doubled or taken out are read as the
// other library reads them, or by neither.
func TestGoProxyprotoReadsTheSameOfDamagedHeaders(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := headers()
	var seeds [][]byte
	for _, name := range slices.Sorted(maps.Keys(h)) {
		seeds = append(seeds, Append(nil, V1, h[name]), Append(nil, V2, h[name]))
	}
	for range 30000 {
		b := slices.Clone(seeds[rng.IntN(len(seeds))])
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(b))
			switch rng.IntN(4) {
			case 0:
				b[at] = byte(rng.IntN(256))
			case 1:
				b[at] += byte(rng.IntN(5) - 2)
			case 2:
				b = slices.Delete(b, at, min(at+rng.IntN(4), len(b)-1))
			case 3:
				b = slices.Insert(b, at, slices.Clone(b[at:min(at+rng.IntN(9), len(b))])...)
			}
		}
		compareWithPires(t, b)
	}
}

// Custom TLVs are written if their type is free for applications, and Parse skips
// them.
func TestCustomTLVs(t *testing.T) {
	h := headers()["all"]
	h.Custom = []TLV{{0xE1, "spiffe://a/b"}, {0xDF, "registered"}, {0xF0, "experimental"}, {0xE2, ""}, {0xEF, strings.Repeat("x", MaxV2)}}
	b := Append(nil, V2, h)
	p, err := pires.Read(bufio.NewReader(bytes.NewReader(b)))
	if err != nil {
		t.Fatal(err)
	}
	tlvs, err := p.TLVs()
	if err != nil {
		t.Fatal(err)
	}
	var custom []string
	for _, v := range tlvs {
		if v.Type > 0x30 {
			custom = append(custom, string(v.Value))
		}
	}
	if !slices.Equal(custom, []string{"spiffe://a/b"}) {
		t.Errorf("go-proxyproto reads %q", custom)
	}
	if got, n, err := Parse(b); err != nil || n != len(b) || !sameHeader(got, h) || got.Custom != nil {
		t.Errorf("%+v, %d of %d bytes, %v", got, n, len(b), err)
	}
}
