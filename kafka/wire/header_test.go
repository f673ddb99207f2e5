package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// request returns a frame as kmsg writes it, with tags in a flexible header.
func request(t testing.TB, key, version int16, clientID *string, correlation int32, tags []byte) (frame, body []byte) {
	t.Helper()
	r := kmsg.RequestForKey(key)
	r.SetVersion(version)
	f := kmsg.NewRequestFormatter()
	if clientID != nil {
		f = kmsg.NewRequestFormatter(kmsg.FormatterClientID(*clientID))
	}
	frame = f.AppendRequest(nil, r, correlation)
	body = r.AppendTo(nil)
	if key == 7 && version == 0 { // kmsg does not write the size and the body
		frame = append(frame, body...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	}
	if r.IsFlexible() && tags != nil {
		head := frame[:len(frame)-len(body)-1]
		frame = append(append(bytes.Clone(head), tags...), body...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	}
	return frame, body
}

// two tags, one of them empty.
var someTags = []byte{2, 5, 3, 'a', 'b', 'c', 9, 0}

// Rule 7: the client id of a flexible header is not compact, ControlledShutdown
// v0 has none, and tags are skipped as part of the header.
func TestRule7HeadersOfEveryVersionAreRead(t *testing.T) {
	for key := range int16(MaxKey + 1) {
		for version := int16(0); version <= table[key].max; version++ {
			for _, id := range []*string{nil, kmsg.StringPtr(""), kmsg.StringPtr("producer-1")} {
				for _, tags := range [][]byte{nil, someTags} {
					frame, body := request(t, key, version, id, -7, tags)
					h, need, err := PeekRequest(frame)
					if err != nil || need != 0 {
						t.Fatalf("%s v%d: need %d, %v", Name(key), version, need, err)
					}
					if h.Key != key || h.Version != version || h.Correlation != -7 || h.FrameLen() != len(frame) {
						t.Errorf("%s v%d: read as %+v", Name(key), version, h)
					}
					if !bytes.Equal(frame[h.HeaderLen:], body) || h.BodyLen() != len(body) {
						t.Errorf("%s v%d: the body begins at %d of %d, it has %d", Name(key), version, h.HeaderLen, len(frame), len(body))
					}
					none := key == 7 && version == 0 || id == nil
					if (h.ClientID == nil) != none || !none && string(h.ClientID) != *id {
						t.Errorf("%s v%d: client id %q", Name(key), version, h.ClientID)
					}
				}
			}
		}
	}
}

// An incomplete header requests more bytes, a few at a time, and reads the same
// once it is complete.
func TestIncompleteHeadersRequestMoreBytes(t *testing.T) {
	frame, _ := request(t, 0, 9, kmsg.StringPtr("producer-1"), 1, someTags)
	whole, _, _ := PeekRequest(frame)
	for n := range whole.HeaderLen {
		h, need, err := PeekRequest(frame[:n])
		if err != nil || need <= n || need > whole.HeaderLen {
			t.Errorf("with %d of %d bytes: need %d, %v", n, whole.HeaderLen, need, err)
		}
		if (h.Size == -1) != (n < 4) {
			t.Errorf("with %d bytes the size is %d", n, h.Size)
		}
	}
}

// Rule 9: impossible sizes are refused before more bytes are awaited.
func TestRule9ImpossibleSizesAreRefused(t *testing.T) {
	for _, size := range []int32{-1 << 31, -1, 0, 1, 7} {
		p := AppendInt32(nil, size)
		if _, _, err := PeekRequest(p); !errors.Is(err, ErrMalformed) {
			t.Errorf("request of %d bytes: %v", size, err)
		}
		if _, _, _, err := PeekResponse(p); size < 4 != errors.Is(err, ErrMalformed) {
			t.Errorf("response of %d bytes: %v", size, err)
		}
	}
	// A large size is returned from the first four bytes, for the caller to check.
	if h, need, err := PeekRequest(AppendInt32(nil, 1<<31-1)); err != nil || h.Size != 1<<31-1 || need != 12 {
		t.Errorf("size %d, need %d, %v", h.Size, need, err)
	}
}

func TestBrokenHeadersAreRefused(t *testing.T) {
	head := func(size int32, key, version int16, rest ...byte) []byte {
		return append(AppendInt32(AppendInt16(AppendInt16(AppendInt32(nil, size), key), version), 1), rest...)
	}
	for name, p := range map[string][]byte{
		"no room for a client id":  head(9, 3, 0, 0),
		"client id beyond the end": head(20, 3, 0, 0, 11),
		"client id of -2":          head(20, 3, 0, 0xff, 0xfe),
		"tag beyond the end":       head(16, 3, 12, 0, 0, 1, 0, 100, 0, 0),
		"tags without an end":      head(12, 3, 12, 0, 0, 1, 0x80),
		"no tags":                  head(10, 3, 12, 0, 0),
		"a count of 40 bits":       head(30, 3, 12, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0),
		"more than a header takes": head(1<<20, 3, 12, 0, 0, 1, 0, 0x80, 0x80, 0x20),
	} {
		if h, need, err := PeekRequest(p); err == nil {
			t.Errorf("%s: read as %+v, need %d", name, h, need)
		}
	}
}

// Rule 5: every version of an ApiVersions response has the header of v0.
func TestRule5HeadersOfResponsesAreRead(t *testing.T) {
	for key := range int16(MaxKey + 1) {
		for version := int16(0); version <= table[key].max; version++ {
			p := AppendResponseHeader(nil, key, version, 77, 3)
			want := 8
			m := kmsg.ResponseForKey(key)
			if m.SetVersion(version); m.IsFlexible() && key != 18 {
				want = 9
			}
			size, correlation, need, err := PeekResponse(p)
			if err != nil || need != 0 || correlation != 77 || int(size) != want-4+3 {
				t.Fatalf("%s v%d: size %d, id %d, need %d, %v", Name(key), version, size, correlation, need, err)
			}
			if n, need, err := ResponseHeaderLen(append(p, 1, 2, 3), key, version); n != want || need != 0 || err != nil {
				t.Errorf("%s v%d: header of %d bytes, need %d, %v", Name(key), version, n, need, err)
			}
		}
	}
	p := append(AppendInt32(AppendInt32(nil, 4+int32(len(someTags))), 5), someTags...)
	if n, need, err := ResponseHeaderLen(p, 3, 9); n != len(p) || need != 0 || err != nil {
		t.Errorf("tags: %d, %d, %v", n, need, err)
	}
	if _, need, err := ResponseHeaderLen(p[:10], 3, 9); need <= 10 || err != nil {
		t.Errorf("half the tags: need %d, %v", need, err)
	}
}

func TestAppendedRequestHeadersMatchKmsg(t *testing.T) {
	for _, c := range []struct{ key, version int16 }{{18, 3}, {18, 0}, {3, 12}, {3, 1}} {
		r := kmsg.RequestForKey(c.key)
		r.SetVersion(c.version)
		body := r.AppendTo(nil)
		got := append(AppendRequestHeader(nil, c.key, c.version, 9, "me", len(body)), body...)
		want := kmsg.NewRequestFormatter(kmsg.FormatterClientID("me")).AppendRequest(nil, r, 9)
		if !bytes.Equal(got, want) {
			t.Errorf("%s v%d:\ngot  %x\nwant %x", Name(c.key), c.version, got, want)
		}
	}
}

// Rule 3: the first bytes of a Produce request show whether it gets a response.
func TestRule3AcksAreReadWithoutDecoding(t *testing.T) {
	for version := int16(0); version <= 13; version++ {
		for _, id := range []*string{nil, kmsg.StringPtr(""), kmsg.StringPtr("a transactional id")} {
			for _, acks := range []int16{-1, 0, 1} {
				m := kmsg.NewPtrProduceRequest()
				m.Version, m.Acks, m.TransactionID = version, acks, id
				body := m.AppendTo(nil)
				got, need, err := ProduceAcks(version, body)
				if err != nil || need != 0 || got != acks {
					t.Errorf("v%d: acks %d, need %d, %v; want %d", version, got, need, err, acks)
				}
				for n := 0; ; n++ {
					got, need, err := ProduceAcks(version, body[:n])
					if err != nil || need > 0 && need <= n {
						t.Fatalf("v%d with %d bytes: need %d, %v", version, n, need, err)
					}
					if need == 0 {
						if got != acks {
							t.Errorf("v%d with %d bytes: acks %d", version, n, got)
						}
						break
					}
				}
			}
		}
	}
	if _, _, err := ProduceAcks(3, []byte{0x80, 0}); !errors.Is(err, ErrMalformed) {
		t.Errorf("an id of -32768 bytes: %v", err)
	}
	if _, _, err := ProduceAcks(9, []byte{0xff, 0xff, 0xff, 0x7f}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an id of 256 MiB: %v", err)
	}
}

func TestOtherProtocolsAreGuessed(t *testing.T) {
	for p, want := range map[string]string{
		"GET / HTTP/1.1\r\n": "http", "PRI * HTTP/2.0": "http", "POST": "http",
		"\x16\x03\x01\x02\x00": "tls", "\x15\x03\x03": "tls", "SSH-2.0": "ssh",
		"\x00\x00\x00\x20\x00\x12\x00\x03": "", "": "",
	} {
		if got := GuessProtocol([]byte(p)); got != want {
			t.Errorf("%q is recognized as %q, want %q", p, got, want)
		}
		// A limit of 100 MiB refuses all of them.
		if h, _, err := PeekRequest([]byte(p)); want != "" && len(p) >= 4 && err == nil && h.Size <= 100<<20 {
			t.Errorf("%q is a request of %d bytes", p, h.Size)
		}
	}
}

func FuzzPeekRequest(f *testing.F) {
	for _, c := range []struct{ key, version int16 }{{0, 9}, {18, 3}, {7, 0}, {3, 1}} {
		frame, _ := request(f, c.key, c.version, kmsg.StringPtr("id"), 1, someTags)
		f.Add(frame)
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		h, need, err := PeekRequest(p)
		if err != nil {
			return
		}
		if need > 0 {
			if need <= len(p) {
				t.Fatalf("%d bytes are not enough, but only %d are requested", len(p), need)
			}
			if h.Size >= 0 && need > h.FrameLen() && need > 12 {
				t.Fatalf("needs %d bytes of a frame of %d", need, h.FrameLen())
			}
			return
		}
		if h.HeaderLen > len(p) || h.HeaderLen > h.FrameLen() || h.BodyLen() < 0 {
			t.Fatalf("%+v of %d bytes", h, len(p))
		}
		// The result is the same in any pieces.
		for n := range h.HeaderLen {
			if _, need, err := PeekRequest(p[:n]); err != nil || need <= n {
				t.Fatalf("with %d of %d bytes: need %d, %v", n, h.HeaderLen, need, err)
			}
		}
		if _, need, err := ProduceAcks(h.Version, p[h.HeaderLen:]); err == nil && need > 0 && need <= len(p)-h.HeaderLen {
			t.Fatalf("acks need %d bytes", need)
		}
	})
}

func FuzzPeekResponse(f *testing.F) {
	f.Add(AppendResponseHeader(nil, 3, 12, 7, 0), int16(3), int16(12))
	f.Add(AppendResponseHeader(nil, 18, 3, 7, 0), int16(18), int16(3))
	f.Add(append(AppendInt32(AppendInt32(nil, 4+int32(len(someTags))), 5), someTags...), int16(1), int16(16))
	f.Fuzz(func(t *testing.T, p []byte, key, version int16) {
		size, _, need, err := PeekResponse(p)
		if err != nil || need > 0 {
			return
		}
		n, need, err := ResponseHeaderLen(p, key, version)
		if err == nil && need == 0 && (n > len(p) || n > 4+int(size)) || need > 4+int(size) {
			t.Fatalf("header of %d bytes, need %d, in %d of %d", n, need, len(p), size)
		}
	})
}
