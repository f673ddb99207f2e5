package wire

import (
	"encoding/binary"
	"fmt"
)

// Greeting is a server's first packet (Protocol::HandshakeV10).
type Greeting struct {
	ServerVersion string
	ConnectionID  uint32
	Salt          [saltSize]byte
	Capabilities  Capabilities
	// Extensions are MariaDB's capabilities beyond the 32 of MySQL; 0 unless the
	// server leaves LongPassword out.
	Extensions uint32
	Collation  byte
	Status     Status
	Plugin     string // "" without PluginAuth
}

// ParseGreeting parses a greeting. If the server refuses the connection with an
// error packet instead, the error is an Error.
func ParseGreeting(p []byte) (Greeting, error) {
	if len(p) > 0 && p[0] == headerError {
		refusal, err := ParseError(p)
		if err == nil {
			err = refusal
		}
		return Greeting{}, err
	}
	f := fields{packet: "greeting", b: p}
	if v := f.uint8("the protocol version"); f.err == nil && v != protocolVersion {
		return Greeting{}, fmt.Errorf("%w: greeting: protocol version %d, only %d is supported", ErrMalformed, v, protocolVersion)
	}
	var g Greeting
	g.ServerVersion = string(f.nul("the server version"))
	g.ConnectionID = f.uint32("the connection ID")
	copy(g.Salt[:], f.span(saltFirst, "the salt"))
	f.span(1, "the filler")
	g.Capabilities = Capabilities(f.uint16("the capabilities"))
	if f.err == nil && len(f.b) == 0 {
		return Greeting{}, fmt.Errorf("greeting: %w", ErrTooOld)
	}
	g.Collation = f.uint8("the collation")
	g.Status = Status(f.uint16("the status"))
	g.Capabilities |= Capabilities(f.uint16("the capabilities")) << 16
	saltLength := int(f.uint8("the length of the salt"))
	filler := f.span(10, "the filler")
	if f.err == nil && g.Capabilities&Protocol41 == 0 {
		return Greeting{}, fmt.Errorf("greeting: %w", ErrTooOld)
	}
	if f.err == nil && g.Capabilities&LongPassword == 0 {
		g.Extensions = binary.LittleEndian.Uint32(filler[6:])
	}
	// The second part has 13 bytes at least, of which the last is a NUL.
	if g.Capabilities&(SecureConnection|PluginAuth) != 0 {
		copy(g.Salt[saltFirst:], f.span(max(13, saltLength-saltFirst), "the salt"))
	}
	if g.Capabilities&PluginAuth != 0 {
		g.Plugin = string(f.lastNUL())
	}
	if err := f.done(); err != nil {
		return Greeting{}, err
	}
	return g, nil
}

// lastNUL reads the last field of a packet, a string whose NUL some servers left
// out (MySQL 5.5.7 to 5.5.9, 5.6.0 and 5.6.1).
func (f *fields) lastNUL() []byte {
	p := f.rest()
	if n := len(p); n > 0 && p[n-1] == 0 {
		p = p[:n-1]
	}
	for i, c := range p {
		if c == 0 {
			f.b = p[i+1:]
			return p[:i]
		}
	}
	return p
}

// AppendGreeting appends a greeting. It has the form of PluginAuth's time even
// without that capability.
func AppendGreeting(dst []byte, g *Greeting) []byte {
	dst = appendNUL(append(dst, protocolVersion), g.ServerVersion)
	dst = binary.LittleEndian.AppendUint32(dst, g.ConnectionID)
	dst = append(append(dst, g.Salt[:saltFirst]...), 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(g.Capabilities))
	dst = append(dst, g.Collation)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(g.Status))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(g.Capabilities>>16))
	saltLength := byte(0)
	if g.Capabilities&PluginAuth != 0 {
		saltLength = saltSize + 1
	}
	dst = append(dst, saltLength, 0, 0, 0, 0, 0, 0)
	extensions := g.Extensions
	if g.Capabilities&LongPassword != 0 {
		extensions = 0
	}
	dst = binary.LittleEndian.AppendUint32(dst, extensions)
	if g.Capabilities&(SecureConnection|PluginAuth) != 0 {
		dst = append(append(dst, g.Salt[saltFirst:]...), 0)
	}
	if g.Capabilities&PluginAuth != 0 {
		dst = appendNUL(dst, g.Plugin)
	}
	return dst
}
