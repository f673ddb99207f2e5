package dns

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

// peer is a DNS server on loopback, by UDP and TCP on one port.
type peer struct {
	address string
	tcp     atomic.Int64 // questions by TCP
}

// startPeer starts a server until the test ends.
func startPeer(t testing.TB, handle func(w dns.ResponseWriter, question *dns.Msg, network string)) *peer {
	t.Helper()
	p := &peer{}
	packets, listener := listen(t)
	p.address = packets.LocalAddr().String()
	for network, s := range map[string]*dns.Server{"udp": {PacketConn: packets}, "tcp": {Listener: listener}} {
		s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
			if network == "tcp" {
				p.tcp.Add(1)
			}
			handle(w, question, network)
		})
		started, done := make(chan struct{}), make(chan error, 1)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { done <- s.ActivateAndServe() }()
		select {
		case <-started:
		case err := <-done:
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = s.Shutdown()
			<-done
		})
	}
	return p
}

// listen listens on one port of loopback, by UDP and TCP.
func listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	var err error
	for range 100 {
		var packets net.PacketConn
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, listener
		}
		_ = packets.Close() // the port of TCP is another program's
	}
	t.Fatal(err)
	return nil, nil
}

func send(w dns.ResponseWriter, m *dns.Msg) { _ = w.WriteMsg(m) }

// start runs a source that asks these servers, without limits that a busy
// machine could meet.
func start(t testing.TB, cfg Config, queries []provider.Query, peers ...*peer) *providertest.Sink {
	t.Helper()
	for _, p := range peers {
		cfg.Servers = append(cfg.Servers, p.address)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	sink := providertest.NewSink(queries...)
	sink.Start(t, source)
	return sink
}

// large returns a zone whose answer has n addresses, and the endpoints of that.
func large(t testing.TB, n int) (*zone, string) {
	var text, want []string
	for i := range n {
		text = append(text, fmt.Sprintf("web 60 IN A 10.0.%d.%d", i/200, i%200+1))
		want = append(want, fmt.Sprintf("10.0.%d.%d:80", i/200, i%200+1))
	}
	sink := providertest.NewSink()
	var endpoints []provider.Endpoint
	for _, a := range want {
		endpoints = append(endpoints, provider.Endpoint{Address: a, Weight: 1})
	}
	sink.Report(web, endpoints)
	return newZone(t, strings.Join(text, "\n")), sink.Text(web)
}

func TestTruncatedAnswersComeByTCP(t *testing.T) {
	z, want := large(t, 3000)
	p := startPeer(t, func(w dns.ResponseWriter, question *dns.Msg, network string) {
		m := z.answer(question)
		if network == "udp" {
			size := dns.MinMsgSize
			if edns := question.IsEdns0(); edns != nil {
				size = int(edns.UDPSize())
			}
			if size != DefaultUDPSize {
				t.Errorf("the server may send %d bytes, want %d", size, DefaultUDPSize)
			}
			m.Truncate(size)
		} else {
			m.Compress = true
		}
		send(w, m)
	})
	sink := start(t, Config{}, []provider.Query{web}, p)
	sink.Await(t, web, want)
	if n := p.tcp.Load(); n != 1 {
		t.Errorf("%d questions by TCP, want the large one", n)
	}
}

// TestMalformedDatagramsComeByTCP checks a datagram that is longer than the
// client allows, and so cut.
func TestMalformedDatagramsComeByTCP(t *testing.T) {
	z, want := large(t, 200)
	p := startPeer(t, func(w dns.ResponseWriter, question *dns.Msg, _ string) { send(w, z.answer(question)) })
	sink := start(t, Config{UDPSize: 512}, []provider.Query{web}, p)
	sink.Await(t, web, want)
	if p.tcp.Load() == 0 {
		t.Error("nothing was asked by TCP")
	}
}

// TestForgedAnswers checks that datagrams which do not answer the question are
// ignored.
func TestForgedAnswers(t *testing.T) {
	z := newZone(t, "web 60 IN A 10.0.0.1")
	forged := newZone(t, "web 60 IN A 10.6.6.6\nevil 60 IN A 10.6.6.6")
	p := startPeer(t, func(w dns.ResponseWriter, question *dns.Msg, _ string) {
		wrong := func(change func(m *dns.Msg)) {
			m := forged.answer(question)
			change(m)
			send(w, m)
		}
		wrong(func(m *dns.Msg) { m.Id++ })
		wrong(func(m *dns.Msg) { m.Question[0].Name = "evil.example.com." })
		wrong(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT })
		wrong(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS })
		wrong(func(m *dns.Msg) { m.Response = false })
		wrong(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify })
		wrong(func(m *dns.Msg) { m.Question = nil })
		_, _ = w.Write([]byte{1})
		_, _ = w.Write([]byte(strings.Repeat("x", 100)))
		send(w, z.answer(question))
	})
	sink := start(t, Config{}, []provider.Query{web}, p)
	sink.Await(t, web, "10.0.0.1:80")
}

// TestServerWithoutEDNS checks both ways in which servers refuse EDNS0.
func TestServerWithoutEDNS(t *testing.T) {
	z := newZone(t, "web 60 IN A 10.0.0.1")
	for _, rcode := range []int{dns.RcodeFormatError, dns.RcodeNotImplemented} {
		for _, repeats := range []bool{false, true} {
			p := startPeer(t, func(w dns.ResponseWriter, question *dns.Msg, _ string) {
				m := z.answer(question)
				if question.IsEdns0() != nil {
					m = new(dns.Msg).SetRcode(question, rcode)
					if !repeats {
						m.Question = nil
					}
				}
				send(w, m)
			})
			sink := start(t, Config{}, []provider.Query{web}, p)
			sink.Await(t, web, "10.0.0.1:80")
		}
	}
}

// TestPeersThatMisbehave checks what a query fails with.
func TestPeersThatMisbehave(t *testing.T) {
	truncated := func(_ net.Conn, question []byte) []byte {
		question[2] |= 0x82 // response, truncated
		return question
	}
	tests := []struct {
		name string
		udp  func(conn net.Conn, question []byte) []byte
		tcp  func(conn net.Conn, question []byte)
		want string
	}{
		{"resets TCP", truncated, func(conn net.Conn, _ []byte) { _ = conn.(*net.TCPConn).SetLinger(0) }, "connection reset by peer"},
		{"ends TCP within the length", truncated, func(conn net.Conn, _ []byte) { _, _ = conn.Write([]byte{200}) }, "EOF"},
		{"ends TCP within the answer", truncated, func(conn net.Conn, _ []byte) { _, _ = conn.Write([]byte{200, 0, 1, 2, 3}) }, "EOF"},
		{"answers another question by TCP", truncated, func(conn net.Conn, question []byte) {
			question[1]++
			_, _ = conn.Write(binary.BigEndian.AppendUint16(nil, uint16(len(question))))
			_, _ = conn.Write(question)
		}, "answers another question"},
		{"malformed by TCP as well", truncated, func(conn net.Conn, question []byte) {
			question[2] |= 0x80
			question[5] = 9 // questions
			_, _ = conn.Write(binary.BigEndian.AppendUint16(nil, uint16(len(question))))
			_, _ = conn.Write(question)
		}, "malformed answer"},
		{"trickles by TCP", truncated, func(conn net.Conn, _ []byte) {
			_, _ = conn.Write([]byte{200, 0})
			for {
				if _, err := conn.Write([]byte{0}); err != nil {
					return
				}
				select {
				case <-t.Context().Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}, "no answer in 100ms"},
		{"never answers", func(net.Conn, []byte) []byte { return nil }, nil, "no answer in 100ms"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			packets, listener := listen(t)
			defer packets.Close()
			defer listener.Close()
			go func() {
				buf := make([]byte, 4096)
				for {
					n, from, err := packets.ReadFrom(buf)
					if err != nil {
						return
					}
					if m := test.udp(nil, buf[:n]); m != nil {
						_, _ = packets.WriteTo(m, from)
					}
				}
			}()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					var length [2]byte
					if _, err := io.ReadFull(conn, length[:]); err == nil {
						question := make([]byte, binary.BigEndian.Uint16(length[:]))
						if _, err := io.ReadFull(conn, question); err == nil {
							test.tcp(conn, question)
						}
					}
					conn.Close()
				}
			}()
			timeout := 30 * time.Second
			if strings.HasPrefix(test.want, "no answer") {
				timeout = 100 * time.Millisecond
			}
			p := &peer{address: packets.LocalAddr().String()}
			sink := start(t, Config{Timeout: timeout}, []provider.Query{web}, p)
			sink.AwaitFailure(t, web, test.want)
			sink.AwaitFailure(t, web, p.address)
		})
	}
}

// TestNobodyListens checks that the error names the server, and no port of ours.
func TestNobodyListens(t *testing.T) {
	// A connected socket keeps the port, and takes no datagrams of others.
	holder, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	address := holder.LocalAddr().String()
	sink := start(t, Config{}, []provider.Query{web}, &peer{address: address})
	sink.AwaitFailure(t, web, "records of web.example.com. ("+address+": read: connection refused)")
}

// TestEndsWithinAnExchange checks that the end of the context is not delayed by a
// server that never answers.
func TestEndsWithinAnExchange(t *testing.T) {
	asked := make(chan struct{}, 100)
	p := startPeer(t, func(dns.ResponseWriter, *dns.Msg, string) { asked <- struct{}{} })
	source, err := New(Config{Servers: []string{p.address}, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	sink := providertest.NewSink(web, webSRV)
	go func() { done <- source.Run(ctx, sink) }()
	<-asked
	cancel()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the source waits for the server")
	}
	if err := sink.Err(web); err != nil {
		t.Errorf("the end is reported as a failure: %v", err)
	}
}

// TestPortsAndIDsVary checks what makes forging answers hard.
func TestPortsAndIDsVary(t *testing.T) {
	const asked = 200
	var mu sync.Mutex
	ports, ids := map[string]bool{}, map[uint16]bool{}
	z := newZone(t, "web 60 IN A 10.0.0.1")
	p := startPeer(t, func(w dns.ResponseWriter, question *dns.Msg, _ string) {
		mu.Lock()
		ports[w.RemoteAddr().String()], ids[question.Id] = true, true
		mu.Unlock()
		send(w, z.answer(question))
	})
	server := netip.MustParseAddrPort(p.address)
	for range asked {
		if _, err := exchange(t.Context(), "udp", server, new(dns.Msg).SetQuestion("web.example.com.", dns.TypeA)); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ports) < asked/2 || len(ids) < asked/2 {
		t.Errorf("%d questions from %d ports with %d IDs", asked, len(ports), len(ids))
	}
}

func FuzzParse(f *testing.F) {
	question := new(dns.Msg).SetQuestion("web.example.com.", dns.TypeA)
	question.Id = 0x1234
	z := newZone(f, "web 60 IN CNAME a\na 60 IN A 10.0.0.1\n_http._tcp 60 IN SRV 1 1 80 a")
	for _, q := range []*dns.Msg{question, new(dns.Msg).SetQuestion("_http._tcp.example.com.", dns.TypeSRV)} {
		q.Id = 0x1234
		data, err := z.answer(q).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data, question)
		if m == nil || err != nil {
			return
		}
		if m.Id != question.Id || !m.Response {
			t.Errorf("took %v for an answer", m)
		}
		ttl := DefaultMaxTTL
		for _, rr := range matching(m, "web.example.com.", dns.TypeA, &ttl) {
			if _, ok := rr.(*dns.A); !ok {
				t.Errorf("%v is no A record", rr)
			}
		}
	})
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add("nameserver 10.0.0.1\nsearch a b\noptions ndots:5 timeout:1 attempts:3\n")
	f.Add("nameserver\ndomain\nsearch\noptions ndots:-1\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseResolvConf(text)
		if err != nil {
			return
		}
		if len(s.servers) == 0 || len(s.servers) > maxServers || len(s.search) > maxSearch || s.ndots < 0 || s.ndots > 15 {
			t.Errorf("settings %+v", s)
		}
		for _, name := range s.names("web") {
			if _, ok := dns.IsDomainName(name); !ok {
				t.Errorf("would ask for %q", name)
			}
		}
	})
}

// BenchmarkLookUp looks a name with 10 addresses up at a server on loopback.
func BenchmarkLookUp(b *testing.B) {
	z, _ := large(b, 10)
	p := startPeer(b, func(w dns.ResponseWriter, question *dns.Msg, _ string) { send(w, z.answer(question)) })
	source, err := New(Config{Servers: []string{p.address}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if found, err := source.lookUp(b.Context(), web); err != nil || len(found.endpoints) != 10 {
			b.Fatal(found, err)
		}
	}
}
