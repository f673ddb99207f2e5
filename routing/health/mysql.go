package health

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// A server of MySQL's protocol speaks first: a packet with its greeting, or with an
// error. See "Connection Phase" in the MySQL Internals documentation.
const (
	maxGreeting   = 4 << 10 // bytes of the packet; a greeting has about 100
	mysqlProtocol = 10      // the first byte of a greeting
	mysqlError    = 0xff    // the first byte of an error
	mysqlSwitch   = 0xfe    // the first byte of a request for another authentication
	mysqlOK       = 0x00
	// healthUser is who logs out again at once. A server that does not know the user
	// refuses it, which is no failure of the check.
	healthUser = "penstock_health"
)

var (
	errGreeting = errors.New("not a greeting of MySQL's protocol 10")
	errRefused  = errors.New("the server refuses connections")
)

// greeting reads a server's greeting, and ends the connection so that the server does
// not count it as one that was interrupted.
func (p *probe) greeting(conn net.Conn) error {
	packet, err := readPacket(conn, 0)
	if err != nil {
		return err
	}
	if p.version, err = parseGreeting(packet); err != nil {
		return err
	}
	if !strings.Contains(p.version, "TiDB") {
		logOut(conn)
	}
	return nil
}

// MySQLVersion returns the version in a server's greeting. It connects once, as a probe of
// t.Check does, which is of type MySQL.
func (c *Checker) MySQLVersion(ctx context.Context, t Target) (string, error) {
	p := newProbe(keyOf(t, ""), t)
	err := p.run(ctx, c.dial)
	return p.version, err
}

// readPacket reads a packet, whose sequence number must be seq.
func readPacket(conn net.Conn, seq byte) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return nil, cutShort(err)
	}
	n := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	if n == 0 || n > maxGreeting || header[3] != seq {
		return nil, errGreeting // without the bytes, which may be confidential
	}
	packet := make([]byte, n)
	_, err := io.ReadFull(conn, packet)
	return packet, cutShort(err)
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errShort
	}
	return err
}

// parseGreeting returns the server's version, or why it does not take connections.
func parseGreeting(p []byte) (version string, err error) {
	if p[0] == mysqlError {
		return "", refusal(p)
	}
	if p[0] != mysqlProtocol {
		return "", errGreeting
	}
	// The version, up to a zero byte; connection ID (4), salt (8), a zero byte and the
	// lower half of the capabilities (2). What follows is optional.
	text, rest, ok := bytes.Cut(p[1:], []byte{0})
	if !ok || len(rest) < 4+8+1+2 {
		return "", errGreeting
	}
	return string(text), nil
}

// refusal returns the error that a server sends in place of a greeting, such as
// "Too many connections". Its text is shown, cut and without anything that is not
// printable.
func refusal(p []byte) error {
	if len(p) < 3 {
		return errGreeting
	}
	text := p[3:]
	if len(text) >= 6 && text[0] == '#' { // the SQL state, which is left out before the login
		text = text[6:]
	}
	shown := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, string(text))
	if len(shown) > maxErr {
		shown = shown[:maxErr]
	}
	return fmt.Errorf("%w: %d %s", errRefused, binary.LittleEndian.Uint16(p[1:3]), shown)
}

// logOut ends a connection whose greeting has been read. A client that disconnects there,
// or sends COM_QUIT, counts as an error of the handshake; after max_connect_errors (100)
// in a row MySQL and MariaDB block its host until FLUSH HOSTS, and this host is the
// proxy's. One whose login is refused does not count. TiDB blocks no host, and logs no
// client that disconnects.
//
// It is the end of a check that has passed already: errors do not matter.
func logOut(conn net.Conn) {
	if _, err := conn.Write(appendLogin(nil)); err != nil {
		return
	}
	for seq := byte(2); seq < 8; seq += 2 {
		packet, err := readPacket(conn, seq)
		if err != nil {
			return
		}
		switch packet[0] {
		case mysqlOK:
			_, _ = conn.Write([]byte{1, 0, 0, 0, 1}) // COM_QUIT
			return
		case mysqlSwitch:
			// No password, whatever the plugin.
			if _, err := conn.Write([]byte{0, 0, 0, seq + 1}); err != nil {
				return
			}
		default:
			return
		}
	}
}

// appendLogin appends HandshakeResponse41 of the health user, without a password.
func appendLogin(dst []byte) []byte {
	// LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH.
	const capabilities = 1 | 1<<9 | 1<<15 | 1<<19
	body := binary.LittleEndian.AppendUint32(nil, capabilities)
	body = binary.LittleEndian.AppendUint32(body, maxGreeting) // the longest packet
	body = append(body, 33)                                    // utf8
	body = append(body, make([]byte, 23)...)
	body = append(body, healthUser...)
	body = append(body, 0, 0) // the end of the name; no authentication data
	body = append(body, "mysql_native_password\x00"...)
	dst = append(dst, byte(len(body)), 0, 0, 1)
	return append(dst, body...)
}
