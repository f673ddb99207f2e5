package session

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/mysql/wire"
	"penstock/netio/relay"
)

// Wherever an answer is cut, it leaves the session as its bytes do one by one, which no
// short way takes whole packets from.
func TestRowsAreReadInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		caps := rapid.SampledFrom([]wire.Capabilities{0, wire.DeprecateEOF}).Draw(t, "capabilities")
		command, _ := query(caps, 0, 0)
		answer := drawAnswer(t, caps)
		one, _ := openSession(caps)
		pieces, sinks := openSession(caps)
		one.Received(relay.Client, command)
		pieces.Received(relay.Client, command)
		for rest := answer; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			for i := range n {
				one.Received(relay.Upstream, rest[i:i+1])
			}
			pieces.Received(relay.Upstream, rest[:n])
			rest = rest[n:]
			if got, want := progress(pieces), progress(one); got != want {
				t.Fatalf("%d bytes before the end: %s, byte by byte %s", len(rest), got, want)
			}
		}
		if !pieces.settled() || sinks[relay.Client].bytes != len(answer) {
			t.Fatalf("after %q: %s, and %d bytes went to the client", answer, progress(pieces), sinks[relay.Client].bytes)
		}
	})
}

// Rows that look like headers of packets, cut at each place.
func TestRowsAreReadWhereverTheyAreCut(t *testing.T) {
	command, _ := query(wire.DeprecateEOF, 0, 0)
	end := wire.AppendPacket(nil, 6, wire.AppendOK(nil, &wire.OK{Status: wire.InTransaction, EndsRows: true}, wire.DeprecateEOF))
	answer := wire.AppendPacket([]byte{1, 0, 0, 1, 1, 1, 0, 0, 2, 3}, 3, make([]byte, 30))
	answer = wire.AppendPacket(append(answer, 0, 0, 0, 4), 5, make([]byte, 30)) // between them an empty one
	answer = append(answer, end...)
	for cut := 1; cut < len(answer); cut++ {
		s, _ := openSession(wire.DeprecateEOF)
		s.Received(relay.Client, command)
		s.Received(relay.Upstream, answer[:cut])
		s.Received(relay.Upstream, answer[cut:])
		if !s.settled() || s.status != wire.InTransaction || s.seq != 6 {
			t.Errorf("cut at %d: %s", cut, progress(s))
		}
	}
}

// A row of more than one packet goes on with one that may look like another row, or like
// the end of rows.
func TestRowsThatContinue(t *testing.T) {
	command, answer := query(wire.DeprecateEOF, 1, wire.MaxPayload)
	for _, fill := range []byte{'r', 0xfe} {
		answer := bytes.ReplaceAll(answer, []byte("r"), []byte{fill})
		for _, read := range []int{64 << 10, len(answer)} {
			s, sinks := openSession(wire.DeprecateEOF)
			s.Received(relay.Client, command)
			for piece := range slices.Chunk(answer, read) {
				s.Received(relay.Upstream, piece)
			}
			if !s.settled() || sinks[relay.Client].bytes != len(answer) {
				t.Errorf("after rows of %q in reads of %d bytes: %s", fill, read, progress(s))
			}
		}
	}
}

// progress is where a session is in an answer.
func progress(s *Session) string {
	d := &s.server
	return fmt.Sprintf("state %d, number %d, status %v, %d bytes left, head % x, continued %t", s.answer, s.seq, s.status, d.left, d.head[:d.n], d.continued)
}

// drawAnswer returns an answer of rows, which may go on with another one or end in an
// error.
func drawAnswer(t *rapid.T, caps wire.Capabilities) (answer []byte) {
	seq := byte(0)
	add := func(payload []byte) {
		seq++
		answer = wire.AppendPacket(answer, seq, payload)
	}
	end := func(status wire.Status) {
		if caps&wire.DeprecateEOF == 0 {
			add(wire.AppendEOF(nil, 0, status))
			return
		}
		add(wire.AppendOK(nil, &wire.OK{Status: status, EndsRows: true}, caps))
	}
	for more := true; more; {
		add([]byte{2})
		add(bytes.Repeat([]byte{3}, 40))
		add(bytes.Repeat([]byte{3}, 60))
		if caps&wire.DeprecateEOF == 0 {
			end(0)
		}
		for range rapid.IntRange(0, 12).Draw(t, "rows") {
			row := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "row")
			switch {
			case len(row) > 0 && row[0] == 0xff, len(row) > 0 && row[0] == 0xfe && caps&wire.DeprecateEOF != 0:
				row[0] = 0xfb // NULL
			case len(row) > 0 && row[0] == 0xfe:
				row = append(row, make([]byte, 9)...) // too long for an EOF
			}
			add(row)
		}
		if rapid.Bool().Draw(t, "fails") {
			add(wire.AppendError(nil, &wire.Error{Code: 1105, State: "HY000", Message: "failed"}))
			return answer
		}
		more = rapid.Bool().Draw(t, "another result")
		status := wire.Autocommit | wire.Status(rapid.SampledFrom([]int{0, int(wire.InTransaction)}).Draw(t, "status"))
		if more {
			status |= wire.MoreResults
		}
		end(status)
	}
	return answer
}
