package session

import (
	"slices"
	"sync"

	"penstock/mysql/wire"
	"penstock/netio/relay"
)

// compression is the compressed protocol with the client of an open session.
//
// The server is spoken to without compression. To relay its frames as they are, they
// would have to be decompressed all the same, for the status flags; with the fast level
// of package wire, compressing costs the proxy about as much, and the server nothing. So
// a client gets compression from servers that have none, and a move needs nothing.
//
// An idle session holds no more than this struct.
type compression struct {
	reader wire.CompressedReader
	writer wire.CompressedWriter
	frames []byte // of the client, that wait until its last command is answered
	left   uint32 // bytes that are still to come of the client's packet
	seq    byte   // its number for the server
	more   bool   // the next packet continues it
	n      uint8  // bytes in header
	header [wire.HeaderSize - 1]byte
	busy   bool // in decompress
}

// chunkSize is how much is decompressed at once.
const chunkSize = 16 << 10

// maxZstdLevel bounds the level that a client chooses: the highest ones compute for
// milliseconds, in which the loop serves nobody else.
const maxZstdLevel = 3

// chunks are buffers for plain bytes, and for frames that are sent.
var chunks = sync.Pool{New: func() any { p := make([]byte, chunkSize); return &p }}

// compress begins the compressed protocol, if the client's login has asked for it.
func (s *Session) compress(l *wire.Login) {
	if a := (l.Capabilities & compressions).Compression(); a != wire.NoCompression {
		s.compressed = &compression{reader: wire.NewCompressedReader(a), writer: wire.NewCompressedWriter(a, min(l.ZstdLevel, maxZstdLevel))}
	}
}

// between reports whether nothing of a packet or a frame has come.
func (z *compression) between() bool {
	return z == nil || z.reader.Between() && z.left == 0 && z.n == 0 && !z.more
}

// waits reports whether there are bytes that decompress has left.
func (z *compression) waits() bool { return z != nil && (len(z.frames) > 0 || !z.reader.Between()) }

// restart gives the next frame to the client the number of an answer's first.
func (z *compression) restart() { z.writer.Seq, z.reader.Seq = 1, 1 }

// decompress takes frames of the client, as far as its commands can be relayed now. The
// rest stays compressed.
func (s *Session) decompress(p []byte) {
	z := s.compressed
	if z.busy {
		return
	}
	z.busy = true
	defer func() { z.busy = false }()
	if len(z.frames) > 0 {
		p = append(z.frames, p...)
		z.frames = nil
	}
	chunk := chunks.Get().(*[]byte)
	defer chunks.Put(chunk)
	for s.phase == open && !s.pending[relay.Upstream] && s.held == nil && (!z.between() || !s.mustWait()) {
		if z.between() && s.answer == idle {
			z.reader.Seq = 0 // a command begins
		}
		have := copy(*chunk, z.header[:z.n])
		plain, taken, err := z.reader.Read((*chunk)[have:], p)
		p = p[taken:]
		z.writer.Seq = z.reader.Seq
		if plain > 0 {
			s.fromFrames((*chunk)[:have+plain])
		}
		if err != nil {
			s.badPacket(relay.Client, err)
			return
		}
		if plain == 0 && taken == 0 {
			break
		}
	}
	if len(p) > 0 && s.phase == open {
		z.frames = slices.Clone(p)
	}
}

// fromFrames takes plain bytes, of which the first z.n are those in z.header. Headers of
// packets are passed on whole: those that continue a packet, and the client's answers
// within a command, get the number that the server expects. Clients go by the numbers of
// the frames, which the server does not know.
func (s *Session) fromFrames(p []byte) {
	z := s.compressed
	answers, seq := s.answer == infile || s.answer == refused || s.answer == turns, s.seq+1
	if s.answer == refused {
		seq = z.seq + 1 // without the number of the error
	}
	at := 0
	for {
		n := min(int(z.left), len(p)-at)
		z.left -= uint32(n)
		if at += n; len(p)-at < wire.HeaderSize {
			break
		}
		length, _ := wire.ParseHeader(p[at:])
		at += wire.HeaderSize
		switch {
		case z.more:
			seq = z.seq + 1
			p[at-1] = seq
		case answers:
			p[at-1] = seq
			answers = length > 0 // behind the end of a file
		default:
			seq = p[at-1]
		}
		z.seq, z.more, z.left = seq, length == wire.MaxPayload, uint32(length)
		seq++
	}
	z.n = uint8(copy(z.header[:], p[at:]))
	if at > 0 {
		s.fromClient(p[:at])
	}
}

// sendFrames sends the client bytes in frames.
func (s *Session) sendFrames(p []byte) (pending int) {
	z := s.compressed
	chunk := chunks.Get().(*[]byte)
	out := z.writer.Append((*chunk)[:0], p)
	z.reader.Seq = z.writer.Seq
	pending = s.streams[relay.Client].Send(out)
	if cap(out) <= 2*maxRead {
		*chunk = out[:cap(out)]
	}
	chunks.Put(chunk)
	return pending
}
