package session_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/mysql/session"
	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/clienthello"
)

func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

// rig is a listener whose connections are sessions with the servers of targets.
type rig struct {
	*netio.Engine
	t         testing.TB
	settings  session.Settings
	clientTLS *tls.Config
	profile   netio.Profile
	prepare   func(*netio.Conn) // at Route
	ends      chan end          // of connections

	mu      sync.Mutex
	targets []string
	hosts   []*host // that are logged in
	to      string  // of moves
}

// end is how a connection has ended.
type end struct {
	why netio.Reason
	err error
}

// newRig starts an engine with a listener in front of the servers at targets.
func newRig(t testing.TB, change func(*rig, *netio.Config), targets ...string) *rig {
	t.Helper()
	r := &rig{
		t: t, targets: targets, ends: make(chan end, 1000),
		settings: session.Settings{ServerVersion: "8.0.11-rig", LoginTimeout: time.Minute, MoveTimeout: time.Minute},
	}
	cfg := netio.Config{Handler: r, Loops: 2, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	r.profile.ConnectTimeout = time.Minute
	if change != nil {
		change(r, &cfg)
	}
	e, err := netio.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Engine = e
	t.Cleanup(e.Close)
	r.profile.Meter = netio.NewMeter("l", "s", e.Loops())
	e.SetListeners([]netio.Listener{{Name: "l", Network: "tcp", Address: "127.0.0.1:0", HandshakeTimeout: time.Minute}})
	return r
}

// addr is the address of the listener.
func (r *rig) addr() string {
	for _, s := range r.Listeners() {
		if s.Err == nil {
			return s.Address
		}
	}
	r.t.Fatalf("no listener: %+v", r.Listeners())
	return ""
}

// Route implements netio.Handler.
func (r *rig) Route(c *netio.Conn) (netio.Plan, netio.Reason) {
	if r.prepare != nil {
		r.prepare(c)
	}
	h := &host{rig: r, moved: make(chan error, 100)}
	h.session = session.New(h)
	return h.session, netio.OK
}

// Closed implements netio.Handler.
func (r *rig) Closed(c *netio.Conn, why netio.Reason) { r.ends <- end{why, c.Failure()} }

// ended waits for the end of a connection.
func (r *rig) ended() end {
	r.t.Helper()
	return testkit.Receive(r.t, "the end of a connection", r.ends)
}

// mustEnd waits for the end of a connection for this reason.
func (r *rig) mustEnd(why netio.Reason) {
	r.t.Helper()
	if got := r.ended(); got.why != why {
		r.t.Errorf("the connection ended for %s (%v), want %s", got.why, got.err, why)
	}
}

// host is the host of one session.
type host struct {
	rig     *rig
	session *session.Session
	conn    *netio.Conn
	tried   int
	moved   chan error
}

func (r *rig) target(at string) netio.Target {
	return netio.Target{Addr: netip.MustParseAddrPort(at), Profile: &r.profile}
}

// Next implements netio.Plan.
func (h *host) Next(_ *netio.Conn, err error) (netio.Target, netio.Reason) {
	h.rig.mu.Lock()
	defer h.rig.mu.Unlock()
	if h.tried >= len(h.rig.targets) {
		return netio.Target{}, netio.ConnectReason(err)
	}
	h.tried++
	return h.rig.target(h.rig.targets[h.tried-1]), netio.OK
}

func (h *host) Connected(*netio.Conn, time.Duration) {}
func (h *host) Settings() session.Settings           { return h.rig.settings }
func (h *host) RequiresTLS() bool                    { return false }
func (h *host) Greeted(string)                       {}

// TLSConfig implements session.Host.
func (h *host) TLSConfig(*clienthello.Hello) (*tls.Config, netio.Reason) {
	return h.rig.clientTLS, netio.OK
}

// Login implements session.Host.
func (h *host) Login(*netio.Conn, string) netio.Reason { return netio.OK }

// LoggedIn implements session.Host.
func (h *host) LoggedIn(c *netio.Conn) {
	h.conn = c
	h.rig.mu.Lock()
	defer h.rig.mu.Unlock()
	h.rig.hosts = append(h.rig.hosts, h)
}

// MoveTarget implements session.Host.
func (h *host) MoveTarget(*netio.Conn) (netio.Target, error) {
	h.rig.mu.Lock()
	defer h.rig.mu.Unlock()
	if h.rig.to == "" {
		return netio.Target{}, errors.New("nowhere to move to")
	}
	return h.rig.target(h.rig.to), nil
}

// Moved implements session.Host.
func (h *host) Moved(_ *netio.Conn, err error, _ time.Duration) { h.moved <- err }

// last returns the session that has logged in last, of those that the test knows of.
func (r *rig) last() *host {
	r.t.Helper()
	var last *host
	testkit.WaitFor(r.t, "a session has logged in", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.hosts); n > 0 {
			last = r.hosts[n-1]
		}
		return last != nil
	})
	return last
}

// move asks for a move of the session to a server.
func (h *host) move(to string) {
	h.rig.mu.Lock()
	h.rig.to = to
	h.rig.mu.Unlock()
	h.do(func() { h.session.Move() })
}

// do calls fn on the loop of the session and waits for its end.
func (h *host) do(fn func()) {
	h.rig.t.Helper()
	done := make(chan struct{})
	h.conn.Post(func() { fn(); close(done) })
	testkit.Receive(h.rig.t, "the session's loop", done)
}

// mustMove moves the session to a server.
func (h *host) mustMove(to string) {
	h.rig.t.Helper()
	h.move(to)
	if err := testkit.Receive(h.rig.t, "the end of the move", h.moved); err != nil {
		h.rig.t.Fatal(err)
	}
}

// client speaks the protocol with package wire, compressed if its login says so.
type client struct {
	t      testing.TB
	net    net.Conn
	caps   wire.Capabilities
	reader *wire.CompressedReader
	writer wire.CompressedWriter
	frames []byte
	plain  []byte
	seq    byte // of the last packet that was read
}

const clientCaps = wire.LongPassword | wire.Protocol41 | wire.SecureConnection | wire.PluginAuth | wire.DeprecateEOF |
	wire.MultiResults | wire.MultiStatements | wire.PluginAuthLenencClientData | wire.PSMultiResults | wire.LocalFiles | wire.ConnectWithDB

// connect connects to an address.
func connect(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &client{t: t, net: nc}
}

// logIn logs root in, with what change makes of its login.
func logIn(t testing.TB, addr string, change func(*wire.Login)) (*client, error) {
	t.Helper()
	c := connect(t, addr)
	if _, err := wire.ParseGreeting(c.mustRead()); err != nil {
		t.Fatal(err)
	}
	l := wire.Login{Capabilities: clientCaps, MaxPacket: 1 << 24, Collation: 45, User: "root", Plugin: "mysql_native_password"}
	if change != nil {
		change(&l)
	}
	c.caps = l.Capabilities
	c.write(1, wire.AppendLogin(nil, &l))
	p := c.mustRead()
	if len(p) > 0 && p[0] == 0xfe { // an empty password, for whatever plugin
		c.write(c.seq+1, nil)
		p = c.mustRead()
	}
	if err := c.parseOK(p); err != nil {
		return c, err
	}
	if a := l.Capabilities.Compression(); a != wire.NoCompression {
		reader := wire.NewCompressedReader(a)
		c.reader, c.writer = &reader, wire.NewCompressedWriter(a, l.ZstdLevel)
	}
	return c, nil
}

func mustLogIn(t testing.TB, addr string, change func(*wire.Login)) *client {
	t.Helper()
	c, err := logIn(t, addr, change)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) parseOK(p []byte) error {
	if wire.IsError(p) {
		e, err := wire.ParseError(p)
		return errors.Join(err, e)
	}
	_, err := wire.ParseOK(p, c.caps)
	return err
}

// write writes a payload.
func (c *client) write(seq byte, payload []byte) {
	c.t.Helper()
	c.send(wire.AppendPacket(nil, seq, payload))
}

// send writes bytes, in frames if the connection is compressed.
func (c *client) send(p []byte) {
	c.t.Helper()
	if c.reader != nil {
		p = c.writer.Append(nil, p)
		c.reader.Seq = c.writer.Seq
	}
	if _, err := c.net.Write(p); err != nil {
		c.t.Fatal(err)
	}
}

// command writes a command.
func (c *client) command(command wire.Command, body string) {
	c.t.Helper()
	c.writer.Seq = 0
	c.write(0, append([]byte{byte(command)}, body...))
}

// readFull reads plain bytes.
func (c *client) readFull(p []byte) error {
	if c.reader == nil {
		_, err := io.ReadFull(c.net, p)
		return err
	}
	buf := make([]byte, 8<<10)
	for len(p) > 0 {
		if len(c.plain) > 0 {
			n := copy(p, c.plain)
			p, c.plain = p[n:], c.plain[n:]
			continue
		}
		n, taken, err := c.reader.Read(buf, c.frames)
		c.plain, c.frames = append(c.plain, buf[:n]...), c.frames[taken:]
		c.writer.Seq = c.reader.Seq
		if err != nil {
			return err
		}
		if n > 0 || taken > 0 {
			continue
		}
		in := make([]byte, 64<<10)
		got, err := c.net.Read(in)
		if err != nil {
			return err
		}
		c.frames = in[:got]
	}
	return nil
}

// read reads a packet.
func (c *client) read() ([]byte, error) {
	header := make([]byte, wire.HeaderSize)
	if err := c.readFull(header); err != nil {
		return nil, err
	}
	n, seq := wire.ParseHeader(header)
	c.seq = seq
	p := make([]byte, n)
	return p, c.readFull(p)
}

func (c *client) mustRead() []byte {
	c.t.Helper()
	p, err := c.read()
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// run sends a command that is answered with OK.
func (c *client) run(command wire.Command, body string) error {
	c.t.Helper()
	c.command(command, body)
	p, err := c.read()
	if err != nil {
		return err
	}
	return c.parseOK(p)
}

func (c *client) mustRun(command wire.Command, body string) {
	c.t.Helper()
	if err := c.run(command, body); err != nil {
		c.t.Fatalf("%v %.50q: %v", command, body, err)
	}
}

// rows reads a result of text with one column.
func (c *client) rows() ([]string, error) {
	p, err := c.read()
	if err != nil {
		return nil, err
	}
	if wire.IsError(p) {
		return nil, c.parseOK(p)
	}
	for range int(p[0]) {
		c.mustRead()
	}
	var all []string
	for {
		p, err := c.read()
		if err != nil {
			return nil, err
		}
		if wire.IsError(p) {
			return nil, c.parseOK(p)
		}
		if wire.IsRowsEnd(p[0], len(p), c.caps) {
			return all, nil
		}
		v, _, _ := wire.String(p)
		all = append(all, string(v))
	}
}

// query returns the only value of a query.
func (c *client) query(text string) string {
	c.t.Helper()
	c.command(wire.ComQuery, text)
	all, err := c.rows()
	if err != nil || len(all) != 1 {
		c.t.Fatalf("%.50s: %d rows, %v", text, len(all), err)
	}
	return all[0]
}

// code is the number of a server's error.
func code(err error) uint16 {
	var e wire.Error
	errors.As(err, &e)
	return e.Code
}

// Reconnects implements session.Host.
func (*host) Reconnects() bool { return false }

// Password implements session.Host.
func (*host) Password(string) (string, bool) { return "", false }
