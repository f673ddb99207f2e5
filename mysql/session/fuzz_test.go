package session_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"penstock/internal/testkit"
	"penstock/mysql/session"
	"penstock/mysql/wire"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// recorder is a stream that keeps what it is sent.
type recorder struct {
	stream.Stream
	sent []byte
}

func (r *recorder) Send(p []byte) int {
	r.sent = append(r.sent, p...)
	return 0
}
func (r *recorder) SetReading(bool) {}
func (r *recorder) CloseWrite()     {}

// part is what one side of a conversation says.
type part struct {
	from relay.Side
	said []byte
}

// parts cuts a fuzzer's input: a byte for the side, two for the length, the bytes.
func parts(in []byte) (all []part) {
	for len(in) >= 3 {
		n := min(int(binary.LittleEndian.Uint16(in[1:])), len(in)-3)
		all = append(all, part{relay.Side(in[0] & 1), in[3 : 3+n]})
		in = in[3+n:]
	}
	return all
}

// conversation is the input for parts.
func conversation(all ...part) (in []byte) {
	for _, p := range all {
		in = append(binary.LittleEndian.AppendUint16(append(in, byte(p.from)), uint16(len(p.said))), p.said...)
	}
	return in
}

// converse has a session relay a conversation, each part in pieces, on the loop of h.
func converse(h *host, all []part, caps wire.Capabilities, piece int) (toClient, toServer []byte, ended bool) {
	h.do(func() {
		client, server := new(recorder), new(recorder)
		s := session.NewOpen(h, h.conn, client, server, caps)
		for _, p := range all {
			for rest := p.said; len(rest) > 0 && !session.Closed(h.session); {
				n := min(piece, len(rest))
				s.Received(p.from, bytes.Clone(rest[:n]))
				rest = rest[n:]
			}
		}
		toClient, toServer, ended = client.sent, server.sent, session.Closed(h.session)
	})
	return toClient, toServer, ended
}

// FuzzSession: whatever both sides say, in whatever pieces, is relayed as it is, except
// for COM_CHANGE_USER and for an error of the proxy at the end. Pieces make no difference.
func FuzzSession(f *testing.F) {
	okay, query := wire.AppendPacket(nil, 1, ok()), wire.AppendPacket(nil, 0, []byte("\x03SELECT 1"))
	column, row, end := wire.AppendPacket(nil, 2, []byte("\x03def")), wire.AppendPacket(nil, 3, []byte("\x011")), wire.AppendPacket(nil, 4, wire.AppendEOF(nil, 0, 2))
	answer := bytes.Join([][]byte{wire.AppendPacket(nil, 1, []byte{1}), column, row, end}, nil)
	failure := wire.AppendPacket(nil, 1, wire.AppendError(nil, &wire.Error{Code: 1064, State: "42000", Message: "no"}))
	ping := wire.AppendPacket(nil, 0, []byte{byte(wire.ComPing)})
	change := wire.AppendPacket(nil, 0, []byte("\x11root\x00\x00\x00"))
	file := bytes.Join([][]byte{wire.AppendPacket(nil, 2, []byte("a\nb\n")), wire.AppendPacket(nil, 3, nil)}, nil)
	for _, seed := range [][]byte{
		conversation(part{relay.Client, query}, part{relay.Upstream, answer}, part{relay.Client, ping}, part{relay.Upstream, okay}),
		conversation(part{relay.Client, append(bytes.Clone(ping), query...)}, part{relay.Upstream, okay}, part{relay.Upstream, failure}),
		conversation(part{relay.Client, query}, part{relay.Upstream, wire.AppendPacket(nil, 1, []byte("\xfbf"))}, part{relay.Client, file}, part{relay.Upstream, wire.AppendPacket(nil, 4, ok())}),
		conversation(part{relay.Client, change}, part{relay.Upstream, okay}),
		conversation(part{relay.Client, wire.AppendPacket(nil, 0, []byte("\x16SELECT ?"))}, part{relay.Upstream, wire.AppendPacket(nil, 1, make([]byte, 12))}),
		conversation(part{relay.Upstream, okay}),
	} {
		f.Add(seed, byte(1), true)
		f.Add(seed, byte(7), false)
	}
	r := newRig(f, nil, testkit.Serve(f, func(c net.Conn) {
		_, _ = c.Write(wire.AppendPacket(nil, 0, greeting()))
		_, _ = readPacket(c)
		_, _ = c.Write(wire.AppendPacket(nil, 2, ok()))
		_, _ = io.Copy(io.Discard, c)
	}))
	var h *host
	var nc net.Conn
	f.Cleanup(func() {
		if nc != nil {
			_ = nc.Close()
		}
	})
	addr := r.addr()
	logIn := func(t *testing.T) *host { // of a connection that the session may end
		r.t = t
		if h != nil && !session.Closed(h.session) {
			return h
		}
		if nc != nil {
			_ = nc.Close()
		}
		var err error
		if nc, err = net.Dial("tcp", addr); err != nil {
			t.Fatal(err)
		}
		c := &client{t: t, net: nc}
		c.mustRead()
		c.write(1, loginBytes())
		c.mustRead()
		before := h
		testkit.WaitFor(t, "another session", func() bool { h = r.last(); return h != before })
		return h
	}
	f.Fuzz(func(t *testing.T, in []byte, piece byte, deprecate bool) {
		all, caps := parts(in), clientCaps
		if !deprecate {
			caps &^= wire.DeprecateEOF
		}
		var said [2][]byte
		for _, p := range all {
			said[p.from] = append(said[p.from], p.said...)
		}
		toClient, toServer, ended := converse(logIn(t), all, caps, 1<<20)
		toClient2, toServer2, ended2 := converse(logIn(t), all, caps, max(int(piece), 1))
		if !bytes.Contains(said[relay.Client], []byte{byte(wire.ComChangeUser)}) {
			for _, sent := range [][]byte{toServer, toServer2} {
				if !bytes.HasPrefix(said[relay.Client], sent) {
					t.Errorf("the server got %x of %x", sent, said[relay.Client])
				}
			}
		}
		for i, sent := range [][]byte{toClient, toClient2} {
			rest, relayed := bytes.CutPrefix(sent, said[relay.Upstream])
			if relayed && len(rest) == 0 || bytes.HasPrefix(said[relay.Upstream], sent) && []bool{ended, ended2}[i] {
				continue
			}
			if !endsWithError(sent, said[relay.Upstream]) {
				t.Errorf("the client got %x of %x", sent, said[relay.Upstream])
			}
		}
		// A command may be held longer behind a packet that the server has begun for nothing.
		same := bytes.HasPrefix(toServer, toServer2) || bytes.HasPrefix(toServer2, toServer)
		if !ended && !ended2 && (!bytes.Equal(toClient, toClient2) || !same) {
			t.Errorf("in pieces of %d: %x and %x; whole: %x and %x", piece, toClient2, toServer2, toClient, toServer)
		}
		for len(r.ends) > 0 {
			<-r.ends
		}
	})
}

// endsWithError reports whether sent is a beginning of said, and an error of the proxy.
func endsWithError(sent, said []byte) bool {
	for n := min(len(sent), len(said)); n >= 0; n-- {
		if !bytes.HasPrefix(said, sent[:n]) || len(sent)-n < wire.HeaderSize {
			continue
		}
		length, _ := wire.ParseHeader(sent[n:])
		e, err := wire.ParseError(sent[n+wire.HeaderSize:])
		if err == nil && length == len(sent)-n-wire.HeaderSize && bytes.HasPrefix([]byte(e.Message), []byte("Penstock: ")) {
			return true
		}
	}
	return false
}
