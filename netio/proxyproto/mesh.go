package proxyproto

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mesh is what a node of the mesh tells another one about a client, in TLVs of the
// range that the specification leaves to applications (section 2.2). Only
// ParseMesh reads them, and only AppendMesh writes them. Whoever believes them
// has verified the sender first: everything in them is the sender's claim.
//
//	type  value
//	0xE1  SPIFFE ID that the client has proven
//	0xE2  one tag of the client, "name=value"; repeated
//	0xE3  service that the sender chose
//	0xE4  route by which it came to that: "listener/destination"
//	0xE5  flags, one byte: 1: see Undecided
//
// The header's UniqueID names the connection in the logs of both sides.
type Mesh struct {
	SPIFFEID string // "": the client has proven none
	// Undecided: the client has proven something from which no single SPIFFE ID
	// follows. SPIFFEID is "" then.
	Undecided bool
	Tags      map[string]string // at most MaxMeshTags; nil: none
	Service   string            // never empty
	Route     string
}

// The bounds on a header with Mesh.
const (
	// MaxMesh bounds the header in bytes, its first 16 included.
	MaxMesh = 16 << 10
	// MaxMeshTags bounds the number of tags.
	MaxMeshTags = 128
)

// The types of the TLVs of Mesh, and the bits of its flags.
const (
	typeMeshIdentity = 0xE1
	typeMeshTag      = 0xE2
	typeMeshService  = 0xE3
	typeMeshRoute    = 0xE4
	typeMeshFlags    = 0xE5

	meshUndecided = 0x01
)

// ErrMesh means that the TLVs of Mesh are missing or contradict each other.
var ErrMesh = errors.New("PROXY header without what the mesh needs")

// ParseMesh is Parse for a header of version 2 with TLVs of Mesh, of at most
// MaxMesh bytes; Header.Mesh is never nil without an error. A header of version 1,
// or with the command LOCAL, has none and is refused.
func ParseMesh(b []byte) (h Header, n int, err error) {
	h, n, err = parseV2(b, MaxMesh)
	switch {
	case err != nil:
		return Header{}, n, err
	case h.Local:
		return Header{}, 0, fmt.Errorf("%w: the command is LOCAL", ErrMesh)
	case h.Mesh == nil || h.Mesh.Service == "":
		return Header{}, 0, fmt.Errorf("%w: no service", ErrMesh)
	case h.Mesh.Undecided && h.Mesh.SPIFFEID != "":
		return Header{}, 0, fmt.Errorf("%w: an undecided identity with a SPIFFE ID", ErrMesh)
	}
	return h, n, nil
}

// AppendMesh appends h with its Mesh in version 2. Unlike Append it leaves nothing
// out: a tag that is missing could turn a denial into a permission. It fails with
// ErrTooLong where MaxMesh or MaxMeshTags are exceeded, and with ErrMesh where a
// value could not be read again. Without addresses the family is UNSPEC.
func AppendMesh(dst []byte, h Header) ([]byte, error) {
	m := h.Mesh
	if m == nil || m.Service == "" || m.Undecided && m.SPIFFEID != "" {
		return dst, fmt.Errorf("%w: no service, or an undecided identity with a SPIFFE ID", ErrMesh)
	}
	if len(m.Tags) > MaxMeshTags {
		return dst, fmt.Errorf("%w: %d tags, limit %d", ErrTooLong, len(m.Tags), MaxMeshTags)
	}
	start := len(dst)
	h.Local = false
	out := h.appendFixed(dst)
	out = h.appendTLVs(out, start)
	out, err := m.append(out)
	if err != nil {
		return dst, err
	}
	if n := len(out) - start; n > MaxMesh {
		return dst, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLong, n, MaxMesh)
	}
	setLength(out, start)
	return out, nil
}

func (m *Mesh) append(dst []byte) ([]byte, error) {
	var fault error
	put := func(kind byte, v string) {
		if v == "" {
			return
		}
		if len(v) > MaxMesh || !meshText(v) {
			fault = fmt.Errorf("%w: TLV 0x%02x cannot hold %.80q", ErrMesh, kind, v)
			return
		}
		dst = append(dst, kind, byte(len(v)>>8), byte(len(v)))
		dst = append(dst, v...)
	}
	put(typeMeshIdentity, m.SPIFFEID)
	for _, name := range slices.Sorted(maps.Keys(m.Tags)) {
		if name == "" || strings.Contains(name, "=") {
			return dst, fmt.Errorf("%w: a tag cannot be called %.80q", ErrMesh, name)
		}
		put(typeMeshTag, name+"="+m.Tags[name])
	}
	put(typeMeshService, m.Service)
	put(typeMeshRoute, m.Route)
	if m.Undecided {
		dst = append(dst, typeMeshFlags, 0, 1, meshUndecided)
	}
	return dst, fault
}

// read takes the value of one TLV. It returns what is wrong with it, or "".
func (m *Mesh) read(kind int, v []byte) (fault string) {
	if kind == typeMeshFlags {
		if len(v) != 1 || v[0] != meshUndecided || m.Undecided {
			return "flags are unknown, empty or repeated"
		}
		m.Undecided = true
		return ""
	}
	text := string(v)
	if !meshText(text) {
		return "text is empty, not UTF-8 or has control characters"
	}
	if kind == typeMeshTag {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := m.Tags[name]; !ok || name == "" || twice {
			return "tag is not name=value, or comes twice"
		}
		if len(m.Tags) == MaxMeshTags {
			return fmt.Sprintf("more than %d tags", MaxMeshTags)
		}
		if m.Tags == nil {
			m.Tags = map[string]string{}
		}
		m.Tags[name] = value
		return ""
	}
	field := map[int]*string{typeMeshIdentity: &m.SPIFFEID, typeMeshService: &m.Service, typeMeshRoute: &m.Route}[kind]
	if *field != "" {
		return "comes twice"
	}
	*field = text
	return ""
}

// meshText says whether s is text that a log line can show.
func meshText(s string) bool {
	return s != "" && utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}
