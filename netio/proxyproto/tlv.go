package proxyproto

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unicode/utf8"
)

// The types of TLVs that are looked at (section 2.2); others are skipped.
const (
	typeALPN      = 0x01
	typeAuthority = 0x02
	typeCRC32C    = 0x03
	typeUniqueID  = 0x05
	typeSSL       = 0x20

	// Inside SSL.
	typeSSLVersion = 0x21
	typeSSLCN      = 0x22
	typeSSLCipher  = 0x23
)

// The bits of the client byte of SSL (section 2.2.6).
const (
	clientSSL      = 0x01
	clientCertConn = 0x02 // a certificate was given on this connection
	clientCertSess = 0x04 // or on an earlier one of the session
)

const (
	sizeTLV = 3     // type, length
	sizeSSL = 1 + 4 // client, verify
	sizeCRC = 4
)

// tlvs walks over a vector of TLVs that ends with b.
type tlvs struct {
	b    []byte
	off  int
	seen uint64 // of types below 64
}

// next gives the next TLV; kind is -1 at the end. value aliases b.
func (t *tlvs) next() (kind int, value []byte, err error) {
	rest := t.b[t.off:]
	if len(rest) == 0 {
		return -1, nil, nil
	}
	if len(rest) < sizeTLV {
		return 0, nil, t.fault("TLV cut off after %d bytes", len(rest))
	}
	kind, size := int(rest[0]), int(rest[1])<<8|int(rest[2])
	if len(rest) < sizeTLV+size {
		return 0, nil, t.fault("TLV 0x%02x has %d bytes, %d are left", kind, size, len(rest)-sizeTLV)
	}
	switch kind {
	case typeALPN, typeAuthority, typeCRC32C, typeUniqueID, typeSSL, typeSSLVersion, typeSSLCN, typeSSLCipher:
		bit := uint64(1) << kind
		if t.seen&bit != 0 {
			return 0, nil, t.fault("TLV 0x%02x a second time", kind)
		}
		t.seen |= bit
	}
	t.off += sizeTLV + size
	return kind, rest[sizeTLV : sizeTLV+size], nil
}

func (t *tlvs) fault(format string, args ...any) error {
	return fmt.Errorf("%w: %s (byte %d)", ErrMalformed, fmt.Sprintf(format, args...), t.off)
}

// readTLVs reads those of the whole header b, from that byte on.
func (h *Header) readTLVs(b []byte, from int) error {
	t := tlvs{b: b, off: from}
	for {
		at := t.off
		kind, v, err := t.next()
		if err != nil || kind < 0 {
			return err
		}
		var fault string
		switch kind {
		case typeALPN:
			h.ALPN = string(v)
		case typeAuthority:
			h.Authority = string(v)
			if !utf8.Valid(v) {
				fault = "authority is not UTF-8"
			}
		case typeUniqueID:
			h.UniqueID = append(h.UniqueID, v...)
			if len(v) > MaxUniqueID {
				fault = fmt.Sprintf("unique id has %d bytes, limit %d", len(v), MaxUniqueID)
			}
		case typeCRC32C:
			fault = checkCRC(b, at+sizeTLV, v)
		case typeSSL:
			h.SSL, err = readSSL(b[:t.off], t.off-len(v))
			if err != nil {
				return err
			}
		case typeMeshIdentity, typeMeshTag, typeMeshService, typeMeshRoute, typeMeshFlags:
			if h.Mesh != nil {
				fault = h.Mesh.read(kind, v)
			}
		}
		if fault != "" {
			t.off = at
			return t.fault("%s", fault)
		}
	}
}

// checkCRC compares the sum v, which stands at that byte of the header b,
// with that of the header around it (section 2.2.3).
func checkCRC(b []byte, at int, v []byte) (fault string) {
	if len(v) != sizeCRC {
		return fmt.Sprintf("checksum has %d bytes, not %d", len(v), sizeCRC)
	}
	sum := sumCRC(b, at)
	if got := binary.BigEndian.Uint32(v); got != sum {
		return fmt.Sprintf("checksum is %08x, should be %08x", got, sum)
	}
	return ""
}

// sumCRC is the CRC32C of b with the sum's own field at that byte as zeros.
func sumCRC(b []byte, at int) uint32 {
	var zeros [sizeCRC]byte
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, b[:at])
	sum = crc32.Update(sum, table, zeros[:])
	return crc32.Update(sum, table, b[at+sizeCRC:])
}

// readSSL reads the value of an SSL TLV, which is b from that byte on. It
// gives nil where the client did not use TLS.
func readSSL(b []byte, from int) (*SSL, error) {
	t := tlvs{b: b, off: from}
	if len(b)-from < sizeSSL {
		return nil, t.fault("SSL has %d bytes, at least %d are due", len(b)-from, sizeSSL)
	}
	client, verify := b[from], binary.BigEndian.Uint32(b[from+1:])
	cert := client&(clientCertConn|clientCertSess) != 0
	s := &SSL{
		ClientCert: cert,
		Verified:   cert && verify == 0,
		Resumed:    cert && client&clientCertConn == 0,
	}
	t.off += sizeSSL
	for {
		at := t.off
		kind, v, err := t.next()
		if err != nil {
			return nil, err
		}
		bad := false
		switch kind {
		case -1:
			if client&clientSSL == 0 {
				return nil, nil
			}
			if s.Version == "" {
				return nil, t.fault("SSL has no version")
			}
			return s, nil
		case typeSSLVersion:
			s.Version, bad = string(v), !isASCII(v)
		case typeSSLCipher:
			s.Cipher, bad = string(v), !isASCII(v)
		case typeSSLCN:
			s.CommonName, bad = string(v), !utf8.Valid(v)
		}
		if bad {
			t.off = at
			return nil, t.fault("SSL TLV 0x%02x is no text", kind)
		}
	}
}

// isASCII says whether v is printable ASCII.
func isASCII[T string | []byte](v T) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return false
		}
	}
	return true
}

// appendTLVs writes those of h to the header that begins at that byte.
func (h *Header) appendTLVs(dst []byte, start int) []byte {
	if utf8.ValidString(h.Authority) {
		dst = appendTLV(dst, start, typeAuthority, h.Authority)
	}
	dst = appendTLV(dst, start, typeALPN, h.ALPN)
	if len(h.UniqueID) <= MaxUniqueID {
		dst = appendTLV(dst, start, typeUniqueID, h.UniqueID)
	}
	for _, t := range h.Custom {
		if t.Type >= MinCustom && t.Type <= MaxCustom {
			dst = appendTLV(dst, start, t.Type, t.Value)
		}
	}
	if h.SSL == nil || h.SSL.Version == "" || !isASCII(h.SSL.Version) {
		return dst
	}
	at := len(dst)
	if at-start+sizeTLV+sizeSSL+sizeTLV+len(h.SSL.Version) > MaxV2 {
		return dst
	}
	dst = append(dst, typeSSL, 0, 0)
	dst = h.SSL.append(dst, start)
	binary.BigEndian.PutUint16(dst[at+1:], uint16(len(dst)-at-sizeTLV))
	return dst
}

func (s *SSL) append(dst []byte, start int) []byte {
	client, verify := byte(clientSSL), uint32(1)
	if s.ClientCert {
		client |= clientCertSess
		if !s.Resumed {
			client |= clientCertConn
		}
		if s.Verified {
			verify = 0
		}
	}
	dst = binary.BigEndian.AppendUint32(append(dst, client), verify)
	dst = appendTLV(dst, start, typeSSLVersion, s.Version)
	if utf8.ValidString(s.CommonName) {
		dst = appendTLV(dst, start, typeSSLCN, s.CommonName)
	}
	if isASCII(s.Cipher) {
		dst = appendTLV(dst, start, typeSSLCipher, s.Cipher)
	}
	return dst
}

// appendTLV writes one TLV, unless it is empty or the header that begins at
// that byte would become too long.
func appendTLV[T string | []byte](dst []byte, start int, kind byte, v T) []byte {
	if len(v) == 0 || len(dst)-start+sizeTLV+len(v) > MaxV2 {
		return dst
	}
	dst = append(dst, kind, byte(len(v)>>8), byte(len(v)))
	return append(dst, v...)
}
