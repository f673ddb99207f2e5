package web

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames reads a client's HTTP/2 frame by frame (RFC 9113, section 4.1), for
// what net/http leaves undone:
//
//   - A header that is begun has a time to be whole. net/http would wait for the
//     rest of it, and keep what there is decoded, as long as the connection lives.
//   - A request with fields that belong to a connection is malformed (section
//     8.2.2) and its stream is reset. net/http would answer it with 400.
//   - A SETTINGS frame may name a setting twice (section 6.5.3). net/http would
//     end the connection.
//
// Whole frames of HEADERS, CONTINUATION and SETTINGS are held and may be edited;
// all others pass as they come. It is for whoever reads the connection.
type frames struct {
	from  io.Reader
	limit time.Duration     // for a header to be whole
	late  func()            // called on a goroutine of its own after it
	bad   func(name string) // a request has this field; nil: nobody asks

	skip  int    // bytes that pass as they are
	held  []byte // the frame that comes, from its header on
	want  int    // its size; 0: its header is not whole
	ready []byte // what of held is to be read next

	open    bool // between the first byte of a HEADERS frame and END_HEADERS
	timer   *time.Timer
	fields  *hpack.Decoder // nil: it has lost track, as net/http has
	size    uint32         // of the header list so far, in bytes
	max     uint32         // more than that is refused by its size
	foreign string         // the field of the header that belongs to a connection
	te      int            // how many fields "te" it has
}

const (
	prefaceSize = 24
	frameHeader = 9
	// maxSettings is the size of a SETTINGS frame that is held, in bytes: one
	// that is larger has more settings than net/http takes.
	maxSettings = 100 * 6
	// keepHeld is what stays allocated between two frames, in bytes.
	keepHeld = 1 << 10
)

func newFrames(from io.Reader, limit time.Duration, late func()) *frames {
	f := &frames{from: from, limit: limit, late: late, skip: prefaceSize, max: DefaultMaxHeader}
	f.fields = hpack.NewDecoder(4<<10, f.field) // the size of the table that net/http offers
	f.fields.SetMaxStringLength(2 * DefaultMaxHeader)
	return f
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	for {
		switch {
		case len(p) == 0:
			return 0, nil
		case len(f.ready) > 0:
			n := copy(p, f.ready)
			if f.ready = f.ready[n:]; len(f.ready) == 0 {
				f.reset()
			}
			return n, nil
		case f.skip > 0:
			n, err := f.from.Read(p[:min(f.skip, len(p))])
			f.skip -= n
			return n, err
		}
		if err := f.collect(); err != nil {
			return 0, err
		}
	}
}

// reset makes room for the next frame.
func (f *frames) reset() {
	if f.held = f.held[:0]; cap(f.held) > keepHeld {
		f.held = nil
	}
	f.ready, f.want = nil, 0
}

// collect reads more of the frame that comes. What is announced and does not
// come costs nothing.
func (f *frames) collect() error {
	have, want := len(f.held), max(f.want, frameHeader)
	f.held = slices.Grow(f.held, min(want-have, max(have, 256)))
	n, err := f.from.Read(f.held[have:min(want, cap(f.held))])
	f.held = f.held[:have+n]
	if f.want == 0 && len(f.held) == frameHeader {
		f.begin()
	}
	if f.want > 0 && len(f.held) == f.want {
		f.whole()
	}
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// begin begins the frame whose header is there.
func (f *frames) begin() {
	size := int(binary.BigEndian.Uint32(f.held) >> 8)
	hold := false
	switch http2.FrameType(f.held[3]) {
	case http2.FrameHeaders, http2.FrameContinuation:
		hold = size <= maxFrame // else net/http refuses it
		f.open = true
		if f.timer == nil {
			f.timer = time.AfterFunc(f.limit, f.late)
		}
	case http2.FrameSettings:
		hold = size <= maxSettings
	}
	if hold {
		f.want = frameHeader + size
		return
	}
	f.ready, f.skip = f.held, size
}

// whole is for a held frame that is whole.
func (f *frames) whole() {
	if http2.FrameType(f.held[3]) == http2.FrameSettings {
		f.settings()
	} else {
		f.header()
	}
	f.ready = f.held
}

// settings leaves the last of several values of a setting. What is invalid
// stays, for net/http to refuse, and so does the size of a table that comes
// twice: the smaller of both would have to be told (RFC 7541, section 4.2).
func (f *frames) settings() {
	const each = 6
	all := f.held[frameHeader:]
	if len(all)%each != 0 {
		return
	}
	id := func(i int) http2.SettingID { return http2.SettingID(binary.BigEndian.Uint16(all[i:])) }
	kept := all[:0:0]
	for i := 0; i < len(all); i += each {
		again := false
		for j := i + each; j < len(all) && !again; j += each {
			again = id(i) == id(j)
		}
		s := http2.Setting{ID: id(i), Val: binary.BigEndian.Uint32(all[i+2:])}
		if again && (s.Valid() != nil || s.ID == http2.SettingHeaderTableSize) {
			return
		}
		if !again {
			kept = append(kept, all[i:i+each]...)
		}
	}
	f.held = append(f.held[:frameHeader], kept...)
	f.held[0], f.held[1], f.held[2] = 0, byte(len(kept)>>8), byte(len(kept))
}

// header looks at a frame of HEADERS or CONTINUATION, and ends the header if it
// is the last.
func (f *frames) header() {
	if f.fields != nil {
		if block, ok := fragment(f.held); ok {
			if _, err := f.fields.Write(block); err != nil {
				f.fields = nil
			}
		}
	}
	if f.held[4]&byte(http2.FlagHeadersEndHeaders) == 0 {
		return
	}
	if f.fields != nil && f.fields.Close() != nil {
		f.fields = nil
	}
	if f.foreign == "" && f.te > 1 {
		f.foreign = "te"
	}
	if f.foreign != "" && f.size <= f.max && f.fields != nil {
		f.spoil()
		if f.bad != nil {
			f.bad(f.foreign)
		}
	}
	f.open, f.size, f.foreign, f.te = false, 0, "", 0
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

// fragment is the part of a header that a frame has; false: it is malformed.
func fragment(frame []byte) (block []byte, ok bool) {
	block = frame[frameHeader:]
	if http2.FrameType(frame[3]) == http2.FrameContinuation {
		return block, true
	}
	flags := http2.Flags(frame[4])
	pad := 0
	if flags.Has(http2.FlagHeadersPadded) {
		if len(block) == 0 {
			return nil, false
		}
		pad, block = int(block[0]), block[1:]
	}
	if flags.Has(http2.FlagHeadersPriority) {
		if len(block) < 5 {
			return nil, false
		}
		block = block[5:]
	}
	if pad > len(block) {
		return nil, false
	}
	return block[:len(block)-pad], true
}

// field looks at a field of a header.
func (f *frames) field(h hpack.HeaderField) {
	f.size += h.Size()
	switch h.Name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		f.foreign = h.Name
	case "te":
		if f.te++; h.Value != "" && !strings.EqualFold(h.Value, "trailers") {
			f.foreign = h.Name
		}
	}
}

// spoiled is a CONTINUATION frame that ends a header with a field whose name no
// header can have, so that net/http resets the stream with PROTOCOL_ERROR.
var spoiled = [...]byte{0, 0, 4, byte(http2.FrameContinuation), byte(http2.FlagContinuationEndHeaders), 0, 0, 0, 0,
	0, 1, 'A', 0} // a literal that no table keeps (RFC 7541, section 6.2.2)

// spoil makes the header whose last frame is held malformed.
func (f *frames) spoil() {
	f.held[4] &^= byte(http2.FlagHeadersEndHeaders)
	stream := [4]byte(f.held[5:frameHeader])
	f.held = append(f.held, spoiled[:]...)
	copy(f.held[len(f.held)-len(spoiled)+5:], stream[:])
}
