package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Login is a client's answer to the greeting (Protocol::HandshakeResponse41).
type Login struct {
	Capabilities Capabilities
	// Extensions are MariaDB's capabilities beyond the 32 of MySQL; 0 unless the
	// client leaves LongPassword out.
	Extensions uint32
	MaxPacket  uint32 // the longest packet that the client takes, in bytes
	Collation  byte
	User       string
	Database   string // "" without ConnectWithDB
	Plugin     string // "" without PluginAuth
	Auth       []byte // the plugin's first data
	Attributes []byte // pairs of length-encoded strings, as they came; nil without ConnectAttrs
	ZstdLevel  byte   // 0 without ZstdCompressionAlgorithm
}

// ParseSSLRequest reports whether p, a client's first packet, asks for TLS. The
// login then has its capabilities, size and collation. TLS begins with the byte
// after this packet, and the client sends the login in it.
func ParseSSLRequest(p []byte) (Login, bool, error) {
	if len(p) != sslRequestSize {
		return Login{}, false, nil
	}
	f := fields{packet: "request for TLS", b: p}
	l := f.loginStart()
	if l.Capabilities&SSL == 0 {
		return Login{}, false, nil
	}
	if l.Capabilities&Protocol41 == 0 {
		return Login{}, false, fmt.Errorf("request for TLS: %w", ErrTooOld)
	}
	return l, true, nil
}

// AppendSSLRequest appends the request for TLS that goes before l. The
// capabilities of both are the same; SSL is set here.
func AppendSSLRequest(dst []byte, l *Login) []byte {
	return appendLoginStart(dst, l, l.Capabilities|SSL)
}

// loginStart reads the part that a login and a request for TLS share.
func (f *fields) loginStart() Login {
	l := Login{Capabilities: Capabilities(f.uint32("the capabilities"))}
	l.MaxPacket = f.uint32("the maximum packet size")
	l.Collation = f.uint8("the collation")
	filler := f.span(23, "the filler")
	if f.err == nil && l.Capabilities&LongPassword == 0 {
		l.Extensions = binary.LittleEndian.Uint32(filler[19:])
	}
	return l
}

// ParseLogin parses a login. Fields at the end that the capabilities announce may
// be missing from the plugin on, as servers allow.
func ParseLogin(p []byte) (Login, error) {
	// A login of protocol 3.20 has 16 bits of capabilities.
	if len(p) >= 2 && Capabilities(binary.LittleEndian.Uint16(p))&Protocol41 == 0 {
		return Login{}, fmt.Errorf("login: %w", ErrTooOld)
	}
	l, err := parseLogin(p, false)
	if err == nil || len(p) < loginFixed || Capabilities(binary.LittleEndian.Uint32(p))&(ConnectWithDB|PluginAuth) != PluginAuth {
		return l, err
	}
	// Connector/J has the NUL of an empty database also where it announces none. Servers
	// take it for the end of an empty plugin, and pass over what they cannot read then.
	if lenient, err := parseLogin(p, true); err == nil {
		return lenient, nil
	}
	return l, err
}

// parseLogin parses a login; emptyDatabase: with an empty one that is not announced.
func parseLogin(p []byte, emptyDatabase bool) (Login, error) {
	f := fields{packet: "login", b: p}
	l := f.loginStart()
	l.User = string(f.nul("the user name"))
	l.Auth = bytes.Clone(f.auth(l.Capabilities))
	if l.Capabilities&ConnectWithDB != 0 || emptyDatabase {
		l.Database = string(f.nul("the database"))
	}
	if emptyDatabase && l.Database != "" {
		f.fail("the database", "is not announced")
	}
	if l.Capabilities&PluginAuth != 0 && len(f.b) > 0 {
		l.Plugin = string(f.nul("the plugin"))
	}
	l.Attributes = f.attributes(l.Capabilities)
	if l.Capabilities&ZstdCompressionAlgorithm != 0 && len(f.b) > 0 {
		l.ZstdLevel = f.uint8("the zstd level")
	}
	if err := f.done(); err != nil {
		return Login{}, err
	}
	return l, nil
}

// auth reads the authentication data of a login.
func (f *fields) auth(caps Capabilities) []byte {
	const field = "the authentication data"
	switch {
	case caps&PluginAuthLenencClientData != 0:
		return f.string(field)
	case caps&SecureConnection != 0:
		return f.span(int(f.uint8(field)), field)
	}
	return f.nul(field)
}

// attributes reads the connection attributes, if any, and copies them.
func (f *fields) attributes(caps Capabilities) []byte {
	if caps&ConnectAttrs == 0 || f.err != nil || len(f.b) == 0 {
		return nil
	}
	list := f.string("the attributes")
	for rest := list; len(rest) > 0; {
		_, n, ok := String(rest)
		if !ok {
			f.fail("the attributes", "do not consist of length-encoded strings")
			return nil
		}
		rest = rest[n:]
	}
	return bytes.Clone(list)
}

// AppendLogin appends a login with the fields that l.Capabilities announces.
// Protocol41 is always set, and PluginAuthLenencClientData where l.Auth is too
// long for the other forms.
func AppendLogin(dst []byte, l *Login) []byte {
	caps := l.Capabilities
	if len(l.Auth) > maxShortAuth {
		caps |= PluginAuthLenencClientData
	}
	dst = appendNUL(appendLoginStart(dst, l, caps), l.User)
	switch {
	case caps&PluginAuthLenencClientData != 0:
		dst = AppendString(dst, l.Auth)
	case caps&SecureConnection != 0:
		dst = append(append(dst, byte(len(l.Auth))), l.Auth...)
	default:
		dst = appendNUL(dst, l.Auth)
	}
	if caps&ConnectWithDB != 0 {
		dst = appendNUL(dst, l.Database)
	}
	if caps&PluginAuth != 0 {
		dst = appendNUL(dst, l.Plugin)
	}
	if caps&ConnectAttrs != 0 {
		dst = AppendString(dst, l.Attributes)
	}
	if caps&ZstdCompressionAlgorithm != 0 {
		dst = append(dst, l.ZstdLevel)
	}
	return dst
}

func appendLoginStart(dst []byte, l *Login, caps Capabilities) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(caps|Protocol41))
	dst = binary.LittleEndian.AppendUint32(dst, l.MaxPacket)
	dst = append(append(dst, l.Collation), make([]byte, 19)...)
	extensions := l.Extensions
	if caps&LongPassword != 0 {
		extensions = 0
	}
	return binary.LittleEndian.AppendUint32(dst, extensions)
}

// ChangeUser is COM_CHANGE_USER, a login within a session.
type ChangeUser struct {
	User, Database string
	Plugin         string // "" without PluginAuth
	Auth           []byte // the plugin's first data; 255 bytes at most
	Attributes     []byte // as in Login
	Collation      uint16 // 0 if the client left it out
}

// ParseChangeUser parses COM_CHANGE_USER, including its command byte, from a
// client with the capabilities caps. All after the database may be missing.
func ParseChangeUser(p []byte, caps Capabilities) (ChangeUser, error) {
	f := fields{packet: "COM_CHANGE_USER", b: p}
	if c := f.uint8("the command"); f.err == nil && Command(c) != ComChangeUser {
		f.fail("the command", "is another")
	}
	c := ChangeUser{User: string(f.nul("the user name"))}
	// Its length has one byte even with PluginAuthLenencClientData.
	c.Auth = bytes.Clone(f.auth(caps &^ PluginAuthLenencClientData))
	c.Database = string(f.nul("the database"))
	if len(f.b) > 0 {
		c.Collation = f.uint16("the collation")
	}
	if caps&PluginAuth != 0 && len(f.b) > 0 {
		c.Plugin = string(f.nul("the plugin"))
	}
	c.Attributes = f.attributes(caps)
	if err := f.done(); err != nil {
		return ChangeUser{}, err
	}
	return c, nil
}

// AppendChangeUser appends COM_CHANGE_USER, including its command byte, for a
// connection with the capabilities caps. More than 255 bytes of c.Auth are cut off.
func AppendChangeUser(dst []byte, c *ChangeUser, caps Capabilities) []byte {
	dst = appendNUL(append(dst, byte(ComChangeUser)), c.User)
	if auth := c.Auth[:min(len(c.Auth), maxShortAuth)]; caps&SecureConnection != 0 {
		dst = append(append(dst, byte(len(auth))), auth...)
	} else {
		dst = appendNUL(dst, auth)
	}
	dst = binary.LittleEndian.AppendUint16(appendNUL(dst, c.Database), c.Collation)
	if caps&PluginAuth != 0 {
		dst = appendNUL(dst, c.Plugin)
	}
	if caps&ConnectAttrs != 0 {
		dst = AppendString(dst, c.Attributes)
	}
	return dst
}
