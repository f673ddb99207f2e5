package tlsstream

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/netio/stream"
)

// noise is n bytes that do not repeat.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	r.Read(b)
	return b
}

func TestBytesPassBothWays(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		server, client := configs(t, version)
		e := connect(t, r, server, client)
		if got := e.s.ConnectionState(); got.Version != version || !got.HandshakeComplete {
			t.Fatalf("state %+v, want version %x", got, version)
		}
		in, out := noise(300<<10), noise(200<<10)
		e.beside.Go(func() { e.peer.Write(in) })
		e.loop.do(func() { e.s.Send(out) })
		got := make([]byte, len(out))
		_, err := io.ReadFull(e.peer, got)
		must(t, err)
		if !bytes.Equal(got, out) {
			t.Fatal("what the peer got is not what was sent")
		}
		if !bytes.Equal(e.received(t, len(in)), in) {
			t.Fatal("what came is not what the peer sent")
		}
	})
}

// Everything, from the first byte of the handshake on, comes byte by byte.
func TestRecordsCutAtEveryByte(t *testing.T) {
	for _, known := range []bool{true, false} {
		eachKind(t, func(t *testing.T, version uint16, r role) {
			server, client := configs(t, version)
			l := newFakeLoop(t)
			local := NewLocal(l, NewPool(10))
			local.inside.known = local.inside.known && known
			e := newEndsOn(t, l, local, r, server, client)
			l.do(func() { e.under.cut = func() int { return 1 } })
			e.handshake(t)
			in := noise(3000)
			for _, size := range []int{1, 2, 997, 2000} {
				_, err := e.peer.Write(in[:size])
				must(t, err)
				in = in[size:]
			}
			want := noise(3000)
			if !bytes.Equal(e.received(t, 3000), want) {
				t.Fatal("bytes differ")
			}
			must(t, e.peer.CloseWrite())
			l.until(t, "Ended", func() bool { return e.own.ended == 1 })
		})
	}
}

// Two records in two reads, cut at every place; and whatever is held of the
// second one, the first is told at once.
func TestTwoReadsCutAnywhere(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		server, client := configs(t, version)
		e := connect(t, r, server, client)
		want, at := 0, 0
		e.loop.do(func() { e.under.cut = func() int { return at } })
		size := 2 * (5 + 16 + 8 + 1 + 10)
		for at = 1; at < size; at++ {
			e.loop.do(func() { e.under.reading = false })
			_, err := e.peer.Write(noise(10))
			must(t, err)
			_, err = e.peer.Write(noise(10))
			must(t, err)
			e.loop.do(func() { e.under.SetReading(true) })
			want += 20
			e.received(t, want)
		}
		if got := e.own.got; !bytes.Equal(got, bytes.Repeat(noise(10), want/10)) {
			t.Fatal("bytes differ")
		}
	})
}

// Random sizes, cuts, pauses and both layouts; every byte arrives in order.
func TestRandomChunks(t *testing.T) {
	server, client := configs(t, 0)
	server12, client12 := configs(t, tls.VersionTLS12)
	rapid.Check(t, func(rt *rapid.T) {
		sc, cc := server, client
		if rapid.Bool().Draw(rt, "tls12") {
			sc, cc = server12, client12
		}
		l := newFakeLoop(t)
		defer l.close()
		local := NewLocal(l, NewPool(10))
		local.inside.known = rapid.Bool().Draw(rt, "known")
		e := newEndsOn(t, l, local, role(rapid.Bool().Draw(rt, "client")), sc, cc)
		defer e.conn.Close()
		defer l.do(e.s.Abort)
		cuts := rapid.SliceOfN(rapid.IntRange(1, 40000), 1, 20).Draw(rt, "cuts")
		turn := 0
		l.do(func() {
			e.under.cut = func() int { turn++; return cuts[turn%len(cuts)] }
			e.own.onData = func([]byte) {
				if turn%3 == 0 { // a pause in the middle of a callback
					e.s.SetReading(false)
					l.Post(func() { e.s.SetReading(true) })
				}
			}
		})
		e.handshake(t)
		sizes := rapid.SliceOfN(rapid.IntRange(0, 70000), 1, 8).Draw(rt, "sizes")
		var want []byte
		for _, n := range sizes {
			want = append(want, noise(n)...)
			_, err := e.peer.Write(noise(n))
			must(t, err)
		}
		must(t, e.peer.CloseWrite())
		l.until(t, "Ended", func() bool { return e.own.ended == 1 || e.own.failed != nil })
		if !bytes.Equal(e.own.got, want) {
			rt.Fatalf("got %d bytes, want %d; failed: %v", len(e.own.got), len(want), e.own.failed)
		}
	})
}

// Rule 13: a TLS stream that ends without close_notify is cut off, and told
// as a reset: at a record boundary and inside a record.
func TestEndWithoutCloseNotifyIsAReset(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		for _, inside := range []bool{false, true} {
			server, client := configs(t, version)
			e := connect(t, r, server, client)
			_, err := e.peer.Write([]byte("hello"))
			must(t, err)
			if inside {
				_, err = e.conn.Write([]byte{23, 3, 3, 0, 40, 1, 2, 3})
				must(t, err)
			}
			e.conn.CloseWrite()
			e.mustFail(t, stream.ErrReset)
			if string(e.own.got) != "hello" || e.own.ended != 0 {
				t.Fatalf("got %q, ended %d", e.own.got, e.own.ended)
			}
		}
	})
}

// Rule 13: close_notify ends one direction; the other one goes on.
func TestHalfCloseByPeer(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		server, client := configs(t, version)
		e := connect(t, r, server, client)
		_, err := e.peer.Write([]byte("last words"))
		must(t, err)
		must(t, e.peer.CloseWrite())
		e.conn.CloseWrite()
		e.loop.until(t, "Ended", func() bool { return e.own.ended == 1 })
		answer := noise(100 << 10)
		e.loop.do(func() { e.s.Send(answer); e.s.CloseWrite() })
		got, err := io.ReadAll(e.peer)
		must(t, err)
		if !bytes.Equal(got, answer) || string(e.own.got) != "last words" {
			t.Fatalf("the peer got %d bytes of %d", len(got), len(answer))
		}
		e.loop.do(func() {
			if !e.far.ended || e.own.failed != nil {
				t.Errorf("no end below close_notify (%v), or failed: %v", e.far.ended, e.own.failed)
			}
		})
	})
}

func TestHalfCloseByUs(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		server, client := configs(t, version)
		e := connect(t, r, server, client)
		e.loop.do(func() { e.s.Send([]byte("question")); e.s.CloseWrite() })
		got, err := io.ReadAll(e.peer) // crypto/tls would tell a bare FIN as ErrUnexpectedEOF or EOF ...
		must(t, err)
		if string(got) != "question" {
			t.Fatalf("got %q", got)
		}
		e.loop.do(func() { // ... so look for the alert
			if e.under.sends < 2 {
				t.Errorf("%d sends, close_notify is missing", e.under.sends)
			}
		})
		want := noise(100 << 10)
		_, err = e.peer.Write(want)
		must(t, err)
		if !bytes.Equal(e.received(t, len(want)), want) {
			t.Fatal("bytes differ")
		}
		must(t, e.peer.CloseWrite())
		e.loop.until(t, "Ended", func() bool { return e.own.ended == 1 })
	})
}

// What follows close_notify is not data.
func TestBytesAfterCloseNotifyAreIgnored(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	must(t, e.peer.CloseWrite())
	_, err := e.conn.Write(noise(1000))
	must(t, err)
	e.loop.until(t, "Ended", func() bool { return e.own.ended == 1 && len(e.under.arrived) == 0 })
	e.loop.do(func() {
		if e.own.failed != nil || len(e.own.got) > 0 {
			t.Errorf("failed %v, got %d bytes", e.own.failed, len(e.own.got))
		}
	})
}

// Nothing is told while the owner does not read, the end included; all of it
// afterwards.
func TestPausedReaderIsToldLater(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		server, client := configs(t, version)
		e := connect(t, r, server, client)
		e.loop.do(func() {
			e.own.onData = func([]byte) { e.s.SetReading(false) }
		})
		want := noise(150 << 10)
		_, err := e.peer.Write(want)
		must(t, err)
		must(t, e.peer.CloseWrite())
		e.conn.CloseWrite()
		for !func() (ended bool) {
			e.loop.do(func() {
				before := e.own.calls
				e.s.SetReading(true)
				if e.own.calls != before || e.own.ended > 0 {
					t.Error("the owner was called from SetReading")
				}
			})
			e.loop.until(t, "more", func() bool { return !e.s.reading || e.own.ended > 0 })
			e.loop.do(func() { ended = e.own.ended > 0 })
			return ended
		}() {
		}
		if !bytes.Equal(e.own.got, want) {
			t.Fatalf("got %d bytes of %d", len(e.own.got), len(want))
		}
		if e.own.calls < 2 {
			t.Fatalf("%d calls: nothing was held back", e.own.calls)
		}
	})
}

// A peer that writes and an owner that does not read: what is held is bounded.
func TestOwnerThatDoesNotReadHoldsThePeerBack(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	e.loop.do(func() { e.s.SetReading(false) })
	for range 50 {
		_, err := e.peer.Write(noise(64 << 10))
		must(t, err)
	}
	e.loop.do(func() {
		if n := len(e.s.held); n > 0 {
			t.Errorf("%d bytes held, want all to stay below", n)
		}
		e.s.SetReading(true)
	})
	e.received(t, 50*64<<10)
}

// An echo to a peer that never reads: both directions stop.
func TestPeerThatNeverReadsIsBounded(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	e.loop.do(func() {
		e.far.SetReading(false)
		e.own.onData = func(p []byte) {
			if e.s.Send(p) > 0 {
				e.s.SetReading(false)
			}
		}
	})
	for range 50 {
		_, err := e.peer.Write(noise(64 << 10))
		must(t, err)
	}
	e.loop.until(t, "reading to stop", func() bool { return !e.under.reading })
	e.loop.do(func() {
		if n, held := len(e.far.arrived), len(e.s.held); n > memWindow+128<<10 || held > 64<<10 {
			t.Errorf("%d bytes on the way to the peer, %d held", n, held)
		}
	})
}

// Send returns what the stream below keeps, and Sent follows when it is gone.
func TestPendingBytesAreReported(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	var pending int
	e.loop.do(func() {
		e.far.SetReading(false)
		e.s.Send(noise(10 << 10))
		pending = e.s.Send(noise(100 << 10))
	})
	if pending < 40<<10 || pending > 50<<10 {
		t.Fatalf("%d bytes pending of 110 KiB over a window of 64 KiB", pending)
	}
	e.loop.do(func() {
		// What is pending has just gone, but that was not told yet.
		e.far.arrived = nil
		if n := e.s.Send([]byte("x")); n != 0 {
			t.Errorf("%d bytes pending", n)
		}
		e.far.SetReading(true)
	})
	e.loop.until(t, "Sent", func() bool { return e.own.sent == 1 })
}

// Other ciphers have other overheads and ways to decrypt in place.
func TestCipherSuites(t *testing.T) {
	for _, suite := range []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
	} {
		t.Run(tls.CipherSuiteName(suite), func(t *testing.T) {
			server, client := configs(t, tls.VersionTLS12)
			server.CipherSuites, client.CipherSuites = []uint16{suite}, []uint16{suite}
			e := connect(t, asServer, server, client)
			cuts := []int{7, 5000, 1, 30000}
			turn := 0
			e.loop.do(func() {
				e.under.cut = func() int { turn++; return cuts[turn%len(cuts)] }
				e.own.onData = func(p []byte) { e.s.Send(p) }
			})
			want := noise(200 << 10)
			e.beside.Go(func() { e.peer.Write(want) })
			got := make([]byte, len(want))
			_, err := io.ReadFull(e.peer, got)
			must(t, err)
			if !bytes.Equal(got, want) {
				t.Fatal("bytes differ")
			}
		})
	}
}

// One Send is one call of the stream below, whatever the number of records.
func TestRecordsOfOneSendGoTogether(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	e.loop.do(func() {
		for _, n := range []int{1, 256, 1200, 16 << 10, 64 << 10} {
			before := e.under.sends
			e.s.Send(noise(n))
			if got := e.under.sends - before; got != 1 {
				t.Errorf("%d bytes took %d sends", n, got)
			}
		}
	})
}

// 64 KiB that come at once are told at once, so that they go on at once.
func TestRecordsOfOneReadAreToldTogether(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	_, err := e.peer.Write(noise(200 << 10)) // past the small records
	must(t, err)
	e.received(t, 200<<10)
	var before int
	e.loop.do(func() { before = e.own.calls; e.far.reading = true; e.under.SetReading(false) })
	_, err = e.peer.Write(noise(62 << 10))
	must(t, err)
	e.loop.do(func() { e.under.SetReading(true) })
	e.received(t, 262<<10)
	if n := e.own.calls - before; n != 1 {
		t.Fatalf("told in %d calls", n)
	}
}

// A record that is broken in any way ends the stream as a protocol violation,
// and the peer is sent an alert.
func TestBrokenRecords(t *testing.T) {
	broken := map[string][]byte{
		"version":     {23, 3, 1, 0, 20},
		"too long":    {23, 3, 3, 0x50, 0},
		"not TLS":     []byte("GET / HTTP/1.1\r\n\r\n"),
		"bad MAC":     append([]byte{23, 3, 3, 0, 40}, make([]byte, 40)...),
		"bad type":    append([]byte{99, 3, 3, 0, 40}, make([]byte, 40)...),
		"empty":       {23, 3, 3, 0, 0},
		"plain alert": {21, 3, 3, 0, 2, 1, 0},
	}
	for name, record := range broken {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, version uint16, r role) {
				server, client := configs(t, version)
				e := connect(t, r, server, client)
				_, err := e.conn.Write(record)
				must(t, err)
				e.mustFail(t, stream.ErrProtocol)
				_, err = e.peer.Read(make([]byte, 1))
				if err == nil || !strings.Contains(err.Error(), "remote error") {
					t.Fatalf("the peer was told %v, want an alert", err)
				}
				if !e.under.dead {
					t.Fatal("the stream below is open")
				}
			})
		})
	}
}

// After Close and Abort the owner hears nothing; Close says close_notify.
func TestCloseAndAbort(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		server, client := configs(t, version)
		e := connect(t, r, server, client)
		e.loop.do(func() { e.s.Send([]byte("bye")); e.s.Close(); e.s.Close(); e.s.Abort(); e.s.SetReading(false) })
		got, err := io.ReadAll(e.peer)
		must(t, err)
		if string(got) != "bye" {
			t.Fatalf("got %q", got)
		}

		e = connect(t, r, server, client)
		e.loop.do(func() {
			e.s.Abort()
			e.s.Received([]byte("late"))
			e.s.Ended()
			e.s.Failed(io.EOF)
			e.s.Sent()
			if e.own.failed != nil || e.own.ended != 0 {
				t.Error("the owner was told after Abort")
			}
		})
		if _, err := e.peer.Read(make([]byte, 1)); err != stream.ErrReset {
			t.Fatalf("the peer got %v, want a reset", err)
		}
	})
}

// An owner may abort in the middle of Received.
func TestAbortInsideReceived(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	e.loop.do(func() {
		e.under.SetReading(false)
		e.own.onData = func([]byte) { e.s.Abort() }
	})
	_, err := e.peer.Write(noise(300 << 10))
	must(t, err)
	e.loop.do(func() { e.under.SetReading(true) })
	e.loop.until(t, "the end", func() bool { return e.under.dead })
	if e.own.calls != 1 || e.own.failed != nil {
		t.Fatalf("%d calls, failed %v", e.own.calls, e.own.failed)
	}
}

func TestResetBelowIsPassedOn(t *testing.T) {
	server, client := configs(t, 0)
	e := connect(t, asServer, server, client)
	e.loop.do(e.far.Abort)
	e.mustFail(t, stream.ErrReset)
}
