package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"penstock/mysql/wire"
)

// server is a stand-in that takes every login and has its answers ready, so that it
// leaves the cores to the proxies. It hands sessions over as TiDB does, with an empty
// state, and takes every token.
type server struct {
	l    net.Listener
	open atomic.Int64 // sessions that are logged in

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	left  []departure
}

// departure is a session that has moved away.
type departure struct {
	asked time.Time // when its states were asked for
	gone  time.Time // when the proxy left this server
}

// The queries of the clients, and what they are answered.
var (
	textQuery = wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, "SELECT name FROM accounts WHERE id = 4711"...))
	textRows  = rows(1, "name", bytes.Repeat([]byte("p"), 20))
	longQuery = wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, "SELECT long_text FROM documents WHERE id = 1"...))
	longRows  = rows(1, "long_text", bytes.Repeat([]byte("q"), 60_000))
	hugeQuery = wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, "SELECT huge_text FROM documents WHERE id = 1"...))
	hugeRows  = rows(1, "huge_text", bytes.Repeat([]byte("r"), 1_000_000))
	manyQuery = wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, "SELECT line FROM lines"...))
	manyRows  = rows(10_000, "line", bytes.Repeat([]byte("s"), 95))
	showQuery = wire.AppendShowStates(nil)
	states    = rows(1, "Session_states", []byte(`{"sys-vars":{}}`), "Session_token", []byte("token"))
	quit      = wire.AppendPacket(nil, 0, []byte{byte(wire.ComQuit)})
	okPacket  = wire.AppendPacket(nil, 1, wire.AppendOK(nil, &wire.OK{Status: wire.Autocommit}, capabilities))
)

const (
	// capabilities are those of the stand-in and of the clients, SSL aside.
	capabilities = wire.LongPassword | wire.Protocol41 | wire.Transactions | wire.SecureConnection | wire.MultiStatements |
		wire.MultiResults | wire.PSMultiResults | wire.PluginAuth | wire.PluginAuthLenencClientData | wire.DeprecateEOF
	nativePlugin = "mysql_native_password"
	version      = "8.0.11-TiDB-v8.5.0"
)

// rows returns an answer of n equal rows; columns are pairs of a name and a value.
func rows(n int, columns ...any) []byte {
	seq := byte(1)
	var all []byte
	add := func(payload []byte) {
		all = wire.AppendPacket(all, seq, payload)
		seq++
	}
	add([]byte{byte(len(columns) / 2)})
	var row []byte
	for i := 0; i < len(columns); i += 2 {
		add(definition(columns[i].(string)))
		row = wire.AppendString(row, columns[i+1].([]byte))
	}
	for range n {
		add(row)
	}
	add(wire.AppendOK(nil, &wire.OK{Status: wire.Autocommit, EndsRows: true}, capabilities))
	return all
}

// definition returns the definition of a text column (Protocol::ColumnDefinition41).
func definition(name string) []byte {
	var p []byte
	for _, s := range []string{"def", "bench", "t", "t", name, name} {
		p = wire.AppendString(p, s)
	}
	return append(p, 0x0c, 45, 0, 0xff, 0xff, 0xff, 0xff, 0xfd, 0, 0, 0, 0, 0)
}

func newServer() (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ended by close
	if err != nil {
		return nil, err
	}
	s := &server{l: l, conns: map[net.Conn]struct{}{}}
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			go s.serve(c)
		}
	}()
	return s, nil
}

func (s *server) addr() string { return s.l.Addr().String() }

func (s *server) close() {
	s.l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// departures returns the sessions that have moved away since the last call.
func (s *server) departures() []departure {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.left
	s.left = nil
	return left
}

// gone returns how many sessions departures would return.
func (s *server) gone() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.left)
}

func (s *server) serve(c net.Conn) {
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReaderSize(c, 4096)
	if s.login(c, in) != nil {
		return
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	var asked time.Time
	for {
		payload, _, err := readPacket(in)
		if err != nil || len(payload) == 0 {
			return
		}
		var answer []byte
		switch query := payload[1:]; {
		case wire.Command(payload[0]) == wire.ComQuit:
			if !asked.IsZero() {
				s.mu.Lock()
				s.left = append(s.left, departure{asked, time.Now()})
				s.mu.Unlock()
			}
			return
		case bytes.Equal(payload, textQuery[wire.HeaderSize:]):
			answer = textRows
		case bytes.Equal(payload, longQuery[wire.HeaderSize:]):
			answer = longRows
		case bytes.Equal(payload, hugeQuery[wire.HeaderSize:]):
			answer = hugeRows
		case bytes.Equal(payload, manyQuery[wire.HeaderSize:]):
			answer = manyRows
		case bytes.Equal(payload, showQuery):
			asked, answer = time.Now(), states
		case bytes.HasPrefix(query, []byte("SET SESSION_STATES ")):
			answer = okPacket
		default:
			answer = wire.AppendPacket(nil, 1, wire.AppendError(nil, &wire.Error{Code: 1064, State: "42000", Message: "not a query of the benchmark"}))
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// login greets a client and lets it in: at once with the plugin of the greeting or a
// token, and otherwise after a request to switch to that plugin.
func (s *server) login(c net.Conn, in *bufio.Reader) error {
	g := wire.Greeting{ServerVersion: version, Capabilities: capabilities, Collation: 45, Status: wire.Autocommit, Plugin: nativePlugin}
	copy(g.Salt[:], "a salt of 20 letters")
	if _, err := c.Write(wire.AppendPacket(nil, 0, wire.AppendGreeting(nil, &g))); err != nil {
		return err
	}
	payload, seq, err := readPacket(in)
	if err != nil {
		return err
	}
	l, err := wire.ParseLogin(payload)
	if err != nil {
		return err
	}
	if l.Plugin != nativePlugin && l.Plugin != wire.TokenPlugin {
		ask := wire.AppendAuthSwitch(nil, &wire.AuthSwitch{Plugin: nativePlugin, Data: append(g.Salt[:], 0)})
		if _, err := c.Write(wire.AppendPacket(nil, seq+1, ask)); err != nil {
			return err
		}
		if _, seq, err = readPacket(in); err != nil {
			return err
		}
	}
	_, err = c.Write(wire.AppendPacket(nil, seq+1, okPacket[wire.HeaderSize:]))
	return err
}

// readPacket reads a packet of at most the buffer's size; the payload is valid until the
// next call.
func readPacket(in *bufio.Reader) (payload []byte, seq byte, err error) {
	head, err := in.Peek(wire.HeaderSize)
	if err != nil {
		return nil, 0, err
	}
	n, seq := wire.ParseHeader(head)
	all, err := in.Peek(wire.HeaderSize + n)
	if err != nil {
		return nil, 0, err
	}
	_, err = in.Discard(len(all))
	return all[wire.HeaderSize:], seq, err
}

// answered reads an answer and compares it with the expected one.
func answered(in io.Reader, buf, want []byte) error {
	buf = buf[:len(want)]
	if _, err := io.ReadFull(in, buf); err != nil {
		return err
	}
	if !bytes.Equal(buf, want) {
		return errors.New("the answer is another one")
	}
	return nil
}
