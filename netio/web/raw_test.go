package web_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"penstock/internal/testkit"
)

// rawHTTP2 is a client of HTTP/2 that says what it likes.
type rawHTTP2 struct {
	net.Conn
	frames *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder
	decode *hpack.Decoder
	status string // of the answer that is being read
	frame  uint32 // the largest that the server takes
}

func newRawHTTP2(t testing.TB, addr string) *rawHTTP2 {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	h := &rawHTTP2{Conn: c, frames: http2.NewFramer(c, c), frame: 16 << 10}
	h.frames.AllowIllegalWrites = true
	h.fields = hpack.NewEncoder(&h.block)
	h.decode = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			h.status = f.Value
		}
	})
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = h.frames.WriteSettings()
	return h
}

// ask sends the header of a request: names and values by turns.
func (h *rawHTTP2) ask(stream uint32, ends bool, fields ...string) {
	h.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = h.fields.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = h.frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: h.block.Bytes(), EndHeaders: true, EndStream: ends,
	})
}

// answer reads until a stream has ended: the status, and "RST" or "GOAWAY"
// with its code where that is how.
func (h *rawHTTP2) answer(stream uint32) (string, error) {
	for {
		f, err := h.frames.ReadFrame()
		if err != nil {
			return h.status, err
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			_, _ = h.decode.Write(f.HeaderBlockFragment())
			if f.StreamID == stream && f.StreamEnded() {
				return h.status, nil
			}
		case *http2.DataFrame:
			if f.StreamID == stream && f.StreamEnded() {
				return h.status, nil
			}
		case *http2.RSTStreamFrame:
			return fmt.Sprint(h.status, "RST ", f.ErrCode), nil
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return fmt.Sprint(h.status, "GOAWAY ", f.ErrCode), nil
			}
		}
	}
}

// pong waits until the server has read all that was sent.
func (h *rawHTTP2) pong() error {
	_ = h.frames.WritePing(false, [8]byte{1})
	for {
		f, err := h.frames.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingMaxFrameSize); ok {
				h.frame = n
			}
		case *http2.PingFrame:
			if f.IsAck() {
				return nil
			}
		}
	}
}
