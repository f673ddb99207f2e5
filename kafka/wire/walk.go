package wire

import (
	"encoding/binary"
	"fmt"
)

// extent is the extent of an op in the bytes at hand.
type extent struct {
	used int  // bytes of the op itself
	val  int  // their meaning: bytes that pass behind them, elements, or tags
	need int  // > 0: bytes needed before the op can be measured, counted from its beginning
	edit bool // the used bytes are edited
}

// measure measures the op at the beginning of b. It may be called again with
// more of the same bytes.
func (w *Walker) measure(b []byte) (m extent, err error) {
	if w.known {
		m, err = w.measureOp(w.s.ops[w.pc], b)
	} else {
		m, err = w.measureHead(b)
	}
	switch {
	case err != nil:
	case m.need > w.left:
		err = fmt.Errorf("%w: needs %d bytes, %d left", ErrMalformed, m.need, w.left)
	case m.need > MaxHeld && !w.resizable:
		err = fmt.Errorf("%d bytes of structure: %w, the limit is %d", m.need, ErrTooLarge, MaxHeld)
	case m.need == 0 && m.val > w.left-m.used:
		err = fmt.Errorf("%w: length %d with %d bytes left", ErrMalformed, m.val, w.left-m.used)
	}
	return m, err
}

func (w *Walker) measureOp(o op, b []byte) (m extent, err error) {
	switch o.do {
	case opFixed:
		return extent{val: o.n}, nil
	case opSession:
		if w.edits.FetchSession == nil {
			return extent{val: o.n}, nil
		}
		return w.measureSession(b), nil
	case opID:
		if w.edits.TopicID == nil {
			return extent{val: o.n}, nil
		}
		return w.measureID(includeValue(extent{used: o.n}, b), b)
	case opString:
		return w.length(b, 2)
	case opTxnID, opName:
		edit := w.edits.Topic
		if o.do == opTxnID {
			edit = w.edits.TransactionalID
		}
		if m, err = w.length(b, 2); edit == nil || m.need > 0 || err != nil {
			return m, err
		}
		if m.val >= 0 {
			return includeValue(m, b), nil
		}
		if o.do == opName {
			err = fmt.Errorf("%w: a topic without a name", ErrMalformed)
		}
		return m, err
	case opTags, opEnd:
		return w.measureTags(o, b)
	case opNodes:
		if w.edits.Node == nil {
			return extent{}, nil
		}
		return w.measureNodes(b)
	default: // opBytes, opArray, opTopics
		return w.length(b, 4)
	}
}

// measureSession passes the id of a fetch session to the edits.
func (w *Walker) measureSession(b []byte) extent {
	const size = 4
	if len(b) < size {
		return extent{need: size}
	}
	w.edits.FetchSession(int32(binary.BigEndian.Uint32(b)))
	return extent{used: size}
}

// measureID calls TopicID before the id is edited, so that an unchanged id does
// not split the bytes around it.
func (w *Walker) measureID(m extent, b []byte) (extent, error) {
	if m.need > 0 {
		return m, nil
	}
	w.id = [16]byte(b) // a variable of its own would be allocated
	err := w.edits.TopicID(&w.id)
	m.edit = w.id != [16]byte(b)
	return m, err
}

// includeValue includes the value behind an op's length in the op, to be
// edited.
func includeValue(m extent, b []byte) extent {
	m.used += max(m.val, 0)
	m.val, m.edit = 0, true
	if m.used > len(b) {
		m.need = m.used
	}
	return m
}

// measureHead measures everything up to the count of topics as one op.
func (w *Walker) measureHead(b []byte) (extent, error) {
	at, session := 0, -1
	for _, o := range w.s.ops {
		if o.do == opSession {
			session = at
		}
		if o.do == opFixed || o.do == opSession {
			at += o.n
			continue
		}
		if at > len(b) {
			return extent{need: at}, nil
		}
		size := 2
		if o.do == opTopics {
			size = 4
		}
		m, err := w.length(b[at:], size)
		if m.need > 0 || err != nil {
			m.need += at
			return m, err
		}
		if at += m.used; o.do == opTopics {
			if session >= 0 && w.edits.FetchSession != nil {
				w.measureSession(b[session:])
			}
			return extent{used: at, val: m.val, edit: w.s.ops[0].do == opTxnID && w.edits.TransactionalID != nil}, nil
		}
		at += max(m.val, 0)
	}
	return extent{}, nil // unreachable: every such shape has topics
}

// measureTags measures the count of tags, or the next tag.
func (w *Walker) measureTags(o op, b []byte) (extent, error) {
	u, n, err := uvarint(b)
	if n == 0 || err != nil {
		return extent{need: len(b) + 1}, err
	}
	if !w.inTags {
		return extent{used: n, val: int(u), edit: o.do == opEnd && w.pad > 0}, nil
	}
	size, k, err := uvarint(b[n:])
	if k == 0 || err != nil {
		return extent{need: len(b) + 1}, err
	}
	m := extent{used: n + k, val: int(size)}
	if u == 0 && o.n == 1 && w.edits.Node != nil {
		if m.val > w.left-m.used {
			return m, nil // measure reports the error
		}
		m = includeValue(m, b)
	}
	return m, nil
}

// length reads a length: a varint of it plus one, or size bytes; -1 is null.
func (w *Walker) length(b []byte, size int) (m extent, err error) {
	if w.s.flexible {
		u, n, err := uvarint(b)
		if n == 0 {
			m.need = len(b) + 1
		}
		m.used, m.val = n, int(u)-1
		return m, err
	}
	if len(b) < size {
		return extent{need: size}, nil
	}
	if m.used = size; size == 2 {
		m.val = int(int16(binary.BigEndian.Uint16(b)))
	} else {
		m.val = int(int32(binary.BigEndian.Uint32(b)))
	}
	if m.val < -1 {
		err = fmt.Errorf("%w: length %d", ErrMalformed, m.val)
	}
	return m, err
}

// advance moves behind the measured op.
func (w *Walker) advance(m extent) {
	w.left -= m.used
	o := w.s.ops[w.pc]
	if !w.known {
		for w.s.ops[w.pc].do != opTopics {
			w.pc++
		}
		o = w.s.ops[w.pc]
		w.growth += w.nameGrowth * max(m.val, 0)
		w.known = true
	}
	switch o.do {
	case opArray, opTopics:
		if m.val <= 0 {
			w.pc = o.n
		} else {
			w.counts[w.depth] = uint32(m.val)
			w.depth++
			w.pc++
		}
	case opTags, opEnd:
		if !w.inTags {
			w.inTags, w.tags = true, uint32(m.val)
		} else {
			w.tags--
			w.skip = m.val
		}
		if w.tags == 0 {
			w.inTags = false
			w.pc++
		}
	case opNodes:
		if w.pc++; m.used > 0 {
			w.pc, w.nodesAt = o.n, 0
		}
	default:
		w.skip = max(m.val, 0)
		w.pc++
		if (o.do == opName || o.do == opID) && w.depth == 1 {
			w.advanceTopic()
		}
	}
	for w.pc < len(w.s.ops) && w.s.ops[w.pc].do == opNext {
		if w.counts[w.depth-1]--; w.counts[w.depth-1] > 0 {
			w.pc = w.s.ops[w.pc].n
			if w.depth == 1 && w.topicLeft > 0 {
				w.edits.TopicSize(w.topicLeft - (w.left - w.skip))
			}
			break
		}
		w.depth--
		w.pc++
	}
}

// advanceTopic moves behind the name or id of a topic.
func (w *Walker) advanceTopic() {
	last, left := w.counts[0] == 1, w.left-w.skip
	if w.topicLeft = 0; w.edits.TopicSize != nil {
		if last {
			w.edits.TopicSize(left)
		} else {
			w.topicLeft = left
		}
	}
	if last && w.edits.Node == nil {
		w.pc, w.depth = len(w.s.ops), 0 // no edit follows
	}
}

// edit appends the replacement of b, the bytes of the current op.
func (w *Walker) edit(out, b []byte) ([]byte, error) {
	o := w.s.ops[w.pc]
	if !w.known {
		return w.editHead(out, b)
	}
	switch o.do {
	case opTxnID:
		return w.editString(out, b, w.edits.TransactionalID)
	case opName:
		if w.resizable {
			return w.editString(out, b, w.edits.Topic)
		}
		return w.editName(out, b)
	case opID:
		return append(out, w.id[:]...), nil // as measureID got it
	case opNodes:
		return w.editNodes(out, b)
	default: // opEnd
		if !w.inTags {
			return w.fillTags(out, b)
		}
		return w.editNodesTag(out, b)
	}
}

// editHead edits the transactional id and copies the rest of the head.
func (w *Walker) editHead(out, b []byte) ([]byte, error) {
	m, err := w.length(b, 2)
	if err != nil {
		return nil, err
	}
	n := m.used + max(m.val, 0)
	if m.val >= 0 {
		before := len(out)
		if out, err = w.editString(out, b[:n], w.edits.TransactionalID); err != nil {
			return nil, err
		}
		w.growth += len(out) - before - n
	} else {
		out = append(out, b[:n]...)
	}
	return append(out, b[n:]...), nil
}

// editString replaces a string with one of any length.
func (w *Walker) editString(out, b []byte, edit func(dst, s []byte) ([]byte, error)) ([]byte, error) {
	m, err := w.length(b, 2)
	if err != nil {
		return nil, err
	}
	s, err := edit(w.word[:0], b[m.used:])
	if err != nil {
		return nil, err
	}
	if len(s) > maxString {
		return nil, fmt.Errorf("string of %d bytes: %w", len(s), ErrTooLarge)
	}
	w.word = s[:0]
	return AppendString(out, s, w.s.flexible), nil
}

// editName replaces a name so that its encoding grows by the same number of
// bytes for every name: the varint of its length takes one byte more if names
// grow, and as many as before if they shrink.
func (w *Walker) editName(out, b []byte) ([]byte, error) {
	m, err := w.length(b, 2)
	if err != nil {
		return nil, err
	}
	name := b[m.used:]
	size := m.used
	if w.nameGrowth > 0 {
		size += w.nameGrowth - w.edits.TopicGrowth
	}
	at := len(out)
	out = append(out, 0, 0, 0, 0, 0, 0)[:at+size]
	if out, err = w.edits.Topic(out, name); err != nil {
		return nil, err
	}
	n := len(out) - at - size
	switch {
	case n != len(name)+w.edits.TopicGrowth:
		return nil, fmt.Errorf("a name of %d bytes became %d, expected a growth of %d", len(name), n, w.edits.TopicGrowth)
	case n > maxString || size > 5:
		return nil, fmt.Errorf("name of %d bytes: %w", n, ErrTooLarge)
	case w.s.flexible:
		if UvarintLen(uint32(n+1)) > size {
			return nil, fmt.Errorf("name of %d bytes: %w", n, ErrTooLarge)
		}
		AppendUvarintSize(out[:at], uint32(n+1), size)
	default:
		binary.BigEndian.PutUint16(out[at:], uint16(n))
	}
	return out, nil
}
