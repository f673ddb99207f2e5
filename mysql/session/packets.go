package session

import (
	"encoding/binary"

	"penstock/mysql/wire"
)

// peek is how many bytes of a payload may be looked at: those of an OK packet up to its
// status.
const peek = 1 + 9 + 9 + 2

// packets finds the headers in one direction of bytes. A packet is told once its header
// and the first bytes of its payload have come; the rest passes.
type packets struct {
	left      uint32 // bytes that are still to come of the packet that was told
	n         uint8  // bytes in head
	continued bool   // the next packet goes on with the payload of this one
	head      [wire.HeaderSize + peek]byte
}

// next takes bytes of p up to the end of the next packet's beginning, or all. It returns
// the payload's first bytes and its length where a packet has begun that is no
// continuation of the one before; the payload's length is -1 where none has.
func (d *packets) next(p []byte) (first []byte, length int, seq byte, rest []byte) {
	for len(p) > 0 {
		if d.left > 0 {
			n := min(uint32(len(p)), d.left)
			d.left -= n
			p = p[n:]
			continue
		}
		head, rest := d.beginning(p)
		p = rest
		if head == nil {
			continue
		}
		length, seq := wire.ParseHeader(head)
		d.left = uint32(length - (len(head) - wire.HeaderSize))
		was := d.continued
		d.continued = length == wire.MaxPayload
		if !was {
			return head[wire.HeaderSize:], length, seq, p
		}
	}
	return nil, -1, 0, nil
}

// skipRows passes over what is left of a packet at the start of p, and over packets behind
// it that are whole and that can only be rows where rows are expected: a large result is
// nearly all such packets. It returns the number of the last one, or seq, and the bytes
// behind, of which next is to be asked.
func (d *packets) skipRows(p []byte, seq byte) (last byte, rest []byte) {
	if d.n > 0 || d.continued {
		return seq, p
	}
	n := min(uint32(len(p)), d.left)
	d.left -= n
	p = p[n:]
	for len(p) > wire.HeaderSize {
		head := binary.LittleEndian.Uint32(p)
		length := int(head & wire.MaxPayload)
		// From 0xfe on a payload ends the rows, or is for others to tell.
		if length == wire.MaxPayload || length > len(p)-wire.HeaderSize || p[wire.HeaderSize] >= 0xfe {
			break
		}
		seq, p = byte(head>>24), p[wire.HeaderSize+length:]
	}
	return seq, p
}

// begun reports whether bytes are still to come of a packet that was told, or one that
// continues it.
func (d *packets) begun() bool { return d.left > 0 || d.continued }

// finish takes the bytes of the packet that was told, with all that continues it, and
// returns those behind.
func (d *packets) finish(p []byte) []byte {
	for len(p) > 0 && d.begun() {
		if d.left > 0 {
			n := min(uint32(len(p)), d.left)
			d.left -= n
			p = p[n:]
			continue
		}
		var head []byte
		if head, p = d.beginning(p); head != nil {
			length, _ := wire.ParseHeader(head)
			d.left, d.continued = uint32(length-(len(head)-wire.HeaderSize)), length == wire.MaxPayload
		}
	}
	return p
}

// beginning returns the header and the first bytes of a packet, in place where p has
// them; nil: there are not enough yet.
func (d *packets) beginning(p []byte) (head, rest []byte) {
	if d.n == 0 && len(p) >= wire.HeaderSize {
		length, _ := wire.ParseHeader(p)
		if need := wire.HeaderSize + min(length, peek); len(p) >= need {
			return p[:need], p[need:]
		}
	}
	for len(p) > 0 {
		need := wire.HeaderSize
		if d.n >= wire.HeaderSize {
			length, _ := wire.ParseHeader(d.head[:])
			need += min(length, peek)
		}
		n := copy(d.head[d.n:need], p)
		d.n += uint8(n)
		p = p[n:]
		if int(d.n) < need || need == wire.HeaderSize && d.hasPayload() {
			continue
		}
		d.n = 0
		return d.head[:need], p
	}
	return nil, nil
}

// hasPayload reports whether the header in head announces bytes.
func (d *packets) hasPayload() bool {
	length, _ := wire.ParseHeader(d.head[:])
	return length > 0
}

// between reports whether the last packet that has begun is whole, with all that continues it.
func (d *packets) between() bool { return d.left == 0 && d.n == 0 && !d.continued }
