package clienthello

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// bytesOf reads the notation that the head of testdata/refused.txt explains.
func bytesOf(t testing.TB, text string) []byte {
	t.Helper()
	b, rest := vector(t, text)
	if rest != "" {
		t.Fatalf("%q: ] without [ before %q", text, rest)
	}
	return b
}

// vector reads up to the ] that ends it.
func vector(t testing.TB, s string) (b []byte, rest string) {
	t.Helper()
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		switch s[0] {
		case ']':
			return b, s[1:]
		case '[':
			var in []byte
			size := int(s[1] - '0')
			in, s = vector(t, s[len("[2:"):])
			for i := size - 1; i >= 0; i-- {
				b = append(b, byte(len(in)>>(8*i)))
			}
			b = append(b, in...)
		case '\'':
			text, after, _ := strings.Cut(s[1:], "'")
			b, s = append(b, text...), after
		default:
			end := strings.IndexAny(s+" ", " []'")
			digits, times, repeated := strings.Cut(s[:end], "*")
			one, err := hex.DecodeString(digits)
			n := 1
			if err == nil && repeated {
				n, err = strconv.Atoi(times)
			}
			if err != nil {
				t.Fatalf("%q: %v", s[:end], err)
			}
			b, s = append(b, bytes.Repeat(one, n)...), s[end:]
		}
	}
	return b, ""
}

// helloMessage is a ClientHello message with that body.
func helloMessage(body []byte) []byte {
	n := len(body)
	return append([]byte{typeClientHello, byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// records puts a message into records of at most that size.
func records(msg []byte, size int) (b []byte) {
	for len(msg) > 0 {
		n := min(size, len(msg))
		b = append(b, typeHandshake, 3, 1, byte(n>>8), byte(n))
		b = append(b, msg[:n]...)
		msg = msg[n:]
	}
	return b
}

// helloWith is a sound hello in one record, with those extensions.
func helloWith(extensions []byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32+1)...)
	body = append(body, 0, 2, 0x13, 1, 1, 0, byte(len(extensions)>>8), byte(len(extensions)))
	return records(helloMessage(append(body, extensions...)), 1<<14)
}

type refused struct {
	name, form string
	b          []byte
	want       string
}

func refusedHellos(t testing.TB) (cases []refused) {
	t.Helper()
	text, err := os.ReadFile("testdata/refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		if strings.HasPrefix(lines[0], "#") {
			continue
		}
		if len(lines) != 3 {
			t.Fatalf("case of %d lines: %q", len(lines), block)
		}
		c := refused{name: lines[0], want: lines[2]}
		var rest string
		c.form, rest, _ = strings.Cut(lines[1], " ")
		switch b := bytesOf(t, rest); c.form {
		case "raw":
			c.b = b
		case "message":
			c.b = records(helloMessage(b), 1<<14)
		case "extensions":
			c.b = helloWith(b)
		default:
			t.Fatalf("case %q: form %q", c.name, c.form)
		}
		cases = append(cases, c)
	}
	return cases
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// recordingConn keeps what is written and gives nothing to read.
type recordingConn struct {
	net.Conn
	wrote []byte
}

func (c *recordingConn) Write(p []byte) (int, error) {
	c.wrote = append(c.wrote, p...)
	return len(p), nil
}
func (c *recordingConn) Read([]byte) (int, error) { return 0, net.ErrClosed }
func (c *recordingConn) Close() error             { return nil }

// goHello is what crypto/tls sends first with that configuration.
func goHello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	var c recordingConn
	if err := tls.Client(&c, cfg).Handshake(); err == nil {
		t.Fatal("the handshake succeeded without a server")
	}
	if len(c.wrote) < recordHeader {
		t.Fatal("the client said nothing")
	}
	// Cut off the alert that follows once reading fails.
	return c.wrote[:recordHeader+int(c.wrote[3])<<8+int(c.wrote[4])]
}

func classicHello(t testing.TB) []byte {
	return goHello(t, &tls.Config{
		ServerName: "api.example.com", NextProtos: []string{"h2", "http/1.1"},
		CurvePreferences: []tls.CurveID{tls.X25519},
	})
}

func postQuantumHello(t testing.TB) []byte {
	return goHello(t, &tls.Config{
		ServerName: "api.example.com", NextProtos: []string{"h2", "http/1.1"},
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519},
	})
}

// hellos are sound ones, by all clients there are here.
func hellos(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"go classic":            classicHello(t),
		"go post-quantum":       postQuantumHello(t),
		"go no name":            goHello(t, &tls.Config{InsecureSkipVerify: true}),
		"go TLS 1.2":            goHello(t, &tls.Config{ServerName: "old.example.com", MaxVersion: tls.VersionTLS12}),
		"openssl TLS 1.3":       fixture(t, "openssl-tls13.bin"),
		"openssl TLS 1.2":       fixture(t, "openssl-tls12.bin"),
		"openssl TLS 1.1":       fixture(t, "openssl-tls11.bin"),
		"openssl no name":       fixture(t, "openssl-noname.bin"),
		"openssl no extensions": fixture(t, "openssl-noextensions.bin"),
	}
}
