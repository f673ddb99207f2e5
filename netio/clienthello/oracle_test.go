package clienthello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// crypto/tls is the second opinion: what it accepts is accepted here, with
// the same name and protocols, but for these, in which this package is
// stricter. Each is a part of an error's text.
var stricter = []string{
	"record version",                 // crypto/tls takes any below 16
	"record of type 21",              // it skips warning alerts before the hello
	"follow the hello in its record", // it leaves them for the next message, then refuses
	"bad session id",                 // longer than 32 bytes
	"bad cipher suites",              // none
	"bad compression methods",        // none; it refuses that later
	"server name of type",            // it skips other types
	"more than one server name",      // the same
	"limit 16384",                    // its limit is 64 KiB
}

// It refuses, and this package does not, what no route depends on: a faulty
// content of other extensions that it knows, and a name with a trailing dot.
var checkedByCryptoTLS = map[int]bool{
	5: true, 10: true, 11: true, 13: true, 35: true, 41: true, 42: true, 43: true, 44: true,
	45: true, 50: true, 51: true, 18: true, 23: true, 57: true, 0xff01: true, extECH: true,
}

var errSeen = errors.New("hello seen")

// bytesConn gives bytes and then its end.
type bytesConn struct {
	recordingConn
	r *bytes.Reader
}

func (c *bytesConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// askCryptoTLS is what crypto/tls makes of a hello; ok says that it took it.
func askCryptoTLS(b []byte) (h Hello, ok bool) {
	cfg := &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		h, ok = Hello{ServerName: i.ServerName, ALPN: i.SupportedProtos}, true
		return nil, errSeen
	}}
	// Its error does not tell more than whether the hello was seen.
	_ = tls.Server(&bytesConn{r: bytes.NewReader(b)}, cfg).Handshake()
	return h, ok
}

// compareWithCryptoTLS fails where the two differ and no difference is known.
func compareWithCryptoTLS(t *testing.T, b []byte) {
	got, n, err := Parse(b)
	theirs, taken := askCryptoTLS(b)
	switch {
	case err == nil && taken:
		if got.ServerName != theirs.ServerName || !slices.Equal(got.ALPN, theirs.ALPN) {
			t.Fatalf("here %+v, crypto/tls %+v, for\n%x", got, theirs, b)
		}
	case taken:
		if !slices.ContainsFunc(stricter, func(s string) bool { return strings.Contains(err.Error(), s) }) {
			t.Fatalf("here %v, crypto/tls took it: %+v\n%x", err, theirs, b)
		}
	case err == nil:
		checked := slices.ContainsFunc(extensionsOf(b[:n]), func(x int) bool { return checkedByCryptoTLS[x] })
		if !strings.HasSuffix(got.ServerName, ".") && !checked {
			t.Fatalf("here %+v, crypto/tls refused it, for\n%x", got, b)
		}
	}
}

// extensionsOf lists the types of the extensions of a hello that was accepted.
func extensionsOf(b []byte) (kinds []int) {
	r := reader{b: join(b, len(b)), off: messageHeader + 2 + 32}
	r.vec8()
	r.vec16()
	r.vec8()
	r.uint16()
	for r.rest() > 0 {
		kind, _ := r.uint16()
		r.vec16()
		kinds = append(kinds, kind)
	}
	return kinds
}

func TestCryptoTLSReadsTheSame(t *testing.T) {
	for name, b := range hellos(t) {
		if _, taken := askCryptoTLS(b); !taken {
			t.Fatalf("%s: crypto/tls refuses it, so it compares nothing", name)
		}
		compareWithCryptoTLS(t, b)
	}
	for _, c := range refusedHellos(t) {
		t.Run(c.name, func(t *testing.T) { compareWithCryptoTLS(t, c.b) })
	}
}

// Hellos with a few bytes changed, doubled or taken out are read as
// crypto/tls reads them, or by neither.
func TestCryptoTLSReadsTheSameOfDamagedHellos(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var seeds [][]byte
	for _, b := range hellos(t) {
		seeds = append(seeds, b)
	}
	slices.SortFunc(seeds, bytes.Compare)
	// Small hellos, where damage hits what is looked at.
	for _, s := range []string{
		"0000 [2: [2: 00 [2: 'a.example']]] 0010 [2: [2: [1: 'h2'] [1: 'x']]]",
		"0010 [2: [2: [1: 'h2']]] 0000 [2: [2: 00 [2: 'a']]] 7777 [2: ]",
	} {
		b := helloWith(bytesOf(t, s))
		seeds = append(seeds, b, records(b[recordHeader:], 30))
	}
	for range 5000 {
		b := slices.Clone(seeds[rng.IntN(len(seeds))])
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(b))
			switch rng.IntN(4) {
			case 0:
				b[at] = byte(rng.IntN(256))
			case 1:
				b[at] += byte(rng.IntN(9) - 4)
			case 2:
				b = slices.Delete(b, at, min(at+rng.IntN(9), len(b)-1))
			case 3:
				b = slices.Insert(b, at, slices.Clone(b[at:min(at+rng.IntN(20), len(b))])...)
			}
		}
		compareWithCryptoTLS(t, b)
	}
}

func FuzzCryptoTLSReadsTheSame(f *testing.F) {
	addHellos(f)
	f.Fuzz(compareWithCryptoTLS)
}
