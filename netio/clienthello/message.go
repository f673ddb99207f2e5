package clienthello

import "fmt"

// The extensions that are looked into.
const (
	extServerName = 0
	extALPN       = 16
	extECH        = 0xfe0d
)

// parseMessage reads a whole ClientHello message (RFC 8446, 4.1.2, which
// reads those of SSL 3.0 and TLS 1.0 as well), its header included.
func parseMessage(msg []byte) (Hello, error) {
	r := reader{b: msg, off: messageHeader}
	if !r.skip(2 + 32) { // legacy_version, random
		return Hello{}, r.fault("random cut off")
	}
	if id, ok := r.vec8(); !ok || len(id) > 32 {
		return Hello{}, r.fault("bad session id")
	}
	if suites, ok := r.vec16(); !ok || len(suites) < 2 || len(suites)%2 != 0 {
		return Hello{}, r.fault("bad cipher suites")
	}
	if methods, ok := r.vec8(); !ok || len(methods) == 0 {
		return Hello{}, r.fault("bad compression methods")
	}
	if r.rest() == 0 { // as before TLS 1.2: no extensions at all
		return Hello{}, nil
	}
	if size, ok := r.uint16(); !ok || size != r.rest() {
		return Hello{}, r.fault("extensions do not end with the message")
	}
	return parseExtensions(r)
}

// parseExtensions reads extensions up to the end of the message.
func parseExtensions(r reader) (h Hello, err error) {
	var seen typeSet
	for r.rest() > 0 {
		at := r.off
		kind, ok := r.uint16()
		if !ok {
			return Hello{}, r.fault("extension cut off")
		}
		data, ok := r.vec16()
		if !ok {
			return Hello{}, r.fault("extension %d cut off", kind)
		}
		if !seen.add(uint16(kind)) {
			r.off = at
			return Hello{}, r.fault("extension %d a second time", kind)
		}
		ext := reader{b: r.b[:r.off], off: r.off - len(data)}
		switch kind {
		case extServerName:
			h.ServerName, err = parseServerName(ext)
			h.HasServerName = true
		case extALPN:
			h.ALPN, err = parseALPN(ext)
		case extECH:
			h.ECH = true
		}
		if err != nil {
			return Hello{}, err
		}
	}
	return h, nil
}

// parseServerName reads the server_name extension (RFC 6066, 3). Its list may
// hold one name of each type in theory; host_name is the only type there is,
// and no client sends another: a list of two is someone hoping for a reader
// that takes the other one.
func parseServerName(r reader) (string, error) {
	if size, ok := r.uint16(); !ok || size != r.rest() {
		return "", r.fault("server name list does not end with its extension")
	}
	kind, ok := r.uint8()
	if !ok {
		return "", r.fault("empty server name list")
	}
	if kind != 0 {
		return "", r.fault("server name of type %d", kind)
	}
	name, ok := r.vec16()
	switch {
	case !ok:
		return "", r.fault("server name cut off")
	case len(name) == 0:
		return "", r.fault("empty server name")
	case r.rest() != 0:
		return "", r.fault("more than one server name")
	}
	return string(name), nil
}

// parseALPN reads the extension of that name (RFC 7301, 3.1). It goes over
// the list twice, so that the result is allocated once and only when valid.
func parseALPN(r reader) ([]string, error) {
	if size, ok := r.uint16(); !ok || size != r.rest() {
		return nil, r.fault("protocol list does not end with its extension")
	}
	if r.rest() == 0 {
		return nil, r.fault("empty protocol list")
	}
	list, count := r, 0
	for ; r.rest() > 0; count++ {
		if p, ok := r.vec8(); !ok || len(p) == 0 {
			return nil, r.fault("bad protocol in the list")
		}
	}
	protocols := make([]string, 0, count)
	for list.rest() > 0 {
		p, _ := list.vec8()
		protocols = append(protocols, protocolName(p))
	}
	return protocols, nil
}

// protocolName copies a protocol's name, those of nearly all clients without
// an allocation.
func protocolName(p []byte) string {
	switch string(p) {
	case "h2":
		return "h2"
	case "http/1.1":
		return "http/1.1"
	}
	return string(p)
}

// typeSet is the set of extension types seen. Real hellos have some twenty of
// them and cost nothing here; one with thousands costs a table, not a search
// through thousands for each.
type typeSet struct {
	low   uint64 // types below 64
	n     int
	few   [24]uint16 // the first n others
	table *[1 << 16 / 64]uint64
}

// add puts t into the set; false if it was there.
func (s *typeSet) add(t uint16) bool {
	if t < 64 {
		bit := uint64(1) << t
		fresh := s.low&bit == 0
		s.low |= bit
		return fresh
	}
	for _, u := range s.few[:s.n] {
		if u == t {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = t
		s.n++
		return true
	}
	if s.table == nil {
		s.table = new([1 << 16 / 64]uint64)
	}
	word, bit := &s.table[t/64], uint64(1)<<(t%64)
	fresh := *word&bit == 0
	*word |= bit
	return fresh
}

// reader takes a message apart; off is kept for what faults say.
type reader struct {
	b   []byte
	off int
}

func (r *reader) rest() int { return len(r.b) - r.off }

func (r *reader) fault(format string, args ...any) error {
	return fmt.Errorf("%w: %s (byte %d of the message)", ErrMalformed, fmt.Sprintf(format, args...), r.off)
}

func (r *reader) skip(n int) bool {
	if r.rest() < n {
		return false
	}
	r.off += n
	return true
}

func (r *reader) uint8() (int, bool) {
	if r.rest() < 1 {
		return 0, false
	}
	r.off++
	return int(r.b[r.off-1]), true
}

func (r *reader) uint16() (int, bool) {
	if r.rest() < 2 {
		return 0, false
	}
	r.off += 2
	return int(r.b[r.off-2])<<8 | int(r.b[r.off-1]), true
}

// vec8 reads a vector with a length of one byte.
func (r *reader) vec8() ([]byte, bool) {
	n, ok := r.uint8()
	if !ok || !r.skip(n) {
		return nil, false
	}
	return r.b[r.off-n : r.off], true
}

// vec16 reads a vector with a length of two bytes.
func (r *reader) vec16() ([]byte, bool) {
	n, ok := r.uint16()
	if !ok || !r.skip(n) {
		return nil, false
	}
	return r.b[r.off-n : r.off], true
}
