package tlsstream

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"penstock/netio/stream"
)

// A rawPeer writes TLS 1.3 records of any content after a handshake that
// crypto/tls made, with the keys that it logged: what a well-behaved peer
// never sends.
type rawPeer struct {
	*ends
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

const (
	contentAlert     = 21
	contentHandshake = 22
	contentData      = 23
)

// newRawPeer connects with TLS_AES_128_GCM_SHA256 to a Stream in that role.
func newRawPeer(t *testing.T, r role) *rawPeer {
	t.Helper()
	server, client := configs(t, tls.VersionTLS13)
	var log bytes.Buffer
	if r == asServer {
		client.KeyLogWriter = &log
	} else {
		server.KeyLogWriter = &log
		server.SessionTicketsDisabled = true // the sequence numbers begin at 0
	}
	p := &rawPeer{ends: connect(t, r, server, client)}
	label := "CLIENT_TRAFFIC_SECRET_0 "
	if r == asClient {
		label = "SERVER_TRAFFIC_SECRET_0 "
	}
	for line := range strings.Lines(log.String()) {
		if rest, ok := strings.CutPrefix(line, label); ok {
			_, secret, _ := strings.Cut(strings.TrimSpace(rest), " ")
			var err error
			p.secret, err = hex.DecodeString(secret)
			must(t, err)
		}
	}
	p.setKeys(t)
	return p
}

// expand is HKDF-Expand-Label of RFC 8446 section 7.1.
func (p *rawPeer) expand(t *testing.T, label string, n int) []byte {
	t.Helper()
	label = "tls13 " + label
	info := []byte{byte(n >> 8), byte(n), byte(len(label))}
	info = append(append(info, label...), 0)
	out, err := hkdf.Expand(sha256.New, p.secret, string(info), n)
	must(t, err)
	return out
}

func (p *rawPeer) setKeys(t *testing.T) {
	t.Helper()
	block, err := aes.NewCipher(p.expand(t, "key", 16))
	must(t, err)
	p.aead, err = cipher.NewGCM(block)
	must(t, err)
	p.iv, p.seq = p.expand(t, "iv", 12), 0
}

// record is the next record, with that content.
func (p *rawPeer) record(content byte, data ...byte) []byte {
	inner := append(append([]byte(nil), data...), content)
	n := len(inner) + p.aead.Overhead()
	header := []byte{23, 3, 3, byte(n >> 8), byte(n)}
	nonce := append([]byte(nil), p.iv...)
	for i, b := range binary.BigEndian.AppendUint64(nil, p.seq) {
		nonce[4+i] ^= b
	}
	p.seq++
	return p.aead.Seal(header, nonce, inner, header)
}

func (p *rawPeer) write(t *testing.T, records ...[]byte) {
	t.Helper()
	_, err := p.conn.Write(bytes.Join(records, nil))
	must(t, err)
}

var (
	updateQuietly = []byte{24, 0, 0, 1, 0}
	updateBoth    = []byte{24, 0, 0, 1, 1}
)

func eachRole(t *testing.T, test func(t *testing.T, r role)) {
	for _, r := range []role{asServer, asClient} {
		t.Run(r.String(), func(t *testing.T) { test(t, r) })
	}
}

// Keys are replaced in both directions, in the middle of the data.
func TestKeyUpdate(t *testing.T) {
	eachRole(t, func(t *testing.T, r role) {
		p := newRawPeer(t, r)
		for _, update := range [][]byte{updateQuietly, updateBoth, updateBoth} {
			// All in one read: data, the update, data under the new keys.
			records := append(p.record(contentData, []byte("old ")...), p.record(contentHandshake, update...)...)
			p.secret = p.expand(t, "traffic upd", 32)
			p.setKeys(t)
			p.write(t, records, p.record(contentData, []byte("new ")...))
		}
		if got := string(p.received(t, 24)); got != strings.Repeat("old new ", 3) {
			t.Fatalf("got %q", got)
		}
		p.loop.do(func() { p.s.Send([]byte("answer")) })
		got := make([]byte, 6)
		if _, err := p.peer.Read(got); err != nil || string(got) != "answer" {
			t.Fatalf("the peer got %q, %v", got, err)
		}
	})
}

// A message after the handshake may be cut into records, and those anywhere.
func TestKeyUpdateInPieces(t *testing.T) {
	p := newRawPeer(t, asServer)
	p.loop.do(func() { p.under.cut = func() int { return 1 } })
	var records []byte
	for _, b := range updateQuietly {
		records = append(records, p.record(contentHandshake, b)...)
	}
	p.secret = p.expand(t, "traffic upd", 32)
	p.setKeys(t)
	p.write(t, records, p.record(contentData, []byte("new")...))
	if got := string(p.received(t, 3)); got != "new" {
		t.Fatalf("got %q", got)
	}
}

// A peer that asks for answers and never reads them does not fill the memory:
// reading stops until it does.
func TestAnswersToAPeerThatDoesNotReadAreBounded(t *testing.T) {
	p := newRawPeer(t, asServer)
	p.loop.do(func() { p.far.SetReading(false) })
	const rounds = 20000
	for range rounds / 100 {
		var records []byte
		for range 100 {
			records = append(records, p.record(contentHandshake, updateBoth...)...)
			p.secret = p.expand(t, "traffic upd", 32)
			p.setKeys(t)
			records = append(records, p.record(contentData, 'x')...)
		}
		p.write(t, records)
	}
	p.loop.until(t, "reading to stop", func() bool { return !p.under.reading })
	p.loop.do(func() {
		if n := len(p.far.arrived); n > memWindow+3*maxAnswers {
			t.Errorf("%d bytes of answers", n)
		}
		if len(p.own.got) == rounds {
			t.Error("everything was read")
		}
		p.far.SetReading(true)
	})
	p.received(t, rounds)
}

func TestStrangeRecords(t *testing.T) {
	cases := []struct {
		name    string
		content byte
		data    []byte
		times   int
		is      error  // nil: it goes on
		text    string // of the error
	}{
		{"user_canceled, which TLS 1.3 ignores", contentAlert, []byte{1, 90}, 1, nil, ""},
		{"an empty record", contentData, nil, 1, nil, ""},
		{"empty records without end", contentData, nil, 100, stream.ErrProtocol, "too many ignored records"},
		{"a fatal alert", contentAlert, []byte{2, 80}, 1, stream.ErrReset, "internal error"},
		{"a handshake anew", contentHandshake, []byte{1, 0, 0, 2, 3, 3}, 1, stream.ErrProtocol, "tls: "},
		{"a message too long", contentHandshake, []byte{24, 255, 255, 255}, 1, stream.ErrProtocol, "exceeds maximum"},
		{"a type of content that is none", 99, []byte{1}, 1, stream.ErrProtocol, "unexpected message"},
		{"a short alert", contentAlert, []byte{1}, 1, stream.ErrProtocol, "unexpected message"},
		{"change_cipher_spec, encrypted", 20, []byte{1}, 1, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, r role) {
				p := newRawPeer(t, r)
				for range c.times {
					p.write(t, p.record(c.content, c.data...))
				}
				if c.is == nil {
					p.write(t, p.record(contentData, []byte("on")...))
					if got := string(p.received(t, 2)); got != "on" {
						t.Fatalf("got %q", got)
					}
					return
				}
				if err := p.mustFail(t, c.is); !strings.Contains(err.Error(), c.text) {
					t.Fatalf("says %q, want %q", err, c.text)
				}
			})
		})
	}
}

// Whatever comes after a handshake, as it is or inside valid records: no
// panic, the owner is told of one end at most, and the alert that crypto/tls
// would send ends the stream.
func FuzzAfterHandshake(f *testing.F) {
	f.Add([]byte("\x17\x03\x03\x00\x10aaaaaaaaaaaaaaaa"), []byte{1}, uint8(0))
	f.Add([]byte{24, 0, 0, 1, 1}, []byte{1, 3}, uint8(contentHandshake))
	f.Add([]byte{1, 0}, []byte{7}, uint8(contentAlert))
	f.Add([]byte("data"), []byte{255}, uint8(contentData))
	f.Add([]byte{21, 3, 3, 0, 2, 1, 0, 23, 3, 3}, []byte{2, 200}, uint8(0))
	f.Fuzz(func(t *testing.T, data, cuts []byte, content uint8) {
		p := newRawPeer(t, role(len(cuts)%2 == 0))
		if content != 0 && len(data) <= maxPlaintext {
			data = append(p.record(content, data...), p.record(contentData, 'x')...)
		}
		turn := 0
		p.loop.do(func() {
			p.under.cut = func() int {
				if turn++; len(cuts) == 0 {
					return 1 << 20
				}
				return int(cuts[turn%len(cuts)]) + 1
			}
		})
		p.write(t, data)
		p.conn.CloseWrite()
		p.loop.until(t, "an end", func() bool { return p.own.ended+btoi(p.own.failed != nil) == 1 })
		if err := p.own.failed; err != nil && !errors.Is(err, stream.ErrReset) && !errors.Is(err, stream.ErrProtocol) {
			t.Fatalf("failed with %v", err)
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
