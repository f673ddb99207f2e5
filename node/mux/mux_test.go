package mux_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/mux"
	"penstock/node/rpc"
)

// TestFirstByteSelectsProtocol: the first byte selects admin RPC, which reads it again, or
// Raft, which does not and gets the node ID from the certificate.
func TestFirstByteSelectsProtocol(t *testing.T) {
	p := newTestMux(t, mux.Config{})
	p.mustCall(t, rpc.DialConfig{TLS: p.ca.Client("node", "n2")})
	p.mustCall(t, rpc.DialConfig{TLS: p.ca.Client("node"), Token: token})
	client, server := p.raft(t, "n2")
	if id := server.(*mux.RaftConn).Node(); id != "n2" {
		t.Errorf("the stream is of %q", id)
	}
	go io.WriteString(client, "RAFT")
	got := make([]byte, 4)
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "RAFT" {
		t.Errorf("the stream began with %q, %v", got, err)
	}
	if p.Stats().Nodes != 1 {
		t.Errorf("%+v with one stream open", p.Stats())
	}
	server.Close()
	mustEnd(t, client, "")
	testkit.WaitFor(t, "the stream's place to come free", func() bool { return p.Stats().Nodes == 0 })
}

// TestInvalidConnectionsAreRefused: each invalid connection is closed and counted by its
// reason, and gets no information.
func TestInvalidConnectionsAreRefused(t *testing.T) {
	ports := map[bool]*testMux{
		true:  newTestMux(t, mux.Config{HandshakeTimeout: 300 * time.Millisecond, FirstByteTimeout: 300 * time.Millisecond}),
		false: newTestMux(t, mux.Config{HandshakeTimeout: time.Minute, FirstByteTimeout: time.Minute}), // for cases that send data
	}
	hasty, p := ports[true], ports[false]
	foreign := certs.NewCA("ca")
	inside := func(config *tls.Config, first string) func(net.Conn) net.Conn {
		return func(raw net.Conn) net.Conn {
			conn := tls.Client(raw, config)
			io.WriteString(conn, first)
			return conn
		}
	}
	plain := func(first string) func(net.Conn) net.Conn {
		return func(conn net.Conn) net.Conn { io.WriteString(conn, first); return conn }
	}
	stranger := p.ca.Client("node")
	for name, c := range map[string]struct {
		reason string
		open   func(net.Conn) net.Conn
		answer string // the longest allowed answer
	}{
		"HTTP":                       {"not_tls", plain("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ""},
		"zeroes":                     {"not_tls", plain(strings.Repeat("\x00", 100)), ""},
		"Raft without TLS":           {"not_tls", plain("R"), ""},
		"admin without TLS":          {"not_tls", plain("APSK\x01\x01\x00\x00"), "\x15\x03\x01\x00\x02\x02\x46"},
		"silence":                    {"silent", plain(""), ""},
		"a hello and no more":        {"silent", plain("\x16\x03\x01\x02\x00\x01"), ""},
		"garbage after a TLS byte":   {"handshake", plain("\x16\xff\xff\xff\xff\xff\xff\xff"), "\x15\x03\x01\x00\x02\x02\x46"},
		"silence inside":             {"silent", inside(hasty.ca.Client("node"), ""), ""},
		"Raft without a certificate": {"no_certificate", inside(stranger, "R"), ""},
		"a byte from the future":     {"first_byte", inside(p.ca.Client("node", "n2"), "Z"), ""},
		"a node of another cluster": {"handshake", inside(&tls.Config{
			InsecureSkipVerify: true, Certificates: foreign.Client("node", "n2").Certificates, MinVersion: tls.VersionTLS13,
		}, "R"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := ports[c.reason == "silent"]
			before := p.Stats().Refused[c.reason]
			conn := c.open(p.dialFrom(t, "127.0.0.1"))
			mustEnd(t, conn, c.answer)
			testkit.WaitFor(t, "reason "+c.reason, func() bool { return p.Stats().Refused[c.reason] == before+1 })
		})
	}
	for _, p := range ports {
		if n := strings.Count(p.log.String(), "\n"); n != 1 {
			t.Errorf("%d lines of one source within a minute, want 1:\n%s", n, p.log)
		}
	}
}

// TestManyConcurrentCommandsConnect: the default bounds on connections admit 200
// commands from one host at once. The timeouts are longer than the defaults, since
// the time for 200 handshakes depends on the machine.
func TestManyConcurrentCommandsConnect(t *testing.T) {
	p := newTestMux(t, mux.Config{HandshakeTimeout: time.Minute, FirstByteTimeout: time.Minute})
	command := rpc.DialConfig{TLS: p.ca.Client("node"), Token: token}
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { p.mustCall(t, command) })
	}
	all.Wait()
}

func TestNewerAdminClientGetsSupportedVersions(t *testing.T) {
	p := newTestMux(t, mux.Config{})
	conn, err := mux.Dial(t.Context(), p.addr, p.ca.Client("node", "n2"), mux.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "PSK\xc8\xc9\x00\x00")
	mustEnd(t, conn, "APSK\x00\x01\x01\x00")
}

// TestPlainMuxServesOnlyAdmin: a client with TLS gets a specific error.
func TestPlainMuxServesOnlyAdmin(t *testing.T) {
	p := newTestMux(t, mux.Config{TLS: noTLS})
	p.mustCall(t, rpc.DialConfig{})
	conn := p.dialFrom(t, "127.0.0.1")
	io.WriteString(conn, "R")
	mustEnd(t, conn, "")
	_, err := rpc.DialConfig{TLS: p.ca.Client("node"), Token: token}.Dial(t.Context(), p.addr)
	if !errors.Is(err, rpc.ErrWantsPlain) {
		t.Errorf("TLS to a plain port: %v", err)
	}
}

func TestPlainClientGetsTLSAlert(t *testing.T) {
	p := newTestMux(t, mux.Config{})
	for range 10 { // the answer must not be lost to a reset
		if _, err := rpc.Dial(t.Context(), p.addr); !errors.Is(err, rpc.ErrWantsTLS) {
			t.Fatalf("plain to a TLS port: %v", err)
		}
	}
}

// TestNodesAndTokensConnectDuringFlood: nodes and commands connect during a flood of
// 1,000 connections from four addresses, their own included: silence, garbage,
// 10 MB, and single bytes; then during another 1,000 that connect as fast as they
// can.
func TestNodesAndTokensConnectDuringFlood(t *testing.T) {
	p := newTestMux(t, mux.Config{MaxConns: 100, MaxPerSource: 40, HandshakeTimeout: 20 * time.Second})
	stop := make(chan struct{})
	var drips sync.WaitGroup
	large := make([]byte, 10<<20)
	flood := func(first int) {
		for i := range 1000 {
			conn := p.dialFrom(t, fmt.Sprintf("127.0.0.%d", first+i%4))
			switch i % 5 {
			case 0: // silence
			case 1:
				io.WriteString(conn, "garbage that is no TLS at all")
			case 2:
				drips.Go(func() { conn.Write(large) }) // closed after the first bytes
			case 3:
				io.WriteString(conn, "\x16\x03\x01\x40\x00\x01\x00") // a hello that never ends
			case 4:
				drips.Go(func() { drip(conn, stop) })
			}
		}
	}
	flood(1)
	node, command := rpc.DialConfig{TLS: p.ca.Client("node", "n2")}, rpc.DialConfig{TLS: p.ca.Client("node"), Token: token}
	var again sync.WaitGroup
	again.Go(func() { flood(2) })
	for range 5 {
		p.mustCall(t, node)
		p.mustCall(t, command)
		client, server := p.raft(t, "n3")
		client.Close()
		server.Close()
	}
	again.Wait()
	p.mustCall(t, node)
	p.mustCall(t, command)
	if st := p.Stats(); st.Pending > 100 || st.Refused["crowd"] == 0 || st.Refused["not_tls"] == 0 {
		t.Errorf("after the flood: %+v", st)
	}
	if n := strings.Count(p.log.String(), "\n"); n < 1 || n > 5 {
		t.Errorf("%d lines for 2,000 strangers of 5 addresses", n)
	}
	close(stop)
	p.Close()
	drips.Wait()
}

// drip sends a hello byte by byte until conn or stop is closed.
func drip(conn net.Conn, stop <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for b := byte(0x16); ; b = 3 {
		if _, err := conn.Write([]byte{b}); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

// TestConnectionsPerSourceAreBounded: a source with too many connections loses its own oldest;
// those of other sources stay.
func TestConnectionsPerSourceAreBounded(t *testing.T) {
	p := newTestMux(t, mux.Config{MaxConns: 100, MaxPerSource: 4, HandshakeTimeout: time.Minute})
	other := p.dialFrom(t, "127.0.0.2")
	var own []net.Conn
	for range 7 {
		own = append(own, p.dialFrom(t, "127.0.0.3"))
	}
	for _, conn := range own[:3] {
		mustEnd(t, conn, "")
	}
	if st := p.Stats(); st.Pending != 5 || st.Refused["crowd"] != 3 {
		t.Errorf("%+v, want 5 pending and 3 refused", st)
	}
	other.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := other.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("another source's connection: %v", err)
	}
}

func TestNodesAreBounded(t *testing.T) {
	p := newTestMux(t, mux.Config{MaxNodes: 1})
	first, served := p.raft(t, "n2")
	conn, err := mux.Dial(t.Context(), p.addr, p.ca.Client("node", "n3"), mux.Raft)
	if err == nil {
		mustEnd(t, conn, "")
		conn.Close()
	}
	p.mustCall(t, rpc.DialConfig{TLS: p.ca.Client("node"), Token: token})
	first.Close()
	served.Close()
	testkit.WaitFor(t, "the place to come free", func() bool { return p.Stats().Nodes == 0 })
	p.raft(t, "n3")
}

// TestRemovedNodesAreDropped: Drop closes all connections of one node only.
func TestRemovedNodesAreDropped(t *testing.T) {
	p := newTestMux(t, mux.Config{})
	gone, _ := p.raft(t, "n2")
	stays, served := p.raft(t, "n3")
	c, err := rpc.DialConfig{TLS: p.ca.Client("node", "n2")}.Dial(t.Context(), p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p.Drop("n2")
	mustEnd(t, gone, "")
	<-c.Done()
	go io.WriteString(stays, "x")
	if _, err := io.ReadFull(served, make([]byte, 1)); err != nil {
		t.Errorf("another node's stream: %v", err)
	}
}

// TestFirstByteTimeout: FirstByteTimeout does not depend
// on HandshakeTimeout.
func TestFirstByteTimeout(t *testing.T) {
	p := newTestMux(t, mux.Config{HandshakeTimeout: time.Hour, FirstByteTimeout: 50 * time.Millisecond})
	conn, err := mux.Connect(t.Context(), p.addr, p.ca.Client("node", "n2"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustEnd(t, conn, "")
}

// TestUnacceptedRaftStreamsAreClosed: after the Raft listener is closed, Raft
// connections are refused and admin RPC still works.
func TestUnacceptedRaftStreamsAreClosed(t *testing.T) {
	p := newTestMux(t, mux.Config{})
	p.Raft().Close()
	conn, err := mux.Dial(t.Context(), p.addr, p.ca.Client("node", "n2"), mux.Raft)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustEnd(t, conn, "")
	testkit.WaitFor(t, "it to be counted", func() bool { st := p.Stats(); return st.Refused["limit"] == 1 && st.Nodes == 0 })
	p.mustCall(t, rpc.DialConfig{TLS: p.ca.Client("node", "n2")})
}

func TestAdminClientsAreBounded(t *testing.T) {
	p := newTestMux(t, mux.Config{MaxClients: 1})
	command := rpc.DialConfig{TLS: p.ca.Client("node"), Token: token}
	c, err := command.Dial(t.Context(), p.addr)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := command.Dial(t.Context(), p.addr); err == nil {
		second.Close()
		t.Error("a second client was accepted")
	}
	p.mustCall(t, rpc.DialConfig{TLS: p.ca.Client("node", "n2")})
	c.Close()
	testkit.WaitFor(t, "the place to come free", func() bool {
		c, err := command.Dial(t.Context(), p.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// failing is a listener whose first Accepts fail with EMFILE.
type failing struct {
	net.Listener
	fails atomic.Int64
}

func (l *failing) Accept() (net.Conn, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAcceptSurvivesDescriptorExhaustion(t *testing.T) {
	ln := testkit.Listen(t)
	l := &failing{Listener: ln}
	l.fails.Store(4)
	served := make(chan struct{})
	p := mux.New(mux.Config{Listener: l, Admin: func(conn net.Conn, _ string) { conn.Close(); close(served) }})
	defer p.Close()
	start := time.Now()
	conn, err := mux.Dial(t.Context(), ln.Addr().String(), nil, mux.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-served
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("four failures were retried within %v", took)
	}
}

// TestCloseEndsEverything: Close ends Raft connections, accepted or not, admin
// connections and those before their first byte.
func TestCloseEndsEverything(t *testing.T) {
	p := newTestMux(t, mux.Config{HandshakeTimeout: time.Minute})
	stream, _ := p.raft(t, "n2")
	untaken, err := mux.Dial(t.Context(), p.addr, p.ca.Client("node", "n2"), mux.Raft)
	if err != nil {
		t.Fatal(err)
	}
	defer untaken.Close()
	testkit.WaitFor(t, "both streams to be there", func() bool { return p.Stats().Nodes == 2 })
	silent := p.dialFrom(t, "127.0.0.1")
	c, err := rpc.DialConfig{TLS: p.ca.Client("node", "n2")}.Dial(t.Context(), p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accept := make(chan error, 1)
	ln := p.Raft()
	testkit.WaitFor(t, "the silent one to be there", func() bool { return p.Stats().Pending == 1 })
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	<-closed
	go func() { _, err := ln.Accept(); accept <- err }()
	if err := <-accept; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	for _, conn := range []net.Conn{stream, untaken, silent} {
		mustEnd(t, conn, "")
	}
	<-c.Done()
	if _, err := net.Dial("tcp", p.addr); err == nil {
		t.Error("the listener is open")
	}
	if err := p.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed again: %v", err)
	}
}

func TestDialsEndWithTheirContext(t *testing.T) {
	ln := testkit.Listen(t)                    // the backlog accepts, nothing answers
	config := certs.NewCA("ca").Client("node") // made before the deadline, since keys take time
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := mux.Dial(ctx, ln.Addr().String(), config, mux.Raft); !errors.Is(err, context.DeadlineExceeded) ||
		!errors.Is(err, mux.ErrTLS) {
		t.Errorf("a dial of who says nothing: %v", err)
	}
}
