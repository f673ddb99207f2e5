package tlsstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio/stream"
)

func TestALPNAndServerName(t *testing.T) {
	for _, r := range []role{asServer, asClient} {
		server, client := configs(t, 0)
		server.NextProtos = []string{"h2", "kafka"}
		client.NextProtos = []string{"kafka"}
		e := connect(t, r, server, client)
		if got := e.s.ConnectionState(); got.NegotiatedProtocol != "kafka" || got.ServerName != serverName {
			t.Fatalf("as %v: protocol %q, server name %q", r, got.NegotiatedProtocol, got.ServerName)
		}
	}
}

func TestPostQuantumKeyShare(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	if got := e.s.ConnectionState().CurveID; got != tls.X25519MLKEM768 {
		t.Fatalf("key exchange %v", got)
	}
	server.CurvePreferences = []tls.CurveID{tls.CurveP384} // a second hello is needed
	e = connect(t, asServer, server, client)
	if got := e.s.ConnectionState(); got.CurveID != tls.CurveP384 || !got.HelloRetryRequest {
		t.Fatalf("key exchange %v, retried %v", got.CurveID, got.HelloRetryRequest)
	}
}

func TestMutualTLS(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		server, client := configs(t, version)
		a := certs.NewCA("clients")
		server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, a.Pool
		client.Certificates = []tls.Certificate{a.Issue("web").TLS}
		e := connect(t, r, server, client)
		if r == asServer {
			if name := e.s.ConnectionState().PeerCertificates[0].Subject.CommonName; name != "web" {
				t.Fatalf("peer %q", name)
			}
		}
	})
}

// The reason is in the text, and which class it is can be asked for.
func TestFailedHandshakeSaysWhy(t *testing.T) {
	other := certs.NewCA("another authority")
	cases := []struct {
		name   string
		r      role
		change func(server, client *tls.Config)
		text   string
		is     error
	}{
		{"unknown authority, as client", asClient, func(_, c *tls.Config) { c.RootCAs = other.Pool },
			"certificate signed by unknown authority", ErrBadCertificate},
		{"unknown authority, as server", asServer, func(_, c *tls.Config) { c.RootCAs = other.Pool },
			"bad certificate", ErrRefused},
		{"another name", asClient, func(_, c *tls.Config) { c.ServerName = "www.example.org" },
			"not www.example.org", ErrBadCertificate},
		{"no protocol in common", asServer, func(s, c *tls.Config) { s.NextProtos, c.NextProtos = []string{"h2"}, []string{"kafka"} },
			"unsupported application protocols", ErrIncompatible},
		{"no version in common", asServer, func(s, c *tls.Config) { s.MinVersion, c.MaxVersion = tls.VersionTLS13, tls.VersionTLS12 },
			"unsupported versions", ErrIncompatible},
		{"client without certificate", asServer,
			func(s, _ *tls.Config) { s.ClientAuth, s.ClientCAs = tls.RequireAndVerifyClientCert, other.Pool },
			"the client showed no certificate", ErrNoCertificate},
		{"client of another authority", asServer, func(s, c *tls.Config) {
			s.ClientAuth, s.ClientCAs = tls.RequireAndVerifyClientCert, other.Pool
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &s.Certificates[0], nil
			}
		}, "failed to verify certificate", ErrBadCertificate},
		{"no certificate at all", asServer, func(s, _ *tls.Config) { s.Certificates = nil },
			"no certificates configured", stream.ErrProtocol},
		{"a callback that panics", asServer, func(s, _ *tls.Config) {
			s.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { panic("oops") }
			s.Certificates = nil
		}, "internal fault: oops", stream.ErrProtocol},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			server, client := configs(t, 0)
			c.change(server, client)
			e := newEnds(t, c.r, server, client)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if e.peer.Handshake() == nil {
					e.peer.Read(make([]byte, 1))
				}
			}()
			err := e.mustFail(t, c.is)
			if !strings.HasPrefix(err.Error(), "tls handshake: ") || !strings.Contains(err.Error(), c.text) {
				t.Errorf("says %q, want %q", err, c.text)
			}
			e.conn.Close()
			<-done
			if n := e.local.pool.Handshakes(); n != 0 {
				t.Errorf("%d handshakes under way", n)
			}
		})
	}
}

// OpenSSL refuses a certificate of TLS 1.3 in the clear, having no key yet to
// write with. An alert of another kind is told as what it is.
func TestAlertsInTheClear(t *testing.T) {
	for _, c := range []struct {
		alert byte
		is    error
		text  string
	}{
		{48, ErrRefused, "tls: unknown certificate authority"},
		{45, ErrRefused, "tls: expired certificate"},
		{80, stream.ErrReset, "tls: internal error"},
		{0, stream.ErrReset, "closed by the peer"},
	} {
		server, client := configs(t, tls.VersionTLS13)
		e := newEnds(t, asServer, server, client)
		client.VerifyConnection = func(tls.ConnectionState) error { // keys have been agreed
			_, err := e.conn.Write([]byte{recordAlert, 3, 3, 0, 2, 2, c.alert})
			must(t, err)
			runtime.Goexit()
			return nil
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = tls.Client(e.conn, client).Handshake()
		}()
		err := e.mustFail(t, c.is)
		if !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "MAC") {
			t.Errorf("alert %d: says %q, want %q", c.alert, err, c.text)
		}
		e.conn.Close()
		<-done
	}
}

// In TLS 1.3 a client is through before the server refuses its certificate.
func TestRefusedAfterTheClientsHandshake(t *testing.T) {
	server, client := configs(t, tls.VersionTLS13)
	server.ClientAuth = tls.RequireAnyClientCert
	e := newEnds(t, asClient, server, client)
	if e.peer.Handshake() == nil {
		t.Fatal("the server took a client without certificate")
	}
	err := e.mustFail(t, stream.ErrReset)
	if !strings.Contains(err.Error(), "certificate required") {
		t.Fatalf("says %q", err)
	}
}

func TestWhatIsNoTLSFailsAtOnce(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH_9\r\n", "\x16\x03\x01\xff\xff\x01", "\x80\x2e\x01\x00\x02\x00"} {
		server, client := configs(t, 0)
		e := newEnds(t, asServer, server, client)
		_, err := e.conn.Write([]byte(text))
		must(t, err)
		e.mustFail(t, stream.ErrProtocol)
	}
}

func TestEndDuringHandshake(t *testing.T) {
	for _, sent := range []string{"", "\x16\x03\x01", "\x16\x03\x01\x02\x00\x01\x00"} {
		for _, reset := range []bool{false, true} {
			server, client := configs(t, 0)
			e := newEnds(t, asServer, server, client)
			_, err := e.conn.Write([]byte(sent))
			must(t, err)
			if reset {
				e.loop.do(e.far.Abort)
			} else {
				e.conn.CloseWrite()
			}
			e.mustFail(t, stream.ErrReset)
			if n := e.local.pool.Handshakes(); n != 0 {
				t.Fatalf("%d handshakes under way", n)
			}
		}
	}
}

// gate is a callback in which a handshake waits on its worker.
type gate struct{ entered, leave chan struct{} }

func newGate(c *tls.Config) *gate {
	g := &gate{make(chan struct{}, 100), make(chan struct{})}
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		g.entered <- struct{}{}
		<-g.leave
		return nil, nil
	}
	return g
}

func TestPoolRefusesWhatIsTooMuch(t *testing.T) {
	server, client := configs(t, 0)
	l := newFakeLoop(t)
	local := NewLocal(l, NewPool(2))
	first := newEndsOn(t, l, local, asServer, server, client) // waits for a hello
	newEndsOn(t, l, local, asServer, server, client)
	third := newEndsOn(t, l, local, asServer, server, client)
	third.mustFail(t, ErrBusy)
	fourth := newEndsOn(t, l, local, asClient, server, client)
	fourth.mustFail(t, ErrBusy)
	l.do(first.s.Abort)
	newEndsOn(t, l, local, asServer, server, client).handshake(t)
}

// Steps queue behind the workers; each of them is done in the end.
func TestHandshakesQueueForWorkers(t *testing.T) {
	server, client := configs(t, 0)
	g := newGate(server)
	l := newFakeLoop(t)
	local := NewLocal(l, NewPool(100))
	local.StepLimit = 0
	local.pool.workers = 2
	var all []*ends
	var wg sync.WaitGroup
	for range 10 {
		e := newEndsOn(t, l, local, asServer, server, client)
		all = append(all, e)
		wg.Go(func() { e.peer.Handshake() })
	}
	<-g.entered
	<-g.entered
	l.until(t, "a queue", func() bool {
		n := 0
		for _, e := range all {
			if e.s.hs != nil && e.s.hs.given {
				n++
			}
		}
		return n == len(all)
	})
	select {
	case <-g.entered:
		t.Fatal("three run at once")
	default:
	}
	close(g.leave)
	wg.Wait()
	for _, e := range all {
		e.handshake(t)
	}
}

// Abort gives everything back, wherever the handshake is: the leak check of
// the package sees a coroutine that is left.
func TestAbortDuringHandshake(t *testing.T) {
	server, client := configs(t, 0)
	abort := map[string]func(t *testing.T, e *ends){
		"before the hello": func(*testing.T, *ends) {},
		"while waiting for a turn": func(t *testing.T, e *ends) {
			done := make(chan struct{})
			e.loop.do(func() { // the loop does not come to its turn before the abort
				e.under.SetReading(false)
				go func() { e.peer.Handshake(); close(done) }()
			})
			t.Cleanup(func() { e.conn.Close(); <-done })
			e.loop.until(t, "a hello", func() bool { return len(e.under.arrived) > 0 })
			e.loop.do(func() {
				e.s.Received(e.under.arrived)
				if !e.s.hs.turn {
					t.Error("not waiting for a turn")
				}
				e.s.Abort()
			})
		},
		"while waiting for the client": func(t *testing.T, e *ends) {
			e.loop.do(func() { e.far.SetReading(false) })
			e.beside.Go(func() { e.peer.Handshake() })
			e.loop.until(t, "the server's flight", func() bool { return e.under.sends > 0 })
		},
	}
	for name, prepare := range abort {
		for _, end := range []func(*Stream){(*Stream).Abort, (*Stream).Close} {
			t.Run(name, func(t *testing.T) {
				e := newEnds(t, asServer, server, client)
				prepare(t, e)
				e.loop.do(func() {
					end(e.s)
					if n := e.local.pool.Handshakes(); n != 0 {
						t.Errorf("%d handshakes under way", n)
					}
					if !e.under.dead {
						t.Error("the stream below is open")
					}
				})
				if e.own.failed != nil {
					t.Errorf("the owner was told %v", e.own.failed)
				}
			})
		}
	}
}

// One runs, one is queued; both are aborted.
func TestAbortOfWhatComputesAndWhatIsQueued(t *testing.T) {
	server, client := configs(t, 0)
	g := newGate(server)
	l := newFakeLoop(t)
	local := NewLocal(l, NewPool(100))
	local.StepLimit = 0
	local.pool.workers = 1
	runs := newEndsOn(t, l, local, asServer, server, client)
	runs.beside.Go(func() { runs.peer.Handshake() })
	<-g.entered
	queued := newEndsOn(t, l, local, asServer, server, client)
	queued.beside.Go(func() { queued.peer.Handshake() })
	l.until(t, "the queue", func() bool { return queued.s.hs.given })
	l.do(func() {
		queued.s.Abort()
		if n := local.pool.Handshakes(); n != 1 {
			t.Errorf("%d handshakes under way, want the running one", n)
		}
		runs.s.Abort()
	})
	close(g.leave)
	last := newEndsOn(t, l, local, asServer, server, client)
	last.handshake(t)
	if runs.own.failed != nil || queued.own.failed != nil {
		t.Fatal("told after Abort")
	}
	l.until(t, "the pool to be empty", func() bool {
		l.Post(func() {}) // look again
		return local.pool.Handshakes() == 0
	})
}

// A loop that ends with handshakes on the way leaves nothing.
func TestLoopEndsDuringHandshake(t *testing.T) {
	server, client := configs(t, 0)
	g := newGate(server)
	l := newFakeLoop(t)
	local := NewLocal(l, NewPool(100))
	local.StepLimit = 0
	e := newEndsOn(t, l, local, asServer, server, client)
	e.beside.Go(func() { e.peer.Handshake() })
	<-g.entered
	l.close()
	close(g.leave) // the worker cannot post and ends the coroutine
	testkit.WaitFor(t, "the end of the handshakes", func() bool { return local.pool.Handshakes() == 0 })
}

// Many at once, some given up at any moment; run with -race.
func TestManyHandshakesAndAborts(t *testing.T) {
	for name, limit := range map[string]time.Duration{"on the loop": time.Hour, "on workers": 0, "on both": time.Nanosecond} {
		t.Run(name, func(t *testing.T) { manyHandshakes(t, limit) })
	}
}

func manyHandshakes(t *testing.T, limit time.Duration) {
	server, client := configs(t, 0)
	l := newFakeLoop(t)
	local := NewLocal(l, NewPool(1000))
	local.StepLimit = limit
	var wg sync.WaitGroup
	for i := range 60 {
		e := newEndsOn(t, l, local, role(i%2 == 0), server, client)
		wg.Go(func() {
			if i%3 == 0 {
				turns := 0
				l.until(t, "its turn", func() bool { turns++; l.Post(func() {}); return turns > i })
				l.do(e.s.Abort)
				return
			}
			if err := e.peer.Handshake(); err != nil {
				t.Error(err)
			}
			l.until(t, "Connected", func() bool { return e.own.connected == 1 })
		})
		if i%3 == 0 {
			e.beside.Go(func() { e.peer.Handshake() })
		}
	}
	wg.Wait()
	l.until(t, "the pool to be empty", func() bool { l.Post(func() {}); return local.pool.Handshakes() == 0 })
}

// Some long steps in a row send the next ones to the workers; a single one,
// and a loop whose steps are short, do not.
func TestLongStepsGoToWorkers(t *testing.T) {
	l := newFakeLoop(t)
	local := NewLocal(l, NewPool(1))
	short, long := local.StepLimit/2, local.StepLimit*2
	taken := func() (n int) {
		for range 1000 {
			if local.takesStep() {
				n++
			}
		}
		return n
	}
	for range 100 {
		local.pace(long)
		local.pace(short)
		local.pace(short)
	}
	if n := taken(); n != 1000 {
		t.Fatalf("%d of 1000 on the loop after short ones", n)
	}
	for range 3 {
		local.pace(long)
	}
	if n := taken(); n != 1000-offloadSteps {
		t.Fatalf("%d of 1000 on the loop after long ones, want all but %d", n, offloadSteps)
	}
	local.steps = make([]*handshake, maxWaiting)
	if n := taken(); n != 0 {
		t.Fatalf("%d on the loop though %d wait", n, maxWaiting)
	}
}

// A client that sends its request and its end along with the last flight.
func TestDataAndEndWithTheLastFlight(t *testing.T) {
	server, client := configs(t, 0)
	e := newEnds(t, asServer, server, client)
	e.loop.do(func() { e.under.SetReading(true) })
	e.beside.Go(func() {
		if e.peer.Handshake() != nil {
			return
		}
		fmt.Fprint(e.peer, "request")
		e.peer.CloseWrite()
		e.conn.CloseWrite()
	})
	e.loop.until(t, "Ended", func() bool { return e.own.ended == 1 || e.own.failed != nil })
	if string(e.own.got) != "request" || e.own.failed != nil {
		t.Fatalf("got %q, failed %v", e.own.got, e.own.failed)
	}
}

// An owner that reads later gets what came before.
func TestOwnerReadsOnlyAfterConnected(t *testing.T) {
	server, client := configs(t, 0)
	e := newEnds(t, asServer, server, client)
	e.loop.do(func() {
		e.s.SetReading(false)
		e.own.onUp = func() {
			if e.under.reading {
				t.Error("reading, though the owner does not")
			}
			e.s.Send([]byte("welcome"))
			e.s.SetReading(true)
		}
	})
	must(t, e.peer.Handshake())
	_, err := e.peer.Write([]byte("hi"))
	must(t, err)
	got := make([]byte, 7)
	_, err = io.ReadFull(e.peer, got)
	must(t, err)
	if string(got) != "welcome" || string(e.received(t, 2)) != "hi" {
		t.Fatalf("%q, %q", got, e.own.got)
	}
}

// The early bytes count as read, however many they are.
func TestEarlyBytes(t *testing.T) {
	server, client := configs(t, 0)
	for _, early := range []int{1, 5, 100, 10000} {
		l := newFakeLoop(t)
		under, far := newMemPair(l)
		c := newConn(far)
		own := &owner{keep: true}
		peer := tls.Client(c, client)
		done := make(chan error, 1)
		go func() { done <- peer.Handshake() }()
		l.until(t, "a hello", func() bool { return len(under.arrived) > 0 })
		var s *Stream
		l.do(func() {
			early := min(early, len(under.arrived))
			hello := under.arrived[:early]
			under.arrived = under.arrived[early:]
			s = NewLocal(l, NewPool(1)).Server(under, server, hello, own)
			clear(hello) // it is the caller's again
			under.owner = s
			under.schedule()
		})
		must(t, <-done)
		l.until(t, "Connected", func() bool { return own.connected == 1 })
		l.do(s.Abort)
		c.Close()
	}
}

func TestTLSInTLS(t *testing.T) {
	server, client := configs(t, tls.VersionTLS13)
	client.DynamicRecordSizingDisabled = true
	e := connect(t, asServer, server, client)
	inner := &owner{keep: true}
	var s *Stream
	e.loop.do(func() {
		e.s.SetReading(false)
		s = e.local.Server(e.s, server, nil, inner)
		e.s.owner = s
		s.SetReading(true)
	})
	peer := tls.Client(e.peer, client)
	must(t, peer.Handshake())
	// A full record inside makes two outside, one of 16406 bytes and one of
	// 44. Each piece ends in the middle of the latter, so that every record
	// inside is cut and followed by more.
	e.loop.do(func() {
		e.under.SetReading(false)
		piece := 16406 + 22
		e.under.cut = func() int { defer func() { piece = 16406 + 44 }(); return piece }
	})
	want := noise(200 << 10)
	_, err := peer.Write(want)
	must(t, err)
	e.loop.do(func() { e.under.SetReading(true) })
	e.loop.until(t, "bytes", func() bool { return len(inner.got) == len(want) || inner.failed != nil })
	if string(inner.got) != string(want) {
		t.Fatalf("bytes differ; failed: %v", inner.failed)
	}
	if !errors.Is(inner.failed, nil) || s.PipeTo(e.s) {
		t.Fatal("failed, or moves bytes past TLS")
	}
}

// Anything as a ClientHello: no panic, and Failed once the peer ends.
func FuzzHello(f *testing.F) {
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"), []byte{3})
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"), []byte{})
	f.Add([]byte("\x15\x03\x03\x00\x02\x02\x28\x17\x03\x03\x00\x01\x00"), []byte{1})
	server, client := configs(f, 0)
	f.Fuzz(func(t *testing.T, hello, cuts []byte) {
		e := newEnds(t, asServer, server, client)
		turn := 0
		e.loop.do(func() {
			e.under.cut = func() int {
				if turn++; len(cuts) == 0 {
					return 1 << 20
				}
				return int(cuts[turn%len(cuts)]) + 1
			}
		})
		_, err := e.conn.Write(hello)
		must(t, err)
		e.conn.CloseWrite()
		e.failure(t)
		if n := e.local.pool.Handshakes(); n != 0 {
			t.Fatalf("%d handshakes under way", n)
		}
	})
}
