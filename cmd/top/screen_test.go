package top

import (
	"slices"
	"testing"
)

// Whatever a text holds, a cell of the screen is one printable character.
func TestAScreenHasNoControlCharacters(t *testing.T) {
	for _, g := range []glyphs{unicodeGlyphs, asciiGlyphs} {
		s := newScreen(20, 1, g)
		s.text(0, 0, "\x1b[2J\u202eab\x00\n\u0301\xff…x", plain)
		s.put(99, 99, 'x', plain) // beyond the edge
		want := "?[2J?ab????" + string(g.ellipsis) + "x\n"
		if g.ellipsis == '~' {
			want = "?[2J?ab?????x\n"
		}
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTextIsWrappedAtSpaces(t *testing.T) {
	got := wrap("one two three four\nfive "+"sixseveneightnine", 14, 2)
	if want := []string{"one two three", "  four", "five", "  sixseveneigh", "  tnine"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
