package web

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// A header of HTTP/2 that is begun and left has its time, in whatever frame it
// stopped and however the bytes come; whole ones, and silence, have no end.
func TestHeadersOfHTTP2AreFollowed(t *testing.T) {
	for name, test := range map[string]struct {
		say  func(f *http2.Framer)
		left bool
	}{
		"nothing":      {func(*http2.Framer) {}, false},
		"other frames": {func(f *http2.Framer) { _ = f.WriteSettings(); _ = f.WriteData(1, true, make([]byte, 3000)) }, false},
		"whole": {func(f *http2.Framer) {
			for id := uint32(1); id < 20; id += 2 {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 300), EndHeaders: true})
			}
		}, false},
		"whole in three": {func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 10)})
			_ = f.WriteContinuation(1, false, make([]byte, 10))
			_ = f.WriteContinuation(1, true, nil)
		}, false},
		"left before CONTINUATION": {func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 10)})
		}, true},
		"left in CONTINUATION": {func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 10)})
			_ = f.WriteContinuation(1, false, make([]byte, 10))
		}, true},
		"left in the second": {func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 10), EndHeaders: true})
			_ = f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 3, make([]byte, 10))
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: make([]byte, 10)})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var all bytes.Buffer
			all.WriteString(http2.ClientPreface)
			test.say(http2.NewFramer(&all, nil))
			for step := 1; step <= all.Len(); step += 1 + step/3 {
				synctest.Test(t, func(t *testing.T) {
					b, ended := newBlocks(), false
					for rest := all.Bytes(); len(rest) > 0; {
						n := min(step, len(rest))
						b.feed(rest[:n], time.Second, func() { ended = true })
						rest = rest[n:]
					}
					<-time.After(2 * time.Second)
					synctest.Wait()
					if ended != test.left {
						t.Errorf("%d bytes at a time: ended %v", step, ended)
					}
				})
			}
		})
	}
}
