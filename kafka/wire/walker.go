package wire

import "sync"

const (
	// MaxHeld bounds the bytes that a Walker holds at once: one name, or all node
	// endpoints of a message. More is an error.
	MaxHeld = 64 << 10
	// copyLimit bounds the bytes between two edits that are copied. More are
	// returned as a view, which costs another call.
	copyLimit = 16 << 10
)

// A Walker edits the body of one message while it streams. It reads only the
// structure, and only as far as an edit may follow. It never decodes records,
// and copies or holds only small pieces next to an edit.
//
//	w.Init(Response, key, version, bodySize, &edits)
//	for {
//		out, view, n, pass, err := w.Next(scratch[:0], p)
//		// Send out, then view, and drop p[:n]. Then send the next pass bytes
//		// behind p[:n] without giving them to the Walker. Continue with the
//		// bytes behind them, until Done.
//	}
//
// It returns no bytes before Growth is known, so that the new length of the
// frame can be sent first: scratch may begin with it. Names and ids are edited
// where they occur. Node endpoints are at the end of the message, so they must
// keep their length (see node_endpoints.go), unless the first call of Next gets
// a whole message of up to MaxHeld.
type Walker struct {
	s         *shape
	edits     *Edits
	resizable bool // whole message: lengths may change

	pc     int       // the next op
	counts [4]uint32 // elements left, by depth of arrays
	depth  int       // into counts; 0: outside of arrays
	inTags bool      // the count of the tags at pc was read
	tags   uint32    // tags left, if inTags

	left       int // bytes of the body that are not done, held ones included
	skip       int // how many of them pass next
	pad        int // bytes that the node endpoints are too short; the message's tags fill them
	growth     int
	nameGrowth int // growth of each name on the wire
	known      bool
	begun      bool
	hidden     int // nodes that the edits gave no address for

	id        [16]byte // replacement of the last measured id
	nodes     uint32   // endpoints left in an array whose end was not found yet, plus one
	nodesAt   int      // offset of the next of them
	topicLeft int      // bytes left behind the name of a topic that is not the last; 0: not needed
	hasNodes  bool     // the array has an endpoint

	held []byte // beginning of an incomplete op
	word []byte // buffer of the last edited string
}

// Init starts a message whose body has size bytes. It must be Walkable. The
// Walker keeps edits until the message is done.
func (w *Walker) Init(d Direction, key, version int16, size int, edits *Edits) {
	held, word := w.held, w.word
	if cap(held) > copyLimit {
		held = nil
	}
	*w = Walker{s: shapeOf(d, key, version), edits: edits, left: size, held: held[:0], word: word[:0]}
	w.known = true
	if w.s.named && edits.Topic != nil && edits.TopicGrowth != 0 {
		w.known = false
		if w.nameGrowth = edits.TopicGrowth; w.nameGrowth > 0 && w.s.flexible {
			w.nameGrowth++ // the length's varint may grow, so each does
		}
	}
	if w.s.ops[0].do == opTxnID && edits.TransactionalID != nil {
		w.known = false
	}
}

// Growth returns by how many bytes the body grows, or shrinks if negative. It is
// known when Next first returns bytes.
func (w *Walker) Growth() (bytes int, known bool) { return w.growth, w.known }

// Done reports whether the message is complete.
func (w *Walker) Done() bool { return w.left == 0 && w.pc == len(w.s.ops) }

// Next continues with p, which begins where the last call, including the bytes
// that it let pass, ended. Bytes behind the message are ignored. out is dst with
// the edited bytes appended, and view is the part of p that follows them. n
// bytes of p are done; the caller sends the next pass bytes behind p[:n] itself.
// A message without a body takes one call with no bytes.
func (w *Walker) Next(dst, p []byte) (out, view []byte, n, pass int, err error) {
	p = p[:min(len(p), w.left-len(w.held))]
	if !w.begun {
		if w.begun = true; w.edits.Node != nil && len(p) == w.left && len(p) <= MaxHeld {
			return w.editWhole(dst, p)
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
			w.skip = w.left // bytes behind the last op are not read
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

// merge appends a view to out if that saves the caller a write.
func merge(out, piece []byte) (merged, view []byte) {
	if len(out) > 0 && len(piece) <= copyLimit {
		return append(out, piece...), nil
	}
	return out, piece
}

// finishHeld adds bytes of p to the held ones until the op is complete.
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
// addresses may change their length. It returns body itself if nothing changed,
// or dst with the new body.
func Rewrite(dst []byte, d Direction, key, version int16, body []byte, edits *Edits) ([]byte, error) {
	w, _ := rewriters.Get().(*Walker)
	defer rewriters.Put(w)
	out, err := w.rewrite(dst, d, key, version, body, edits)
	w.edits = nil
	return out, err
}

// rewriters are pooled because many small messages are rewritten.
var rewriters = sync.Pool{New: func() any { return new(Walker) }}

func (w *Walker) rewrite(dst []byte, d Direction, key, version int16, body []byte, edits *Edits) ([]byte, error) {
	w.Init(d, key, version, len(body), edits)
	return w.editBody(dst, body)
}

// editWhole is Next for a small message that arrived whole. Its length may
// still change, so no endpoint is left out for being longer.
func (w *Walker) editWhole(dst, body []byte) (out, view []byte, n, pass int, err error) {
	out, err = w.editBody(dst, body)
	switch {
	case err != nil:
		return dst, nil, 0, 0, err
	case len(out) == len(body) && len(body) > 0 && &out[0] == &body[0]:
		return dst, body, len(body), 0, nil
	}
	w.growth = len(out) - len(dst) - len(body)
	return out, nil, len(body), 0, nil
}

// editBody edits a whole body.
func (w *Walker) editBody(dst, body []byte) ([]byte, error) {
	w.resizable, w.known, w.begun = true, true, true
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
