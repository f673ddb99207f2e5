package clienthello

import "fmt"

// The record layer (RFC 8446, 5.1) and the header of a handshake message (4).
const (
	recordHeader     = 5 // type, version (2), length (2)
	messageHeader    = 4 // type, length (3)
	typeHandshake    = 22
	typeClientHello  = 1
	firstContentType = 20 // change_cipher_spec
	lastContentType  = 24 // heartbeat
)

// assemble finds the handshake message in the records of b, header included.
// A message that fits in one record is not copied. n is the end of its last
// record, or with ErrMore the length needed to know more.
func assemble(b []byte) (msg []byte, n int, err error) {
	var (
		head [messageHeader]byte // of the message, as far as it came
		got  int                 // bytes of the message in the records before pos
	)
	for pos := 0; ; {
		size, err := checkRecord(b, pos)
		if err != nil {
			return nil, 0, err
		}
		if size < 0 {
			return nil, len(b) + 1, ErrMore
		}
		body, end := pos+recordHeader, pos+recordHeader+size
		if end > MaxSize {
			return nil, 0, fmt.Errorf("%w: record at byte %d ends at %d, limit %d", ErrTooLong, pos, end, MaxSize)
		}
		have := b[body:min(end, len(b))]
		if got < messageHeader {
			copy(head[got:], have)
		}
		got += size
		known := got - size + len(have)
		want, err := checkMessage(head, known, got, end)
		switch {
		case err != nil:
			return nil, 0, err
		case len(have) < size && known < messageHeader:
			return nil, len(b) + 1, ErrMore
		case len(have) < size:
			return nil, end, ErrMore
		case known >= messageHeader && got == want && pos == 0:
			return have, end, nil
		case known >= messageHeader && got == want:
			return join(b[:end], want), end, nil
		}
		pos = end
	}
}

// checkRecord judges as much of the record header at pos as is there. It
// returns the size of the record's content, or -1 while that is not known.
func checkRecord(b []byte, pos int) (size int, err error) {
	h := b[min(pos, len(b)):]
	first := pos == 0
	if len(h) > 0 && h[0] != typeHandshake {
		switch {
		case !first:
			return 0, fmt.Errorf("%w: record of type %d at byte %d, inside the hello", ErrMalformed, h[0], pos)
		case h[0] >= firstContentType && h[0] <= lastContentType:
			return 0, fmt.Errorf("%w: record of type %d before the hello", ErrMalformed, h[0])
		case h[0]&0x80 != 0:
			return 0, fmt.Errorf("%w: first byte 0x%02x, as in SSLv2", ErrNotTLS, h[0])
		}
		return 0, fmt.Errorf("%w: first byte 0x%02x", ErrNotTLS, h[0])
	}
	// The minor version says nothing: clients write 1, 3 or what they like.
	if len(h) > 1 && h[1] != 3 {
		if first {
			return 0, fmt.Errorf("%w: record version %d at byte 1", ErrNotTLS, h[1])
		}
		return 0, fmt.Errorf("%w: record version %d at byte %d", ErrMalformed, h[1], pos+1)
	}
	if len(h) < recordHeader {
		return -1, nil
	}
	size = int(h[3])<<8 | int(h[4])
	if size == 0 {
		return 0, fmt.Errorf("%w: empty record at byte %d", ErrMalformed, pos)
	}
	return size, nil
}

// checkMessage judges the message's header, of which the first known bytes
// are there, against the records: got bytes of the message are in the records
// up to byte end. want is the size of the whole message once the header is
// known, before that a lower bound.
func checkMessage(head [messageHeader]byte, known, got, end int) (want int, err error) {
	if known > 0 && head[0] != typeClientHello {
		return 0, fmt.Errorf("%w: handshake message of type %d", ErrMalformed, head[0])
	}
	want = messageHeader + int(head[1])<<16 + int(head[2])<<8 + int(head[3])
	whole := end - got + want // the record headers so far, and the message
	if want > got {
		whole += recordHeader
	}
	if whole > MaxSize {
		return 0, fmt.Errorf("%w: %d bytes with record headers, limit %d", ErrTooLong, whole, MaxSize)
	}
	if known >= messageHeader && got > want {
		// A hello ends its record, as keys may change after it (5.1).
		return 0, fmt.Errorf("%w: %d bytes follow the hello in its record, which ends at byte %d", ErrMalformed, got-want, end)
	}
	return want, nil
}

// join copies a message of that size out of the checked records in b.
func join(b []byte, size int) []byte {
	msg := make([]byte, 0, size)
	for len(b) > 0 {
		end := recordHeader + int(b[3])<<8 + int(b[4])
		msg = append(msg, b[recordHeader:end]...)
		b = b[end:]
	}
	return msg
}
