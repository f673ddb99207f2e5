package trace

import (
	"encoding/hex"
	"slices"
	"strings"
)

// The names of the headers of W3C's Trace Context, as Go writes names of headers.
const (
	HeaderParent = "Traceparent"
	HeaderState  = "Tracestate"
)

// FlagRandom is the bit of the flags that says that the last 7 bytes of the trace ID are
// random (Trace Context, level 2).
const FlagRandom = 2

// Context is what a caller says about its trace: a place in it, and what tracing systems
// on the way have added. The zero value is no context.
type Context struct {
	TraceID ID
	SpanID  SpanID // the caller's
	Flags   byte   // FlagSampled, FlagRandom; others are reserved, and left out
	State   string // of the header tracestate; "": none
}

// Valid reports whether there is a context.
func (c *Context) Valid() bool { return c.TraceID != ID{} }

// Sampled reports whether the caller has sampled the trace.
func (c *Context) Sampled() bool { return c.Flags&FlagSampled != 0 }

// The lengths of a traceparent of version 00: version, trace ID, span ID and flags.
const (
	parentLength = 2 + 1 + 32 + 1 + 16 + 1 + 2
	idAt         = 3
	spanAt       = idAt + 32 + 1
	flagsAt      = spanAt + 16 + 1
)

// Parse returns the context in the values of a request's headers traceparent and
// tracestate. ok is false if there is no valid traceparent, exactly one; a tracestate is
// worthless then. A tracestate that is invalid is left out alone, as W3C's recommendation
// says (sections 3.2 and 3.3, "Processing model").
func Parse(parents, states []string) (c Context, ok bool) {
	if len(parents) != 1 {
		return Context{}, false
	}
	if c, ok = parseParent(parents[0]); ok && len(states) > 0 {
		c.State, _ = ParseState(states)
	}
	return c, ok
}

// parseParent parses a traceparent. Of versions that are not known yet it reads what
// version 00 has: more may follow behind another dash.
func parseParent(s string) (c Context, ok bool) {
	if len(s) < parentLength || s[2] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	if !parseHex(version[:], s[:2]) || version[0] == 0xFF {
		return Context{}, false
	}
	if len(s) > parentLength && (version[0] == 0 || s[parentLength] != '-') {
		return Context{}, false
	}
	if !parseHex(c.TraceID[:], s[idAt:spanAt-1]) || !parseHex(c.SpanID[:], s[spanAt:flagsAt-1]) || !parseHex(flags[:], s[flagsAt:parentLength]) {
		return Context{}, false
	}
	if c.TraceID == (ID{}) || c.SpanID == (SpanID{}) {
		return Context{}, false
	}
	c.Flags = flags[0] & (FlagSampled | FlagRandom)
	return c, true
}

// parseHex decodes digits, in lower case alone.
func parseHex(dst []byte, s string) bool {
	for i := range dst {
		hi, lo := nibble(s[2*i]), nibble(s[2*i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xFF
}

// AppendParent appends the traceparent of a context, in version 00.
func (c *Context) AppendParent(dst []byte) []byte {
	dst = append(dst, "00-"...)
	dst = hex.AppendEncode(dst, c.TraceID[:])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, c.SpanID[:])
	dst = append(dst, '-')
	return hex.AppendEncode(dst, []byte{c.Flags})
}

// The bounds of a tracestate (Trace Context, section 3.3.1).
const (
	// MaxStateMembers is the number of its members.
	MaxStateMembers = 32
	// MaxState is the length that is passed on, four times of what W3C asks for. Of a
	// longer one the members longer than longMember go first, and then the last ones.
	MaxState   = 2048
	longMember = 128
	maxKey     = 256
	maxValue   = 256
)

// ParseState checks the values of the header tracestate and returns them as one, unchanged
// where they are valid, in one header, and within MaxState. ok is false if any member is
// invalid, if a key comes twice, or if there are too many.
func ParseState(values []string) (state string, ok bool) {
	if len(values) == 1 {
		state = values[0]
	} else {
		state = strings.Join(values, ",")
	}
	// No valid one is longer, apart from white space.
	if len(state) > 2*MaxStateMembers*(maxKey+maxValue) {
		return "", false
	}
	var members [MaxStateMembers]string
	n := 0
	for rest, more := state, true; more; {
		var member string
		member, rest, more = strings.Cut(rest, ",")
		if member = strings.Trim(member, " \t"); member == "" {
			continue // allowed: a vendor has removed its own
		}
		if n == len(members) || !validMember(member, members[:n]) {
			return "", false
		}
		members[n] = member
		n++
	}
	if n == 0 {
		return "", true
	}
	if len(state) > MaxState {
		return shortenState(members[:n]), true
	}
	return state, true
}

// validMember reports whether a member is key=value, with a key that no other one has.
func validMember(member string, others []string) bool {
	key, value, ok := strings.Cut(member, "=")
	if !ok || !validKey(key) || value == "" || len(value) > maxValue {
		return false
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '=' || c == ',' {
			return false
		}
	}
	for _, other := range others {
		if len(other) > len(key) && other[len(key)] == '=' && other[:len(key)] == key {
			return false
		}
	}
	return true
}

// validKey checks the name of a tracing system, which may begin with that of a tenant.
func validKey(key string) bool {
	if key == "" || len(key) > maxKey {
		return false
	}
	for i := range len(key) {
		c := key[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("_-*/@", rune(c))) {
			return false
		}
	}
	return true
}

// shortenState joins members up to MaxState.
func shortenState(members []string) string {
	length := -1
	for _, m := range members {
		length += len(m) + 1
	}
	for i := len(members) - 1; i >= 0 && length > MaxState; i-- {
		if len(members[i]) > longMember {
			length -= len(members[i]) + 1
			members = slices.Delete(members, i, i+1)
		}
	}
	for length > MaxState { // the system that was last on the way comes first
		length -= len(members[len(members)-1]) + 1
		members = members[:len(members)-1]
	}
	return strings.Join(members, ",")
}
