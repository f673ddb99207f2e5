package proxyproto

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// The fixed part of version 2 (section 2.2).
const (
	signature = "\r\n\r\n\x00\r\nQUIT\n"
	sizeFixed = 16 // signature, version and command, family and protocol, length
	version2  = 0x2

	commandLocal = 0x0
	commandProxy = 0x1

	familyUnspec  = 0x00
	familyTCP4    = 0x11
	familyTCP6    = 0x21
	familyUnix    = 0x31
	protocolDgram = 0x2
	maxFamily     = 0x3

	sizeTCP4 = 2*4 + 2*2
	sizeTCP6 = 2*16 + 2*2
	sizeUnix = 2 * 108
)

// parseV2 reads a binary header of at most limit bytes: MaxV2, or MaxMesh, with
// which it reads the TLVs of Mesh too.
func parseV2(b []byte, limit int) (h Header, n int, err error) {
	for i := range min(len(b), len(signature)) {
		if b[i] != signature[i] {
			return Header{}, 0, fmt.Errorf("%w: byte %d is 0x%02x", ErrNoHeader, i, b[i])
		}
	}
	command, addresses, err := checkFixed(b)
	if err != nil {
		return Header{}, 0, err
	}
	if len(b) < sizeFixed {
		return Header{}, len(b) + 1, ErrMore
	}
	n = sizeFixed + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case n > limit:
		return Header{}, 0, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLong, n, limit)
	case n < sizeFixed+addresses:
		return Header{}, 0, fmt.Errorf("%w: length %d, the addresses take %d", ErrMalformed, n-sizeFixed, addresses)
	case len(b) < n:
		return Header{}, n, ErrMore
	case command == commandLocal:
		return Header{Local: true}, n, nil
	}
	h.Source, h.Destination = readAddresses(b[13], b[sizeFixed:])
	if limit == MaxMesh {
		h.Mesh = new(Mesh)
	}
	if err = h.readTLVs(b[:n], sizeFixed+addresses); err != nil {
		return Header{}, 0, err
	}
	return h, n, nil
}

// checkFixed judges as much of the fixed part after the signature as is
// there. addresses is the size of the address block, 0 for LOCAL.
func checkFixed(b []byte) (command byte, addresses int, err error) {
	if len(b) <= 12 {
		return 0, 0, nil
	}
	if v := b[12] >> 4; v != version2 {
		return 0, 0, fmt.Errorf("%w: version %d", ErrUnsupported, v)
	}
	command = b[12] & 0xf
	if command > commandProxy {
		return 0, 0, fmt.Errorf("%w: command %d", ErrUnsupported, command)
	}
	if len(b) <= 13 || command == commandLocal { // LOCAL: the family is ignored
		return command, 0, nil
	}
	switch b[13] {
	case familyUnspec:
		return command, 0, nil
	case familyTCP4:
		return command, sizeTCP4, nil
	case familyTCP6:
		return command, sizeTCP6, nil
	case familyUnix:
		return command, sizeUnix, nil
	}
	if b[13]&0xf == protocolDgram && b[13]>>4 <= maxFamily {
		return 0, 0, fmt.Errorf("%w: datagrams (family and protocol 0x%02x)", ErrUnsupported, b[13])
	}
	return 0, 0, fmt.Errorf("%w: family and protocol 0x%02x", ErrUnsupported, b[13])
}

func readAddresses(family byte, b []byte) (src, dst netip.AddrPort) {
	switch family {
	case familyTCP4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.BigEndian.Uint16(b[8:])),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), binary.BigEndian.Uint16(b[10:]))
	case familyTCP6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), binary.BigEndian.Uint16(b[32:])),
			netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[16:])).Unmap(), binary.BigEndian.Uint16(b[34:]))
	}
	return src, dst
}

func appendV2(dst []byte, h Header) []byte {
	start := len(dst)
	if _, _, ok := h.addresses(); !ok {
		return append(append(dst, signature...), version2<<4|commandLocal, familyUnspec, 0, 0)
	}
	dst = h.appendTLVs(h.appendFixed(dst), start)
	setLength(dst, start)
	return dst
}

// appendFixed writes PROXY and the addresses, which are UNSPEC where h has none.
// setLength completes it.
func (h *Header) appendFixed(dst []byte) []byte {
	dst = append(dst, signature...)
	src, to, ok := h.addresses()
	if !ok {
		return append(dst, version2<<4|commandProxy, familyUnspec, 0, 0)
	}
	family := byte(familyTCP6)
	if src.Is4() {
		family = familyTCP4
	}
	dst = append(dst, version2<<4|commandProxy, family, 0, 0)
	dst = append(dst, src.AsSlice()...)
	dst = append(dst, to.AsSlice()...)
	dst = binary.BigEndian.AppendUint16(dst, h.Source.Port())
	return binary.BigEndian.AppendUint16(dst, h.Destination.Port())
}

// setLength writes the length of the header that begins at that byte and ends b.
func setLength(b []byte, start int) {
	binary.BigEndian.PutUint16(b[start+14:], uint16(len(b)-start-sizeFixed))
}
