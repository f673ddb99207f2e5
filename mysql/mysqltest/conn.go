package mysqltest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"penstock/mysql/wire"
)

// errEnded means that a connection ends without a fault of its own.
var errEnded = errors.New("connection ended")

// maxPacket bounds a payload that is put together of several packets.
const maxPacket = 128 << 20

// conn is one connection. Its goroutine alone uses it, but for net.Close.
type conn struct {
	server *Server
	id     uint32
	net    net.Conn // with TLS, the tls.Conn
	in     *bufio.Reader
	out    []byte // packets that have not been sent; plain bytes where compressed
	seq    byte   // of the next packet, in either direction

	// The compressed protocol, once it is in use.
	reader  *wire.CompressedReader
	writer  *wire.CompressedWriter
	frames  []byte // that have arrived and not been read
	frames0 []byte // their buffer
	plain   []byte // plain bytes of one Read that have not been taken
	plain0  []byte // their buffer

	source, serverName string
	salt               [20]byte
	login              wire.Login
	caps               wire.Capabilities
	session
}

func newConn(s *Server, nc net.Conn, id uint32) *conn {
	return &conn{server: s, id: id, net: nc, in: bufio.NewReader(nc), salt: newSalt()}
}

// serve serves the connection until it ends.
func (c *conn) serve() {
	c.reset()
	if c.connect() != nil {
		return
	}
	for c.command() == nil {
	}
	c.reset() // releases what the session holds of the store
}

// drain reads until the peer closes.
func (c *conn) drain() error {
	_, _ = io.Copy(io.Discard, c.in)
	return errEnded
}

// upgrade puts TLS on the connection.
func (c *conn) upgrade() error {
	t := tls.Server(&early{Conn: c.net, in: c.in}, c.server.config.TLS)
	if err := t.Handshake(); err != nil { //nolint:noctx // Close ends it
		return err
	}
	c.serverName = t.ConnectionState().ServerName
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.net, c.in = t, bufio.NewReader(t)
	return nil
}

// early is a connection of which in has read some bytes.
type early struct {
	net.Conn
	in *bufio.Reader
}

// Read implements io.Reader.
func (e *early) Read(p []byte) (int, error) { return e.in.Read(p) }

// compress begins the compressed protocol, if the login agreed on it.
func (c *conn) compress() {
	a := c.caps.Compression()
	if a == wire.NoCompression {
		return
	}
	r, w := wire.NewCompressedReader(a), wire.NewCompressedWriter(a, c.login.ZstdLevel)
	c.reader, c.writer = &r, &w
	c.frames0, c.plain0 = make([]byte, 16<<10), make([]byte, 16<<10)
}

// readFull reads plain bytes.
func (c *conn) readFull(p []byte) error {
	if c.reader == nil {
		_, err := io.ReadFull(c.in, p)
		return err
	}
	for len(p) > 0 {
		if len(c.plain) > 0 {
			n := copy(p, c.plain)
			p, c.plain = p[n:], c.plain[n:]
			continue
		}
		n, taken, err := c.reader.Read(c.plain0, c.frames)
		c.frames, c.plain = c.frames[taken:], c.plain0[:n]
		if err != nil {
			return err
		}
		if n > 0 || taken > 0 {
			continue
		}
		got, err := c.in.Read(c.frames0)
		if err != nil {
			return err
		}
		c.frames = c.frames0[:got]
	}
	return nil
}

// read reads a payload, put together of several packets if it is long.
func (c *conn) read() ([]byte, error) {
	var payload []byte
	for {
		var header [wire.HeaderSize]byte
		if err := c.readFull(header[:]); err != nil {
			return nil, err
		}
		n, seq := wire.ParseHeader(header[:])
		if seq != c.seq && c.reader == nil {
			c.writeError(&wire.Error{Code: 1156, State: "08S01", Message: fmt.Sprintf("Got packets out of order: %d, due was %d", seq, c.seq)})
			return nil, errors.Join(errEnded, c.flush())
		}
		c.seq = seq + 1
		if len(payload)+n > maxPacket {
			return nil, errors.New("packet too large")
		}
		at := len(payload)
		payload = append(payload, make([]byte, n)...)
		if err := c.readFull(payload[at:]); err != nil {
			return nil, err
		}
		if n < wire.MaxPayload {
			break
		}
	}
	if c.reader != nil { // the answer goes on with the number of frames
		c.writer.Seq, c.seq = c.reader.Seq, c.reader.Seq
	}
	return payload, nil
}

// readCommand reads the first payload of a command.
func (c *conn) readCommand() ([]byte, error) {
	c.seq = 0
	if c.reader != nil {
		c.reader.Seq = 0
	}
	return c.read()
}

// write adds a payload to what flush sends.
func (c *conn) write(payload []byte) {
	c.out = wire.AppendPacket(c.out, c.seq, payload)
	c.seq += byte(1 + len(payload)/wire.MaxPayload)
}

// flush sends what has been written.
func (c *conn) flush() error {
	out := c.out
	c.out = nil
	if c.writer != nil {
		out = c.writer.Append(nil, out)
		c.reader.Seq = c.writer.Seq
	}
	_, err := c.net.Write(out)
	return err
}

func (c *conn) writeError(e *wire.Error) { c.write(wire.AppendError(nil, e)) }

func (c *conn) writeOK(o *wire.OK) { c.write(wire.AppendOK(nil, o, c.caps)) }

// writeEnd writes what ends rows: an EOF, or an OK where DeprecateEOF.
func (c *conn) writeEnd(status wire.Status) {
	warnings := uint16(len(c.warnings))
	if c.caps&wire.DeprecateEOF != 0 {
		c.writeOK(&wire.OK{EndsRows: true, Status: status, Warnings: warnings})
		return
	}
	c.write(wire.AppendEOF(nil, warnings, status))
}
