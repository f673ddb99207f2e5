package web

import (
	"bytes"
	"io"
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
					ended := false
					f := newFrames(&pieces{all.Bytes(), step}, time.Second, func() { ended = true })
					if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, all.Bytes()) {
						t.Errorf("%d bytes at a time: %q, %v", step, got, err)
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

// pieces gives bytes a few at a time.
type pieces struct {
	rest []byte
	step int
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(to, p.rest[:min(p.step, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// A setting that a frame names twice is given once, with its last value.
// Everything else is left to net/http.
func TestASettingIsGivenOnce(t *testing.T) {
	t.Parallel()
	type setting = http2.Setting
	window := func(n uint32) setting { return setting{ID: http2.SettingInitialWindowSize, Val: n} }
	push, table := setting{ID: http2.SettingEnablePush, Val: 0}, setting{ID: http2.SettingHeaderTableSize, Val: 0}
	var many []setting
	for range 101 {
		many = append(many, push)
	}
	for name, c := range map[string]struct{ send, want []setting }{
		"none":             {nil, nil},
		"each once":        {[]setting{push, window(1), table}, []setting{push, window(1), table}},
		"twice":            {[]setting{window(100), push, window(1)}, []setting{push, window(1)}},
		"three times":      {[]setting{window(3), window(2), window(1), push}, []setting{window(1), push}},
		"an invalid first": {[]setting{window(1 << 31), window(1)}, []setting{window(1 << 31), window(1)}},
		"a table twice":    {[]setting{table, table}, []setting{table, table}},
		"too many":         {many, many},
	} {
		var in, want bytes.Buffer
		in.WriteString(http2.ClientPreface)
		want.WriteString(http2.ClientPreface)
		_ = http2.NewFramer(&in, nil).WriteSettings(c.send...)
		_ = http2.NewFramer(&want, nil).WriteSettings(c.want...)
		for _, b := range []*bytes.Buffer{&in, &want} {
			_ = http2.NewFramer(b, nil).WriteSettingsAck()
			_ = http2.NewFramer(b, nil).WritePing(false, [8]byte{})
		}
		for step := 1; step <= in.Len(); step += 1 + step/3 {
			f := newFrames(&pieces{in.Bytes(), step}, time.Hour, nil)
			if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%s, %d bytes at a time: %q, %v, want %q", name, step, got, err, want.Bytes())
			}
		}
	}
}

// A frame that is announced and does not come costs no memory.
func TestAHeldFrameGrowsWithItsBytes(t *testing.T) {
	t.Parallel()
	in := append([]byte(http2.ClientPreface), 0, 0x40, 0, byte(http2.FrameHeaders), 0, 0, 0, 0, 1, 0, 0)
	f := newFrames(&pieces{in, len(in)}, time.Hour, nil)
	_, _ = io.ReadAll(f)
	if f.timer.Stop(); len(f.held) != 11 || cap(f.held) > keepHeld {
		t.Errorf("%d bytes are held in %d", len(f.held), cap(f.held))
	}
}
