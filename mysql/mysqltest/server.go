// Package mysqltest is a stand-in for TiDB in tests: a server that listens on
// loopback, speaks MySQL's protocol, and hands sessions over by session states and
// signed tokens. It executes a small language (see query.go), records what it saw,
// and misbehaves where a Hook says so.
//
//	signer := mysqltest.NewSigner(t)
//	store := mysqltest.NewStore()
//	a := mysqltest.New(t, mysqltest.Config{Signer: signer, Store: store})
//	b := mysqltest.New(t, mysqltest.Config{Signer: signer, Store: store})
//	... a session moves from a.Addr() to b.Addr(); store.Counter("x") tells what it wrote
//
// It is for tests only, and favours being easy to follow over speed: a goroutine
// serves each connection.
package mysqltest

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"penstock/mysql/wire"
)

// User is an account of a server.
type User struct {
	Password string
	Plugin   string // "" is mysql_native_password
}

// Config configures a server. The zero value is a server without TLS and tokens
// whose user root has no password.
type Config struct {
	Addr    string // "" is a free port of 127.0.0.1
	Version string // in the greeting; "" is "8.0.11-TiDB-v8.5.0"
	Plugin  string // in the greeting; "" is mysql_native_password
	// Capabilities that the server offers; 0 is DefaultCapabilities. SSL is added
	// with TLS.
	Capabilities wire.Capabilities
	TLS          *tls.Config
	Users        map[string]User
	// Signer signs and checks session tokens. Servers that hand over sessions share
	// one. Without it, tokens are empty and refused.
	Signer *Signer
	// Now is the clock of tokens; nil is time.Now.
	Now func() time.Time
	// Store holds the counters; nil is one of the server's own.
	Store *Store
	// NoStates makes SHOW and SET SESSION_STATES syntax errors, as in MySQL.
	NoStates bool
	// ProxyProtocol requires a PROXY header before everything else.
	ProxyProtocol bool
}

// DefaultCapabilities are those of TiDB, and both compression algorithms.
const DefaultCapabilities = wire.LongPassword | wire.FoundRows | wire.LongFlag | wire.ConnectWithDB | wire.LocalFiles |
	wire.Protocol41 | wire.Interactive | wire.Transactions | wire.SecureConnection | wire.MultiStatements |
	wire.MultiResults | wire.PSMultiResults | wire.PluginAuth | wire.ConnectAttrs | wire.PluginAuthLenencClientData |
	wire.DeprecateEOF | wire.Compress | wire.ZstdCompressionAlgorithm

// Server is a running server. Its methods may be called from any goroutine.
type Server struct {
	config   Config
	listener net.Listener
	status   *statusServer
	keys     rsaKeys
	done     chan struct{}
	wg       sync.WaitGroup

	mu     sync.Mutex
	hook   Hook
	conns  map[*conn]bool
	nextID uint32
	cached map[string]bool // users whose caching_sha2_password is cached
	gates  map[string]*gate
	record Record
}

// New starts a server, and closes it when the test ends.
func New(t testing.TB, c Config) *Server {
	t.Helper()
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	if c.Version == "" {
		c.Version = "8.0.11-TiDB-v8.5.0"
	}
	if c.Plugin == "" {
		c.Plugin = nativePlugin
	}
	if c.Capabilities == 0 {
		c.Capabilities = DefaultCapabilities
	}
	if c.TLS != nil {
		c.Capabilities |= wire.SSL
	}
	if c.Users == nil {
		c.Users = map[string]User{"root": {}}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Store == nil {
		c.Store = NewStore()
	}
	listener, err := net.Listen("tcp", c.Addr) //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		config: c, listener: listener, done: make(chan struct{}),
		conns: map[*conn]bool{}, cached: map[string]bool{}, gates: map[string]*gate{},
	}
	s.status = newStatus(t, s)
	s.wg.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

// Addr is the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Store returns the counters.
func (s *Server) Store() *Store { return s.config.Store }

// SetHook replaces the hook; nil is none.
func (s *Server) SetHook(h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = h
}

// Close ends the server as a crash does: listener and connections close.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	s.mu.Unlock()
	s.listener.Close()
	s.CloseConns()
	s.status.close()
	s.wg.Wait()
}

// CloseConns closes all connections, and the server goes on.
func (s *Server) CloseConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.net.Close()
	}
}

// Conns returns how many connections are open.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) accept() {
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.nextID++
		c := newConn(s, nc, s.nextID)
		s.conns[c] = true
		s.mu.Unlock()
		select {
		case <-s.done: // CloseConns may have run before
			nc.Close()
		default:
		}
		s.wg.Go(func() {
			c.serve()
			nc.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		})
	}
}

// source returns what a connection's PROXY header says.
func (s *Server) source(br *bufio.Reader) (string, error) {
	if !s.config.ProxyProtocol {
		return "", nil
	}
	h, err := proxyproto.Read(br)
	if err != nil {
		return "", err
	}
	if h.SourceAddr == nil {
		return "LOCAL", nil
	}
	return h.SourceAddr.String(), nil
}

// newSalt returns 20 bytes without NULs.
func newSalt() (salt [20]byte) {
	rand.Read(salt[:])
	for i := range salt {
		salt[i] = 'a' + salt[i]%26
	}
	return salt
}

// Record is what a server saw, in order.
type Record struct {
	Logins   []LoginSeen
	Commands []CommandSeen
}

// LoginSeen is a login, a COM_CHANGE_USER, or a try of one.
type LoginSeen struct {
	Conn       uint32
	Login      wire.Login // as it was sent first
	ChangeUser bool
	Plugin     string // that decided
	OK         bool
	TLS        bool
	ServerName string // of TLS
	Source     string // of a PROXY header
}

// CommandSeen is a command. Payload is without the command byte.
type CommandSeen struct {
	Conn    uint32
	Command wire.Command
	Payload string
}

// Record returns a copy of what the server has seen.
func (s *Server) Record() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Record{Logins: slices.Clone(s.record.Logins), Commands: slices.Clone(s.record.Commands)}
}

// Queries returns the statements that came as COM_QUERY.
func (s *Server) Queries() []string {
	var all []string
	for _, c := range s.Record().Commands {
		if c.Command == wire.ComQuery {
			all = append(all, c.Payload)
		}
	}
	return all
}

func (s *Server) sawLogin(l LoginSeen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Logins = append(s.record.Logins, l)
}

func (s *Server) sawCommand(c CommandSeen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Commands = append(s.record.Commands, c)
}

// gate holds the sessions in SLEEP of one name.
type gate struct {
	open    chan struct{}
	waiting int
}

// gate returns the gate of a name. The caller holds mu.
func (s *Server) gate(name string) *gate {
	g := s.gates[name]
	if g == nil {
		g = &gate{open: make(chan struct{})}
		s.gates[name] = g
	}
	return g
}

// sleep waits until the name is released or the server closes.
func (s *Server) sleep(name string) {
	s.mu.Lock()
	g := s.gate(name)
	g.waiting++
	s.mu.Unlock()
	select {
	case <-g.open:
	case <-s.done:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.waiting--
}

// Sleeping returns how many sessions are in SELECT SLEEP('name').
func (s *Server) Sleeping(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gate(name).waiting
}

// Release ends the SLEEPs of a name that have begun. Later ones wait for the next
// Release.
func (s *Server) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate(name).open)
	s.gates[name] = &gate{open: make(chan struct{})}
}
