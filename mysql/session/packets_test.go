package session

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/mysql/wire"
)

// However bytes are cut, the same packets are found, each with its beginning.
func TestPacketsAreFoundInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		var want []string
		for i := range rapid.IntRange(1, 8).Draw(t, "packets") {
			payload := bytes.Repeat([]byte{byte('a' + i)}, rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(200, 300)).Draw(t, "length"))
			all = wire.AppendPacket(all, byte(i), payload)
			want = append(want, fmt.Sprint(string(payload[:min(len(payload), peek)]), len(payload), i))
		}
		var d packets
		var got []string
		for rest := all; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			piece := rest[:n]
			rest = rest[n:]
			for {
				first, length, seq, behind := d.next(piece)
				if length < 0 {
					break
				}
				got = append(got, fmt.Sprint(string(first), length, seq))
				piece = behind
			}
		}
		if !slices.Equal(got, want) || !d.between() {
			t.Fatalf("packets %q, between %t; want %q", got, d.between(), want)
		}
	})
}

// A payload of several packets is told once, by its first.
func TestPacketsThatContinue(t *testing.T) {
	var d packets
	rest := wire.AppendPacket(nil, 0, make([]byte, wire.MaxPayload+5))
	rest = wire.AppendPacket(rest, 0, []byte("next"))
	var lengths []int
	for {
		_, length, _, behind := d.next(rest)
		if length < 0 {
			break
		}
		lengths, rest = append(lengths, length), behind
	}
	if !slices.Equal(lengths, []int{wire.MaxPayload, 4}) {
		t.Errorf("packets of %v bytes, want %d and 4", lengths, wire.MaxPayload)
	}
}
