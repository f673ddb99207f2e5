package session

import (
	"bytes"
	"testing"

	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// sink is a stream that takes everything.
type sink struct {
	stream.Stream
	bytes int
}

func (s *sink) Send(p []byte) int { s.bytes += len(p); return 0 }

func (s *sink) SetReading(bool) {}

// openSession returns a session that is logged in, between two sinks.
func openSession(caps wire.Capabilities) (*Session, *[2]sink) {
	sinks := new([2]sink)
	s := New(nil)
	s.phase, s.caps, s.conn = open, caps, new(netio.Conn) // of which nothing moves unseen
	s.streams = [2]stream.Stream{relay.Client: &sinks[relay.Client], relay.Upstream: &sinks[relay.Upstream]}
	return s, sinks
}

// query is a command, and the answer to it that has n rows of size bytes.
func query(caps wire.Capabilities, n, size int) (command, answer []byte) {
	command = wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, "SELECT name FROM accounts WHERE id = 4711"...))
	seq := byte(0)
	add := func(payload []byte) {
		seq++
		answer = wire.AppendPacket(answer, seq, payload)
	}
	end := wire.AppendOK(nil, &wire.OK{Status: wire.Autocommit, EndsRows: true}, caps)
	if caps&wire.DeprecateEOF == 0 {
		end = wire.AppendEOF(nil, 0, wire.Autocommit)
	}
	add([]byte{1})
	add(bytes.Repeat([]byte{3}, 50))
	if caps&wire.DeprecateEOF == 0 {
		add(end)
	}
	row := wire.AppendString(nil, bytes.Repeat([]byte("r"), size))
	for range n {
		add(row)
	}
	add(end)
	return command, answer
}

// exchange passes a command and its answer through the session, in reads of at most
// 64 KiB.
func (s *Session) exchange(command, answer []byte) {
	s.Received(relay.Client, command)
	for len(answer) > 0 {
		n := min(len(answer), 64<<10)
		s.Received(relay.Upstream, answer[:n])
		answer = answer[n:]
	}
}

// A query costs no memory, whatever it is answered.
func TestQueriesAllocateNothing(t *testing.T) {
	for name, rows := range map[string]int{"one row": 1, "many rows": 2000} {
		t.Run(name, func(t *testing.T) {
			s, sinks := openSession(wire.DeprecateEOF)
			command, answer := query(s.caps, rows, 95)
			if n := testing.AllocsPerRun(100, func() { s.exchange(command, answer) }); n > 0 {
				t.Errorf("%.1f allocations", n)
			}
			if err := s.Safe(); err != nil {
				t.Errorf("the session is not at rest: %v", err)
			}
			if want := 101 * len(answer); sinks[relay.Client].bytes != want { // once to warm up
				t.Errorf("%d bytes went to the client, want %d", sinks[relay.Client].bytes, want)
			}
		})
	}
}

// BenchmarkQuery is what a session adds to relaying a query and its answer.
func BenchmarkQuery(b *testing.B) {
	for _, c := range []struct {
		name       string
		rows, size int
	}{{"one row of 20 B", 1, 20}, {"one row of 60 KB", 1, 60_000}, {"10,000 rows of 100 B", 10_000, 95}} {
		b.Run(c.name, func(b *testing.B) {
			s, _ := openSession(wire.DeprecateEOF)
			command, answer := query(s.caps, c.rows, c.size)
			b.SetBytes(int64(len(answer)))
			b.ReportAllocs()
			for b.Loop() {
				s.exchange(command, answer)
			}
		})
	}
}
