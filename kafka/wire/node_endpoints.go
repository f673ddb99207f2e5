package wire

import "fmt"

// Node endpoints (KIP-951) are at the end of a message whose length is sent
// before its first byte. So edited endpoints must take exactly as many bytes as
// before: endpoints that do not fit are left out, and the free bytes are filled
// by the first of these that can:
//
//   - the varint of their count, which may be up to four bytes longer;
//   - an unknown tag on the last endpoint;
//   - if no endpoint is left, an unknown tag in place of theirs, or among those
//     of the message.
//
// A client that misses an endpoint requests Metadata, as it does without
// KIP-951.

// padTag is a tag without a meaning in Kafka. Its varint takes one byte.
const padTag = 127

// node is one endpoint as encoded in an array.
type node struct {
	id   int32
	host []byte
	port int32
	rack []byte // nullable string including its length
	tags []byte // including their count
}

func readNode(r *Reader) (n node) {
	n.id = r.Int32()
	n.host, _ = r.String()
	n.port = r.Int32()
	from := r.at
	r.String()
	n.rack = r.b[from:r.at]
	n.tags = r.Tags()
	return n
}

func (n *node) size() int {
	return 4 + UvarintLen(uint32(len(n.host)+1)) + len(n.host) + 4 + len(n.rack) + len(n.tags)
}

func (n *node) append(dst []byte) []byte {
	dst = AppendInt32(dst, n.id)
	dst = AppendString(dst, n.host, true)
	dst = AppendInt32(dst, n.port)
	dst = append(dst, n.rack...)
	return append(dst, n.tags...)
}

// fill adds an unknown tag of size bytes, at least 5.
func (n *node) fill(size int) bool {
	count, k, err := uvarint(n.tags)
	if k == 0 || err != nil || UvarintLen(count+1) > k {
		return false
	}
	tags := AppendUvarintSize(make([]byte, 0, len(n.tags)+size), count+1, k)
	tags = append(tags, n.tags[k:]...)
	n.tags = appendPadTag(tags, padTag, size)
	return true
}

// appendPadTag appends a tag of zeroes that takes size bytes, at least 5.
func appendPadTag(dst []byte, id uint32, size int) []byte {
	k := 1
	if size > 2+127 {
		k = 4 // enough for MaxHeld and more
	}
	dst = AppendUvarint(dst, id)
	dst = AppendUvarintSize(dst, uint32(size-1-k), k)
	return append(dst, make([]byte, size-1-k)...)
}

// measureNodes finds the end of an array of endpoints. It continues where the
// last call stopped, so that an array in many pieces is not parsed again with
// each.
func (w *Walker) measureNodes(b []byte) (extent, error) {
	r := partialReader{b: b, at: w.nodesAt}
	if r.at == 0 {
		if w.nodes = r.uvarint(); !r.ok() {
			return extent{need: len(b) + 1}, r.err
		}
		w.hasNodes = w.nodes > 1
		w.nodesAt = r.at
	}
	for ; w.nodes > 1; w.nodes-- {
		r.skip(4)
		r.skip(max(int(r.uvarint())-1, 0))
		r.skip(4)
		r.skip(max(int(r.uvarint())-1, 0))
		for t := r.uvarint(); t > 0 && r.ok(); t-- {
			r.uvarint()
			r.skip(int(r.uvarint()))
		}
		if !r.ok() {
			return extent{need: max(r.at, len(b)+1)}, r.err
		}
		w.nodesAt = r.at
	}
	return extent{used: r.at, edit: w.hasNodes}, nil
}

// partialReader parses a structure whose end may not have arrived yet.
type partialReader struct {
	b   []byte
	at  int // beyond len(b): the number of bytes needed
	err error
}

func (r *partialReader) ok() bool { return r.at <= len(r.b) && r.err == nil }

func (r *partialReader) skip(n int) {
	if r.ok() {
		r.at += n
	}
}

func (r *partialReader) uvarint() uint32 {
	if !r.ok() {
		return 0
	}
	u, n, err := uvarint(r.b[r.at:])
	if n == 0 {
		r.err, r.at = err, len(r.b)+1
	}
	r.at += n
	return u
}

// editNodes edits an array of endpoints.
func (w *Walker) editNodes(out, b []byte) ([]byte, error) {
	nodes, err := w.mapNodes(b)
	if err != nil {
		return nil, err
	}
	if w.resizable {
		return appendNodes(out, nodes, 1), nil
	}
	if nodes, size := fitNodes(nodes, len(b)); len(nodes) > 0 {
		return appendNodes(out, nodes, size), nil
	}
	size := min(5, len(b))
	w.pad = len(b) - size
	return AppendUvarintSize(out, 1, size), nil
}

// editNodesTag edits b, the tag that contains the endpoints.
func (w *Walker) editNodesTag(out, b []byte) ([]byte, error) {
	r := NewReader(b, true)
	r.Uvarint()
	r.Uvarint()
	head, body := b[:r.at], r.Rest()
	nodes, err := w.mapNodes(body)
	if err != nil {
		return nil, err
	}
	if w.resizable {
		return AppendTag(out, 0, appendNodes(nil, nodes, 1)), nil
	}
	if nodes, size := fitNodes(nodes, len(body)); len(nodes) > 0 {
		return appendNodes(append(out, head...), nodes, size), nil
	}
	_, k, err := uvarint(head) // the varint of the tag's id need not be minimal
	if err != nil {
		return nil, err
	}
	out = AppendUvarintSize(out, padTag, k)
	out = append(out, head[k:]...)
	return append(out, make([]byte, len(body))...), nil
}

// fillTags fills the bytes that endpoints left over; b is the count of the
// message's tags.
func (w *Walker) fillTags(out, b []byte) ([]byte, error) {
	count, k, err := uvarint(b)
	if err != nil {
		return nil, err
	}
	pad := w.pad
	w.pad = 0
	if k+pad <= 5 {
		return AppendUvarintSize(out, count, k+pad), nil
	}
	if pad < 5 { // k > 1: the count is not minimal, so its varint has room
		return nil, fmt.Errorf("%w: tag count in %d bytes", ErrMalformed, k)
	}
	if UvarintLen(count+1) > k {
		return nil, fmt.Errorf("%d tags: %w", count, ErrTooLarge)
	}
	out = AppendUvarintSize(out, count+1, k)
	return appendPadTag(out, padTag, pad), nil
}

// mapNodes parses an array of endpoints and returns those that clients may see,
// with their new addresses.
func (w *Walker) mapNodes(b []byte) ([]node, error) {
	r := NewReader(b, true)
	var nodes []node
	for range r.Array() {
		n := readNode(&r)
		if r.err != nil {
			break
		}
		host, port, ok, err := w.edits.Node(n.id, string(n.host), n.port)
		if err != nil {
			return nil, err
		}
		if ok {
			n.host, n.port = []byte(host), port
			nodes = append(nodes, n)
		} else {
			w.hidden++
		}
	}
	if r.err == nil && len(r.Rest()) > 0 {
		r.Fail(fmt.Errorf("%w: %d bytes after node endpoints", ErrMalformed, len(r.Rest())))
	}
	return nodes, r.err
}

// fitNodes returns as many endpoints as fit into room bytes, filled so that they
// and the varint of their count, of size bytes, take exactly that many.
func fitNodes(nodes []node, room int) (fit []node, size int) {
	total := 0
	for i := range nodes {
		if k := nodes[i].size(); UvarintLen(uint32(len(fit)+2))+total+k <= room {
			fit = append(fit, nodes[i])
			total += k
		}
	}
	if len(fit) == 0 {
		return nil, 0
	}
	size = UvarintLen(uint32(len(fit) + 1))
	gap := room - size - total
	if size+gap <= 5 {
		return fit, size + gap
	}
	if gap >= 5 && fit[len(fit)-1].fill(gap) {
		return fit, size
	}
	return nil, 0
}

// appendNodes appends endpoints after their count in a varint of at least size bytes.
func appendNodes(dst []byte, nodes []node, size int) []byte {
	count := uint32(len(nodes) + 1)
	dst = AppendUvarintSize(dst, count, max(size, UvarintLen(count)))
	for i := range nodes {
		dst = nodes[i].append(dst)
	}
	return dst
}
