package session_test

import (
	"bytes"
	"compress/zlib"
	"database/sql"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/mysql/session"
	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/relay"
)

// algorithms are the capabilities that select them.
var algorithms = map[string]wire.Capabilities{"zlib": wire.Compress, "zstd": wire.ZstdCompressionAlgorithm}

func compressed(a wire.Capabilities) func(*wire.Login) {
	return func(l *wire.Login) {
		l.Capabilities |= a
		if a == wire.ZstdCompressionAlgorithm {
			l.ZstdLevel = 22
		}
	}
}

// pair starts two servers that hand sessions over.
func pair(t *testing.T, change func(*mysqltest.Config)) (a, b *mysqltest.Server) {
	c := mysqltest.Config{
		Signer: mysqltest.NewSigner(t), Store: mysqltest.NewStore(),
		Users: map[string]mysqltest.User{"root": {}, "other": {Plugin: "caching_sha2_password"}},
	}
	if change != nil {
		change(&c)
	}
	return mysqltest.New(t, c), mysqltest.New(t, c)
}

// A session with a compressed client has all that one without has, whether the server
// could compress or not, and moves.
func TestCompressedSession(t *testing.T) {
	for name, a := range algorithms {
		for _, deprecate := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", deprecate), func(t *testing.T) {
				here, there := pair(t, func(c *mysqltest.Config) {
					c.Capabilities = mysqltest.DefaultCapabilities &^ (wire.Compress | wire.ZstdCompressionAlgorithm)
				})
				r := newRig(t, nil, here.Addr())
				c := mustLogIn(t, r.addr(), func(l *wire.Login) {
					compressed(a)(l)
					if !deprecate {
						l.Capabilities &^= wire.DeprecateEOF
					}
				})
				if deprecate {
					everything(t, c)
					r.last().mustMove(there.Addr())
					everything(t, c)
				}
				c.mustRun(wire.ComQuery, "SET @a = 1")
				r.last().mustMove(here.Addr())
				c.mustRun(wire.ComPing, "")
				if caps := here.Record().Logins[0].Login.Capabilities; caps.Compression() != wire.NoCompression {
					t.Errorf("the server was asked for %s", caps)
				}
				c.command(wire.ComQuit, "")
				r.mustEnd(netio.ClientFIN)
			})
		}
	}
}

// everything that makes frames and their numbers differ from packets.
func everything(t *testing.T, c *client) {
	t.Helper()
	if got := c.query("SELECT REPEAT('ab', 100000)"); got != strings.Repeat("ab", 100000) {
		t.Errorf("a value of %d bytes", len(got))
	}
	// Clients number packets that continue another one as the frame that they are in.
	long := wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComPing)}, make([]byte, 17<<20)...))
	long[wire.HeaderSize+wire.MaxPayload+3] = 77
	c.writer.Seq = 0
	c.send(long)
	if err := c.parseOK(c.mustRead()); err != nil {
		t.Errorf("a command of 17 MiB: %v", err)
	}
	c.command(wire.ComQuery, "SELECT id FROM rows(300, 5000)")
	if all, err := c.rows(); err != nil || len(all) != 300 {
		t.Errorf("%d rows, %v", len(all), err)
	}
	if err := c.run(wire.ComQuery, "SELEKT"); code(err) != 1064 {
		t.Errorf("a syntax error: %v", err)
	}
	c.mustRun(wire.ComPing, "")

	// Of two results the second asks for a file: the frames' numbers are behind the packets'.
	c.command(wire.ComQuery, "SELECT id FROM rows(5, 10); LOAD DATA LOCAL INFILE 'f' INTO TABLE loaded")
	if all, err := c.rows(); err != nil || len(all) != 5 {
		t.Errorf("%d rows, %v", len(all), err)
	}
	if p := c.mustRead(); p[0] != 0xfb {
		t.Fatalf("%q in place of the request for a file", p)
	}
	if c.seq == c.writer.Seq-1 {
		t.Error("packets and frames have the same numbers: the test shows nothing")
	}
	seq := c.writer.Seq
	c.write(seq, []byte(strings.Repeat("line\n", 10_000)))
	c.write(seq+1, []byte("line\n"))
	c.write(seq+2, nil)
	if err := c.parseOK(c.mustRead()); err != nil {
		t.Errorf("a file: %v", err)
	}

	// COM_CHANGE_USER, with a turn of the client.
	c.command(wire.ComChangeUser, string(wire.AppendChangeUser(nil, &wire.ChangeUser{User: "other", Collation: 45, Plugin: "mysql_native_password"}, c.caps)[1:]))
	if p := c.mustRead(); p[0] != 0xfe {
		t.Fatalf("%q in place of a switch of plugins", p)
	}
	c.write(c.writer.Seq, nil)
	if err := c.parseOK(c.mustRead()); err != nil {
		t.Fatalf("COM_CHANGE_USER: %v", err)
	}

	// Commands that do not wait for answers, and two in one frame.
	c.command(wire.ComPing, "")
	c.command(wire.ComPing, "")
	c.writer.Seq = 0
	ping := wire.AppendPacket(nil, 0, []byte{byte(wire.ComPing)})
	c.send(append(ping, ping...))
	for range 4 {
		c.reader.AnySeq = true // which frame an answer is in, is not said
		if err := c.parseOK(c.mustRead()); err != nil {
			t.Errorf("a ping: %v", err)
		}
	}
	c.reader.AnySeq = false
}

// The proxy's own errors come in frames, with the number that the client expects.
func TestCompressedErrors(t *testing.T) {
	for name, a := range algorithms {
		t.Run(name, func(t *testing.T) {
			here, _ := pair(t, nil)
			r := newRig(t, nil, here.Addr())
			for what, tt := range map[string]struct {
				do   func(*client)
				code uint16
				why  netio.Reason
			}{
				"the server dies": {func(c *client) {
					c.command(wire.ComQuery, "SELECT SLEEP('s')")
					testkit.WaitFor(t, "the query is there", func() bool { return here.Sleeping("s") == 1 })
					here.CloseConns()
				}, 1105, netio.UpstreamFIN},
				"an idle server dies":    {func(*client) { here.CloseConns() }, 1105, netio.UpstreamFIN},
				"an unknown command":     {func(c *client) { c.command(0x77, "") }, 1047, session.BadPacket},
				"a number that is wrong": {func(c *client) { c.writer.Seq = 3; c.write(0, []byte{byte(wire.ComPing)}) }, 1156, session.BadPacket},
				"a damaged frame": {func(c *client) {
					_, _ = c.net.Write([]byte{5, 0, 0, 0, 100, 0, 0, 1, 2, 3, 4, 5})
				}, 1156, session.BadPacket},
			} {
				t.Run(what, func(t *testing.T) {
					c := mustLogIn(t, r.addr(), compressed(a))
					c.mustRun(wire.ComPing, "")
					tt.do(c)
					c.reader.Seq = 1 // the first frame of an answer
					p, err := c.read()
					if err != nil {
						t.Fatal(err)
					}
					if err := c.parseOK(p); code(err) != tt.code {
						t.Errorf("%v, want error %d", err, tt.code)
					}
					r.mustEnd(tt.why)
				})
			}
		})
	}
}

// A frame is decompressed no further than the server takes its bytes.
func TestCompressedBomb(t *testing.T) {
	plain := wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, make([]byte, 2*wire.MaxPayload-100)...))
	size := int64(len(plain))
	read, whole := make(chan struct{}), make(chan error, 1)
	stop := sync.OnceFunc(func() { close(read) })
	defer stop()
	addr := testkit.Serve(t, func(c net.Conn) {
		greet(t, c)
		<-read
		n, err := io.CopyN(io.Discard, c, size)
		if n == size {
			_, err = c.Write(wire.AppendPacket(nil, 2, wire.AppendOK(nil, &wire.OK{}, 0)))
		}
		whole <- err
		_, _ = io.Copy(io.Discard, c)
	})
	r := newRig(t, nil, addr)
	c := mustLogIn(t, r.addr(), compressed(wire.Compress))
	frames := zeros(t, plain) // 130 KiB
	go func() { _, _ = c.net.Write(frames) }()
	h := r.last()
	testkit.WaitFor(t, "the server takes no more", func() (stands bool) {
		h.do(func() { stands = session.Pending(h.session, relay.Upstream) > 0 })
		return stands
	})
	h.do(func() {
		if kept := session.Pending(h.session, relay.Upstream); kept > 1<<20 {
			t.Errorf("%d bytes are kept for the server", kept)
		}
	})
	stop()
	if err := testkit.Receive(t, "the whole command", whole); err != nil {
		t.Fatal(err)
	}
	c.reader.AnySeq = true
	if err := c.parseOK(c.mustRead()); err != nil {
		t.Error(err)
	}
}

// zeros returns frames of zlib with as many plain bytes as there may be.
func zeros(t *testing.T, plain []byte) (frames []byte) {
	t.Helper()
	for seq := byte(0); len(plain) > 0; seq++ {
		n := min(len(plain), wire.MaxPayload)
		var body bytes.Buffer
		z := zlib.NewWriter(&body)
		if _, err := z.Write(plain[:n]); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		plain = plain[n:]
		frames = append(wire.AppendHeader(frames, body.Len(), seq), byte(n), byte(n>>8), byte(n>>16))
		frames = append(frames, body.Bytes()...)
	}
	return frames
}

// go-sql-driver compresses, and its session moves.
func TestCompressedDriver(t *testing.T) {
	here, there := pair(t, nil)
	r := newRig(t, nil, here.Addr())
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.Logger = "root", "tcp", r.addr(), &mysql.NopLogger{}
	if err := config.Apply(mysql.EnableCompression(true)); err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for i := range 20 {
		var got string
		if err := conn.QueryRowContext(t.Context(), "SELECT REPEAT(?, 50000)", fmt.Sprint(i%10)).Scan(&got); err != nil || len(got) != 50000 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		r.last().mustMove([]string{there.Addr(), here.Addr()}[i%2])
	}
}
