package clienthello

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func mustParse(t testing.TB, b []byte) Hello {
	t.Helper()
	h, n, err := Parse(b)
	if err != nil || n != len(b) {
		t.Fatalf("hello of %d bytes: n=%d, %v", len(b), n, err)
	}
	return h
}

func sameHello(a, b Hello) bool {
	return a.ServerName == b.ServerName && a.HasServerName == b.HasServerName &&
		a.ECH == b.ECH && slices.Equal(a.ALPN, b.ALPN)
}

func TestHelloTellsNameAndProtocols(t *testing.T) {
	for name, want := range map[string]Hello{
		"go classic":            {ServerName: "api.example.com", HasServerName: true, ALPN: []string{"h2", "http/1.1"}},
		"go post-quantum":       {ServerName: "api.example.com", HasServerName: true, ALPN: []string{"h2", "http/1.1"}},
		"go no name":            {},
		"go TLS 1.2":            {ServerName: "old.example.com", HasServerName: true},
		"openssl TLS 1.3":       {ServerName: "db.example.org", HasServerName: true, ALPN: []string{"h2", "http/1.1"}},
		"openssl TLS 1.2":       {ServerName: "legacy.example.org", HasServerName: true},
		"openssl TLS 1.1":       {ServerName: "old.example.org", HasServerName: true},
		"openssl no name":       {ALPN: []string{"kafka"}},
		"openssl no extensions": {},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mustParse(t, hellos(t)[name]); !sameHello(got, want) {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		})
	}
}

// rule 1: post-quantum hellos are longer than a segment.
func TestPostQuantumHelloIsLongerThanASegment(t *testing.T) {
	if n := len(postQuantumHello(t)); n < 1448 {
		t.Fatalf("%d bytes: this hello does not test what it is there for", n)
	}
}

// rule 1: a hello is reassembled when segments cut it at any byte, and what
// follows it is left alone.
func TestHelloCutAtEveryByte(t *testing.T) {
	for name, hello := range hellos(t) {
		t.Run(name, func(t *testing.T) {
			for i := range hello {
				if _, need, err := Parse(hello[:i]); err != ErrMore || need <= i || need > len(hello) {
					t.Fatalf("with %d of %d bytes: need %d, %v", i, len(hello), need, err)
				}
			}
			want := mustParse(t, hello)
			got, n, err := Parse(append(slices.Clone(hello), "early data"...))
			if err != nil || n != len(hello) || !sameHello(got, want) {
				t.Fatalf("with bytes after it: %+v, n=%d of %d, %v", got, n, len(hello), err)
			}
		})
	}
}

// rule 1: a hello is reassembled when its message is spread over records at
// any byte, and each of these is cut at any byte.
func TestHelloSplitOverRecordsAtEveryByte(t *testing.T) {
	for name, hello := range hellos(t) {
		t.Run(name, func(t *testing.T) {
			want, msg := mustParse(t, hello), hello[recordHeader:]
			for i := 1; i < len(msg); i++ {
				two := append(records(msg[:i], i), records(msg[i:], len(msg))...)
				if got := mustParse(t, two); !sameHello(got, want) {
					t.Fatalf("two records, split at %d: got %+v, want %+v", i, got, want)
				}
			}
			for _, size := range []int{1, 2, 3, 5, 100} {
				many := records(msg, size)
				if len(many) > MaxSize {
					continue
				}
				for i := range many {
					if _, need, err := Parse(many[:i]); err != ErrMore || need <= i || need > len(many) {
						t.Fatalf("records of %d, %d of %d bytes: need %d, %v", size, i, len(many), need, err)
					}
				}
				if got := mustParse(t, many); !sameHello(got, want) {
					t.Fatalf("records of %d: got %+v, want %+v", size, got, want)
				}
			}
		})
	}
}

// rule 1: MaxSize counts record headers, and one byte more is refused at the
// byte that says so, long before it comes.
func TestHelloOfTheLargestSize(t *testing.T) {
	padding := MaxSize - len(helloWith(nil)) - 4
	pad := func(n int) []byte {
		return append([]byte{0, 21, byte(n >> 8), byte(n)}, make([]byte, n)...)
	}
	largest := helloWith(pad(padding))
	if len(largest) != MaxSize {
		t.Fatalf("the test made a hello of %d bytes", len(largest))
	}
	mustParse(t, largest)
	inTwo := func(n int) []byte { return records(helloWith(pad(n))[recordHeader:], 10000) }
	mustParse(t, inTwo(padding-recordHeader))

	for name, b := range map[string][]byte{
		"one record":  helloWith(pad(padding + 1))[:recordHeader],
		"two records": inTwo(padding - recordHeader + 1)[:recordHeader+messageHeader],
	} {
		if _, _, err := Parse(b); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: one byte over the limit: %v", name, err)
		}
		if _, _, err := Parse(b[:len(b)-1]); err != ErrMore {
			t.Errorf("%s: a byte before it can be known: %v", name, err)
		}
	}
}

func TestRefusedHellos(t *testing.T) {
	for _, c := range refusedHellos(t) {
		t.Run(c.name, func(t *testing.T) {
			h, _, err := Parse(c.b)
			if err == nil || err.Error() != c.want {
				t.Fatalf("got  %v\nwant %s", err, c.want)
			}
			if !errors.Is(err, ErrNotTLS) && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLong) {
				t.Fatalf("%v wraps none of the package's errors", err)
			}
			if !sameHello(h, Hello{}) {
				t.Fatalf("a refused hello gave %+v", h)
			}
			// Nothing is refused early by mistake, and nothing of the record
			// layer late.
			for i := range c.b {
				if _, need, err := Parse(c.b[:i]); err != ErrMore || need > len(c.b) && c.form == "raw" {
					t.Fatalf("with %d of %d bytes: need %d, %v", i, len(c.b), need, err)
				}
			}
		})
	}
}

// rule 5: GREASE and unknown extensions say nothing, the list of protocols
// is as offered, unknown ones included.
func TestUnknownAndGreaseExtensionsAreIgnored(t *testing.T) {
	h := mustParse(t, helloWith(bytesOf(t, `
		0a0a [2: ] fafa [2: 00] ffff [2: 'anything']
		0010 [2: [2: [1: 0a0a] [1: 'h2'] [1: 'kafka/9']]]
		0000 [2: [2: 00 [2: 'x.example']]]`)))
	want := Hello{ServerName: "x.example", HasServerName: true, ALPN: []string{"\x0a\x0a", "h2", "kafka/9"}}
	if !sameHello(h, want) {
		t.Fatalf("got %+v", h)
	}
}

// Whether a name may be served is the router's business: it sees what came.
func TestNamesAreGivenAsSent(t *testing.T) {
	for _, name := range []string{"UPPER.example", "dot.example.", "192.0.2.1", "a\x00b", "*.example", "\xff"} {
		list := append([]byte{0, 0, byte(len(name))}, name...)
		list = append([]byte{0, byte(len(list))}, list...)
		h := mustParse(t, helloWith(append([]byte{0, 0, 0, byte(len(list))}, list...)))
		if h.ServerName != name || !h.HasServerName {
			t.Errorf("sent %q, got %+v", name, h)
		}
	}
}

// rule 5: with ECH the name is the outer one, and the hello says so.
func TestEncryptedHelloShowsTheOuterName(t *testing.T) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config := bytesOf(t, fmt.Sprintf("[2: fe0d [2: 07 0020 [2: %x] [2: 0001 0001] 20 [1: 'front.example'] [2: ]]]",
		key.PublicKey().Bytes()))
	h := mustParse(t, goHello(t, &tls.Config{
		ServerName: "secret.example", NextProtos: []string{"h2"}, EncryptedClientHelloConfigList: config,
	}))
	if h.ServerName != "front.example" || !h.ECH {
		t.Fatalf("got %+v", h)
	}
	if mustParse(t, classicHello(t)).ECH {
		t.Fatal("ECH seen in a hello without")
	}
}

func TestHelloWithThousandsOfExtensions(t *testing.T) {
	var many []byte
	for i := range 4000 {
		many = append(many, byte((i+100)>>8), byte(i+100), 0, 0)
	}
	mustParse(t, helloWith(many))
	for _, again := range []int{0, 23, 24, 100, 3999} {
		_, _, err := Parse(helloWith(append(slices.Clone(many), many[4*again:4*again+4]...)))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "a second time") {
			t.Errorf("extension %d of 4000 doubled: %v", again, err)
		}
	}
}

func TestHelloDoesNotReferToTheBytes(t *testing.T) {
	b := helloWith(bytesOf(t, "0000 [2: [2: 00 [2: 'x.example']]] 0010 [2: [2: [1: 'kafka'] [1: 'h2']]]"))
	h := mustParse(t, b)
	clear(b)
	if h.ServerName != "x.example" || !slices.Equal(h.ALPN, []string{"kafka", "h2"}) {
		t.Fatalf("got %+v after the bytes changed", h)
	}
}

// A client that sends a byte at a time costs a call for each record, if the
// caller waits for what Parse says it needs.
func TestTrickledHelloIsNotParsedAgainForEachByte(t *testing.T) {
	b := postQuantumHello(t)
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
	if limit := recordHeader + messageHeader + 1; calls > limit {
		t.Fatalf("%d calls for %d bytes, want at most %d", calls, len(b), limit)
	}
}

func TestAllocations(t *testing.T) {
	plain := bytesOf(t, "0010 [2: [2: [1: 'h2'] [1: 'http/1.1']]] 0000 [2: [2: 00 [2: 'x.example']]]")
	for _, c := range []struct {
		name string
		b    []byte
		want float64
	}{
		{"no name", fixture(t, "openssl-noextensions.bin"), 0},
		{"cut off", classicHello(t)[:100], 0},
		{"name and protocols", helloWith(plain), 2},
		{"post-quantum", postQuantumHello(t), 2},
	} {
		got := testing.AllocsPerRun(100, func() {
			if _, _, err := Parse(c.b); err != nil && err != ErrMore {
				t.Fatal(err)
			}
		})
		if got > c.want {
			t.Errorf("%s: %v allocations, want at most %v", c.name, got, c.want)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	classic, pq := classicHello(b), postQuantumHello(b)
	for _, c := range []struct {
		name string
		b    []byte
	}{
		{"Classic", classic},
		{"PostQuantum", pq},
		{"NoName", goHello(b, &tls.Config{InsecureSkipVerify: true})},
		{"TwoRecords", records(pq[recordHeader:], 1000)},
		{"FirstSegment", pq[:1448]},
		{"OneByteRecords", records(pq[recordHeader:], 1)},
		{"Refused", []byte("GET / HTTP/1.1\r\n")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(c.b)
			}
		})
	}
}
