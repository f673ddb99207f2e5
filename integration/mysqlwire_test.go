package integration

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"penstock/internal/testkit"
	"penstock/mysql/wire"
)

// wireClient is a client of MySQL that sends any bytes, and notes each packet that comes.
type wireClient struct {
	conn     net.Conn
	in       *bufio.Reader
	login    wireLogin
	caps     wire.Capabilities
	greeting wire.Greeting
	seq      byte
	notes    []string          // of the packets of the last answer
	params   map[uint32]uint16 // of each prepared statement
	closed   bool
}

// wireLogin is who logs in, and how.
type wireLogin struct {
	user, password, database string
	plugin                   string // that the first packet names
	caps                     wire.Capabilities
	tls                      *tls.Config // nil: without
	old                      bool        // without PluginAuth
}

// minimalCaps are what every login here has.
const minimalCaps = wire.Protocol41 | wire.SecureConnection | wire.PluginAuth | wire.Transactions | wire.LongPassword

// unknownPlugin makes each server say which plugin the account has, as a proxy does.
const unknownPlugin = "auth_unknown_plugin"

// dialWire connects and logs in. notes then has the packets of the login, without salts.
func dialWire(addr string, l wireLogin) (*wireClient, error) {
	conn, err := net.DialTimeout("tcp", addr, testkit.Patience)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
	c := &wireClient{conn: conn, in: bufio.NewReader(conn), login: l, params: map[uint32]uint16{}}
	p, err := c.packet()
	if err == nil {
		c.greeting, err = wire.ParseGreeting(p)
	}
	if err != nil {
		return c, err
	}
	c.notes = nil
	c.caps = l.caps | minimalCaps
	if l.old {
		c.caps &^= wire.PluginAuth
		l.plugin = "mysql_native_password"
	}
	if l.database != "" {
		c.caps |= wire.ConnectWithDB
	}
	first := wire.Login{Capabilities: c.caps, MaxPacket: 1 << 30, Collation: 45, User: l.user, Database: l.database, Plugin: l.plugin}
	if c.caps&wire.ConnectAttrs != 0 {
		first.Attributes = wire.AppendString(wire.AppendString(nil, "program_name"), "sweep")
	}
	if l.tls != nil {
		first.Capabilities |= wire.SSL
		if err := c.send(c.seq+1, wire.AppendSSLRequest(nil, &first)); err != nil {
			return c, err
		}
		secure := tls.Client(c.conn, l.tls)
		c.conn, c.in = secure, bufio.NewReader(secure)
	}
	if l.plugin != unknownPlugin {
		first.Auth = c.proof(l.plugin, c.greeting.Salt[:])
	}
	if err := c.send(c.seq+1, wire.AppendLogin(nil, &first)); err != nil {
		return c, err
	}
	return c, c.turns()
}

// turns answers the turns of authentication, up to OK or an error.
func (c *wireClient) turns() error {
	salt := c.greeting.Salt[:]
	for {
		p, err := c.packet()
		if err != nil {
			return err
		}
		switch {
		case wire.IsOK(p):
			return nil
		case wire.IsError(p):
			e, err := wire.ParseError(p)
			if err == nil {
				err = e
			}
			return err
		case len(p) > 0 && p[0] == 0xfe:
			a, err := wire.ParseAuthSwitch(p)
			if err != nil {
				return err
			}
			c.notes[len(c.notes)-1] = fmt.Sprintf("%d switch to %s, %d bytes", c.seq, a.Plugin, len(a.Data))
			salt = a.Data[:min(len(a.Data), 20)]
			if a.Plugin == "client_ed25519" {
				salt = a.Data
			}
			err = c.send(c.seq+1, c.proof(a.Plugin, salt))
			if err != nil {
				return err
			}
		case len(p) == 2 && p[1] == 3: // caching_sha2_password: OK follows
		case len(p) == 2 && p[1] == 4:
			answer := append([]byte(c.login.password), 0)
			if c.login.tls == nil {
				answer = []byte{2}
			}
			if err := c.send(c.seq+1, answer); err != nil {
				return err
			}
		default:
			answer, err := encrypt(p[1:], append([]byte(c.login.password), 0), salt)
			if err == nil {
				err = c.send(c.seq+1, answer)
			}
			if err != nil {
				return err
			}
		}
	}
}

// proof answers a salt.
func (c *wireClient) proof(plugin string, salt []byte) []byte {
	password := []byte(c.login.password)
	switch {
	case plugin == "mysql_clear_password":
		return append(password, 0)
	case len(password) == 0 || plugin == unknownPlugin:
		return nil
	case plugin == "mysql_native_password":
		once := sha1.Sum(password)
		twice := sha1.Sum(once[:])
		mask := sha1.Sum(append(append([]byte(nil), salt...), twice[:]...))
		subtle.XORBytes(mask[:], mask[:], once[:])
		return mask[:]
	case plugin == "caching_sha2_password":
		once := sha256.Sum256(password)
		twice := sha256.Sum256(once[:])
		mask := sha256.Sum256(append(twice[:], salt...))
		subtle.XORBytes(mask[:], mask[:], once[:])
		return mask[:]
	case plugin == "client_ed25519" && len(password) == ed25519.SeedSize:
		return ed25519.Sign(ed25519.NewKeyFromSeed(password), salt)
	}
	return password
}

// encrypt encrypts a password with a server's public key, for caching_sha2_password.
func encrypt(key, password, salt []byte) ([]byte, error) {
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, fmt.Errorf("%q is no public key", key)
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	for i := range password {
		password[i] ^= salt[i%len(salt)]
	}
	return rsa.EncryptOAEP(sha1.New(), rand.Reader, public.(*rsa.PublicKey), password, nil)
}

func (c *wireClient) send(seq byte, payload []byte) error {
	c.seq = seq + byte(len(payload)/wire.MaxPayload)
	_, err := c.conn.Write(wire.AppendPacket(nil, seq, payload))
	return err
}

// packet reads a payload, put together of several packets if it is long, and notes each.
func (c *wireClient) packet() ([]byte, error) {
	var whole []byte
	for {
		var head [wire.HeaderSize]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			c.closed = true
			c.notes = append(c.notes, "closed")
			return nil, err
		}
		n, seq := wire.ParseHeader(head[:])
		payload := make([]byte, n)
		if _, err := io.ReadFull(c.in, payload); err != nil {
			c.closed = true
			c.notes = append(c.notes, "closed within a packet")
			return nil, err
		}
		c.seq = seq
		note := fmt.Sprintf("%d %q", seq, payload)
		if n > 600 {
			note = fmt.Sprintf("%d %d bytes %x", seq, n, sha256.Sum256(payload))
		}
		c.notes = append(c.notes, note)
		if whole = append(whole, payload...); n < wire.MaxPayload {
			return whole, nil
		}
	}
}

// step is a command with what the client sends besides.
type step struct {
	payload []byte
	file    []byte // for LOAD DATA LOCAL
	chunk   int    // of the file, in bytes
	cut     int    // where the bytes of the command are cut in two
}

func (s step) command() wire.Command {
	if len(s.payload) == 0 {
		return wire.ComSleep
	}
	return wire.Command(s.payload[0])
}

// run sends a command and returns the notes on its answer.
func (c *wireClient) run(s step) []string {
	c.notes = nil
	p := wire.AppendPacket(nil, 0, s.payload)
	c.seq = byte(len(s.payload) / wire.MaxPayload)
	cut := min(s.cut, len(p))
	_, err := c.conn.Write(p[:cut])
	if err == nil {
		_, err = c.conn.Write(p[cut:])
	}
	if err == nil {
		err = c.answer(s)
	}
	if err != nil && !c.closed {
		c.closed = true
		c.notes = append(c.notes, "closed")
	}
	return c.notes
}

var errUnexpected = errors.New("an answer that the protocol does not have")

// answer reads the answer to a command. It knows the protocol by itself: a proxy that
// misunderstands it must not agree with its test.
func (c *wireClient) answer(s step) error {
	switch s.command() {
	case wire.ComStmtSendLongData, wire.ComStmtClose:
		return nil
	case wire.ComQuery, wire.ComStmtExecute, wire.ComProcessInfo, wire.ComStmtBulkExecute:
		return c.results(s)
	case wire.ComFieldList, wire.ComStmtFetch:
		_, err := c.rows()
		return err
	case wire.ComStmtPrepare:
		return c.prepared()
	case wire.ComChangeUser:
		err := c.turns()
		var refusal wire.Error
		if errors.As(err, &refusal) {
			err = nil
		}
		return err
	case wire.ComStatistics:
		p, err := c.packet()
		if err == nil && len(p) > 0 && p[0] != 0xff {
			c.notes[len(c.notes)-1] = fmt.Sprintf("%d statistics", c.seq)
		}
		return err
	}
	_, err := c.packet()
	return err
}

func (c *wireClient) results(s step) error {
	for {
		p, err := c.packet()
		if err != nil {
			return err
		}
		if len(p) == 0 {
			return errUnexpected
		}
		var more bool
		switch p[0] {
		case 0xff:
			return nil
		case 0x00:
			more = moreResults(p)
		case 0xfb:
			if err := c.sendFile(s); err != nil {
				return err
			}
			continue
		default:
			before := len(c.notes)
			if more, err = c.table(p, s.command()); err != nil {
				return err
			}
			if s.command() == wire.ComProcessInfo { // what other connections do
				c.notes = append(c.notes[:before], "a list of processes")
			}
		}
		if !more {
			return nil
		}
	}
}

// table reads the columns and rows of a result.
func (c *wireClient) table(p []byte, command wire.Command) (more bool, err error) {
	n, _, ok := wire.Int(p)
	if !ok {
		return false, errUnexpected
	}
	for range n {
		if _, err := c.packet(); err != nil {
			return false, err
		}
	}
	if c.caps&wire.DeprecateEOF == 0 {
		end, err := c.packet()
		if err != nil || len(end) != 5 {
			return false, errors.Join(err, errUnexpected)
		}
		if command == wire.ComStmtExecute && wire.Status(binary.LittleEndian.Uint16(end[3:]))&wire.CursorExists != 0 {
			return false, nil
		}
	}
	return c.rows()
}

// rows reads packets up to the one that ends them.
func (c *wireClient) rows() (more bool, err error) {
	for {
		p, err := c.packet()
		switch {
		case err != nil:
			return false, err
		case len(p) == 0:
			return false, errUnexpected
		case p[0] == 0xff:
			return false, nil
		case p[0] == 0xfe && len(p) < 9 && len(p) >= 5 && c.caps&wire.DeprecateEOF == 0:
			return wire.Status(binary.LittleEndian.Uint16(p[3:]))&wire.MoreResults != 0, nil
		case p[0] == 0xfe && len(p) < wire.MaxPayload && c.caps&wire.DeprecateEOF != 0:
			return moreResults(p), nil
		}
	}
}

// moreResults reads the status of an OK packet.
func moreResults(p []byte) bool {
	at := 1
	for range 2 {
		_, n, _ := wire.Int(p[at:])
		at += n
	}
	return len(p) >= at+2 && wire.Status(binary.LittleEndian.Uint16(p[at:]))&wire.MoreResults != 0
}

func (c *wireClient) sendFile(s step) error {
	for file := s.file; len(file) > 0; {
		n := min(len(file), s.chunk)
		if err := c.send(c.seq+1, file[:n]); err != nil {
			return err
		}
		file = file[n:]
	}
	return c.send(c.seq+1, nil)
}

func (c *wireClient) prepared() error {
	p, err := c.packet()
	if err != nil || len(p) < 9 || p[0] != 0 {
		return err
	}
	columns, params := binary.LittleEndian.Uint16(p[5:]), binary.LittleEndian.Uint16(p[7:])
	c.params[binary.LittleEndian.Uint32(p[1:])] = params
	for _, n := range []uint16{params, columns} {
		if n > 0 && c.caps&wire.DeprecateEOF == 0 {
			n++
		}
		for range n {
			if _, err := c.packet(); err != nil {
				return err
			}
		}
	}
	return nil
}
