package wire

import "sync"

const (
	// MaxHeld bounds the bytes that a Walker waits for at once: one name, or
	// all node endpoints of a message. More is an error.
	MaxHeld = 64 << 10
	// copyLimit is the size up to which bytes between two edits are copied.
	// More are returned as a view, which costs another call.
	copyLimit = 16 << 10
)

// A Walker rewrites the body of one message while it streams. It reads the
// structure alone, and only as far as something may change. It never looks at
// records, and copies or holds only small pieces beside a change.
//
//	w.Init(Response, key, version, bodySize, &edits)
//	for {
//		out, view, n, pass, err := w.Next(scratch[:0], p)
//		// send out, then view, and drop p[:n]; then pass as many bytes as
//		// pass says, which follow p[:n], without showing them. Go on with
//		// what follows them, until Done.
//	}
//
// It returns nothing before Growth is known, so that the new length of the
// frame can be sent first: scratch may begin with it. Names and ids are edited
// where they stand. Node endpoints stand at the end, so they are made to take
// as many bytes as before (see node_endpoints.go), unless the first call of
// Next gets all of a message of up to MaxHeld.
type Walker struct {
	s     *shape
	edits *Edits
	free  bool // whole: lengths need not be kept

	pc     int       // the next op
	counts [4]uint32 // elements left, by depth of arrays
	depth  int       // in counts; 0: outside
	inTags bool      // the count of the tags at pc was read
	tags   uint32    // tags left, if inTags

	left   int // bytes of the body behind what is done, held ones included
	skip   int // of them, those that pass now
	pad    int // bytes that node endpoints fell short by, to be filled in the message's tags
	growth int
	per    int // growth of each name on the wire
	known  bool
	begun  bool
	hidden int // nodes that the edits gave no address for

	id        [16]byte // what the id that was measured last becomes
	nodes     uint32   // of an array of endpoints whose end was not found yet: how many are left, plus one
	nodesAt   int      // where the next one of them begins
	topicLeft int      // left behind the name of a topic that is not the last; 0: nobody wants to know
	manyNodes bool     // there is one at all

	held []byte // the beginning of an op whose end has not come
	word []byte // what the string that was edited last became
}

// Init begins with a message whose body has size bytes. It must be Walkable.
// The Walker keeps edits until the message is done.
func (w *Walker) Init(d Direction, key, version int16, size int, edits *Edits) {
	held, word := w.held, w.word
	if cap(held) > copyLimit {
		held = nil
	}
	*w = Walker{s: shapeOf(d, key, version), edits: edits, left: size, held: held[:0], word: word[:0]}
	w.known = true
	if w.s.named && edits.Topic != nil && edits.TopicGrowth != 0 {
		w.known = false
		if w.per = edits.TopicGrowth; w.per > 0 && w.s.flexible {
			w.per++ // the length's varint may grow, so each does
		}
	}
	if w.s.ops[0].do == opTxnID && edits.TransactionalID != nil {
		w.known = false
	}
}

// Growth returns by how many bytes the body grows, or shrinks if negative. It
// is known when Next first returns bytes.
func (w *Walker) Growth() (bytes int, known bool) { return w.growth, w.known }

// Done reports whether the message is over.
func (w *Walker) Done() bool { return w.left == 0 && w.pc == len(w.s.ops) }

// Next continues with p, which begins where the last call, or what it let pass,
// ended. Bytes behind the message are ignored. Next appends what it edits to
// dst: out is dst with that, and view a part of p that follows it. n bytes of p
// are done; the caller passes the next pass bytes behind p[:n] itself. A
// message without a body needs one call with no bytes.
func (w *Walker) Next(dst, p []byte) (out, view []byte, n, pass int, err error) {
	p = p[:min(len(p), w.left-len(w.held))]
	if !w.begun {
		if w.begun = true; w.edits.Node != nil && len(p) == w.left && len(p) <= MaxHeld {
			return w.atOnce(dst, p)
		}
	}
	out = dst
	at := 0 // done up to here
	if len(w.held) > 0 {
		if out, at, err = w.finishHeld(dst, p); err != nil || len(w.held) > 0 {
			return dst, nil, at, 0, err
		}
	}
	from := at // p[from:at] passes as it is
	for {
		if w.skip > 0 {
			k := min(w.skip, len(p)-at)
			at += k
			w.left -= k
			if w.skip -= k; w.skip > 0 {
				pass, w.skip = w.skip, 0
				w.left -= pass
				break
			}
		}
		if w.pc == len(w.s.ops) {
			if w.left == 0 {
				break
			}
			w.skip = w.left // what is behind a message is read by nobody
			continue
		}
		if at == len(p) && w.left > 0 {
			break
		}
		m, err := w.measure(p[at:])
		if err != nil {
			return dst, nil, at, 0, err
		}
		if m.need > 0 {
			w.held = append(w.held, p[at:]...)
			out, view = merge(out, p[from:at])
			return out, view, len(p), 0, nil
		}
		if m.edit {
			if at-from > copyLimit {
				return out, p[from:at], at, 0, nil
			}
			out = append(out, p[from:at]...)
			if out, err = w.edit(out, p[at:at+m.used]); err != nil {
				return dst, nil, at, 0, err
			}
			from = at + m.used
		}
		at += m.used
		w.advance(m)
	}
	out, view = merge(out, p[from:at])
	return out, view, at, pass, nil
}

// merge appends a piece that passes, if that saves the caller a call.
func merge(out, piece []byte) (merged, view []byte) {
	if len(out) > 0 && len(piece) <= copyLimit {
		return append(out, piece...), nil
	}
	return out, piece
}

// finishHeld adds bytes of p to those held until they are a whole op.
func (w *Walker) finishHeld(dst, p []byte) (out []byte, at int, err error) {
	for {
		m, err := w.measure(w.held)
		if err != nil {
			return dst, at, err
		}
		if m.need == 0 {
			if m.edit {
				out, err = w.edit(dst, w.held)
			} else {
				out = append(dst, w.held...)
			}
			w.advance(m)
			w.held = w.held[:0]
			return out, at, err
		}
		if at == len(p) {
			return dst, at, nil
		}
		k := min(m.need-len(w.held), len(p)-at)
		w.held = append(w.held, p[at:at+k]...)
		at += k
	}
}

// Rewrite edits the body of a whole message, which must be Walkable. Names and
// addresses may have any length. It returns body itself if nothing changed, or
// dst with the new body.
func Rewrite(dst []byte, d Direction, key, version int16, body []byte, edits *Edits) ([]byte, error) {
	w, _ := rewriters.Get().(*Walker)
	defer rewriters.Put(w)
	out, err := w.rewrite(dst, d, key, version, body, edits)
	w.edits = nil
	return out, err
}

// rewriters are pooled: small messages are rewritten in great numbers.
var rewriters = sync.Pool{New: func() any { return new(Walker) }}

func (w *Walker) rewrite(dst []byte, d Direction, key, version int16, body []byte, edits *Edits) ([]byte, error) {
	w.Init(d, key, version, len(body), edits)
	return w.all(dst, body)
}

// atOnce is Next for a small message that came as a whole. Its length is still
// free, so no endpoint is left out for being longer.
func (w *Walker) atOnce(dst, body []byte) (out, view []byte, n, pass int, err error) {
	out, err = w.all(dst, body)
	switch {
	case err != nil:
		return dst, nil, 0, 0, err
	case len(out) == len(body) && len(body) > 0 && &out[0] == &body[0]:
		return dst, body, len(body), 0, nil
	}
	w.growth = len(out) - len(dst) - len(body)
	return out, nil, len(body), 0, nil
}

// all edits a whole body.
func (w *Walker) all(dst, body []byte) ([]byte, error) {
	w.free, w.known, w.begun = true, true, true
	start, p := len(dst), body
	for {
		out, view, n, _, err := w.Next(dst, p)
		if err != nil {
			return nil, err
		}
		if len(out) == start && len(view) == len(body) {
			return body, nil
		}
		dst = append(out, view...)
		if p = p[n:]; w.Done() {
			return dst, nil
		}
	}
}
