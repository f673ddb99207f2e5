package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// MaxHeader bounds the header of a message in bytes, its size included. Client
// ids have 32,767 bytes at most.
const MaxHeader = 64 << 10

// RequestHeader is the header of a request.
type RequestHeader struct {
	// Size is the frame's length without its own four bytes, as sent.
	Size         int32
	Key, Version int16
	Correlation  int32
	// ClientID is a view of the header; nil if the client sent none.
	ClientID []byte
	// HeaderLen is the offset of the body, counted from the first byte of the size.
	HeaderLen int
}

// BodyLen returns the number of bytes behind the header.
func (h *RequestHeader) BodyLen() int { return 4 + int(h.Size) - h.HeaderLen }

// FrameLen returns the length of the whole frame, its size included.
func (h *RequestHeader) FrameLen() int { return 4 + int(h.Size) }

// PeekRequest reads the header of the request at the beginning of p, which
// starts with its size. If it needs more than len(p) bytes, need is how many,
// and of h only Size may be used, -1 if it is not known yet: a caller can check
// it before waiting for more. A size that is too small for a request is an
// error.
//
// The client id of a flexible header is not compact, and ControlledShutdown v0
// has none. Tags of the header are skipped.
func PeekRequest(p []byte) (h RequestHeader, need int, err error) {
	h.Size = -1
	if len(p) < 4 {
		return h, 4, nil
	}
	size := int32(binary.BigEndian.Uint32(p))
	if size < 8 {
		return h, 0, fmt.Errorf("%w: request of %d bytes, the minimum is 8", ErrMalformed, size)
	}
	h.Size = size
	if len(p) < 12 {
		return h, 12, nil
	}
	h.Key = int16(binary.BigEndian.Uint16(p[4:]))
	h.Version = int16(binary.BigEndian.Uint16(p[6:]))
	h.Correlation = int32(binary.BigEndian.Uint32(p[8:]))
	h.HeaderLen = 12
	if h.Key == keyControlledShutdown && h.Version == 0 {
		return h, 0, nil
	}
	frame := h.FrameLen()
	if frame < 14 {
		return h, 0, fmt.Errorf("%w: request of %d bytes without a client id", ErrMalformed, size)
	}
	if len(p) < 14 {
		return h, 14, nil
	}
	n := int(int16(binary.BigEndian.Uint16(p[12:])))
	h.HeaderLen = 14 + max(n, 0)
	switch {
	case n < -1 || h.HeaderLen > frame:
		return h, 0, fmt.Errorf("%w: client id of %d bytes in a request of %d", ErrMalformed, n, size)
	case len(p) < h.HeaderLen:
		return h, h.HeaderLen, nil
	case n >= 0:
		h.ClientID = p[14:h.HeaderLen:h.HeaderLen]
	}
	if !Flexible(h.Key, h.Version) {
		return h, 0, nil
	}
	h.HeaderLen, need, err = skipTags(p, h.HeaderLen, frame)
	return h, need, err
}

// PeekResponse reads the size and the correlation id at the beginning of a
// response. need is as in PeekRequest; size is -1 until it is known.
func PeekResponse(p []byte) (size, correlation int32, need int, err error) {
	if len(p) < 4 {
		return -1, 0, 4, nil
	}
	size = int32(binary.BigEndian.Uint32(p))
	if size < 4 {
		return -1, 0, 0, fmt.Errorf("%w: response of %d bytes, the minimum is 4", ErrMalformed, size)
	}
	if len(p) < 8 {
		return size, 0, 8, nil
	}
	return size, int32(binary.BigEndian.Uint32(p[4:])), 0, nil
}

// ResponseHeaderLen returns the offset of the body of the response at the
// beginning of p, counted from the first byte of the size. need is as in
// PeekRequest.
func ResponseHeaderLen(p []byte, key, version int16) (n, need int, err error) {
	if !ResponseTags(key, version) {
		return 8, 0, nil
	}
	if len(p) < 8 {
		return 0, 8, nil
	}
	return skipTags(p, 8, 4+int(int32(binary.BigEndian.Uint32(p))))
}

// ResponseTags reports whether the header of a response has tags. That of
// ApiVersions never has.
func ResponseTags(key, version int16) bool {
	return key != keyAPIVersions && Flexible(key, version)
}

// AppendResponseHeader appends the size and the header, without tags, of a
// response whose body has the given length.
func AppendResponseHeader(dst []byte, key, version int16, correlation int32, body int) []byte {
	tags := ResponseTags(key, version)
	size := 4 + body
	if tags {
		size++
	}
	dst = AppendInt32(dst, int32(size))
	dst = AppendInt32(dst, correlation)
	if tags {
		dst = append(dst, 0)
	}
	return dst
}

// AppendRequestHeader appends the size and the header, without tags, of a
// request whose body has the given length. It is for requests of the proxy
// itself.
func AppendRequestHeader(dst []byte, key, version int16, correlation int32, clientID string, body int) []byte {
	tags := Flexible(key, version)
	size := 10 + len(clientID) + body
	if tags {
		size++
	}
	dst = AppendInt32(dst, int32(size))
	dst = AppendInt16(dst, key)
	dst = AppendInt16(dst, version)
	dst = AppendInt32(dst, correlation)
	dst = AppendString(dst, clientID, false)
	if tags {
		dst = append(dst, 0)
	}
	return dst
}

// skipTags skips the tags at p[at:], which must end before end.
func skipTags(p []byte, at, end int) (next, need int, err error) {
	read := func() (uint32, bool) {
		u, n, fault := uvarint(p[at:min(len(p), end)])
		if fault != nil {
			err = fault
		} else if n == 0 {
			need = len(p) + 1
		}
		at += n
		return u, n > 0
	}
	count, ok := read()
	for ; ok && count > 0; count-- {
		if _, ok = read(); !ok {
			break
		}
		var size uint32
		if size, ok = read(); !ok {
			break
		}
		if int64(size) > int64(end-at) {
			return at, 0, fmt.Errorf("%w: tag of %d bytes in a header, %d left", ErrMalformed, size, end-at)
		}
		if at += int(size); at > len(p) {
			need, ok = at, false
		}
	}
	switch {
	case err != nil:
		return at, 0, err
	case need > end:
		return at, 0, fmt.Errorf("%w: header longer than its message of %d bytes", ErrMalformed, end-4)
	case max(at, need) > MaxHeader:
		return at, 0, fmt.Errorf("header %w: the limit is %d bytes", ErrTooLarge, MaxHeader)
	}
	return at, need, nil
}

// GuessProtocol returns the protocol that bytes seem to be instead of Kafka:
// "http", "tls", "ssh", or "" if unknown. It is for the log.
func GuessProtocol(p []byte) string {
	if len(p) >= 3 && p[0] >= 0x14 && p[0] <= 0x17 && p[1] == 3 && p[2] <= 4 {
		return "tls"
	}
	for _, method := range []string{"GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI "} {
		if bytes.HasPrefix(p, []byte(method)) {
			return "http"
		}
	}
	if bytes.HasPrefix(p, []byte("SSH-")) {
		return "ssh"
	}
	return ""
}
