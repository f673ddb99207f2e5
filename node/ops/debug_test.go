package ops

import (
	"bytes"
	"errors"
	"testing"

	"penstock/node/api"
)

// A part that is too large is cut off, and what writes it does not notice.
func TestPartsAreBounded(t *testing.T) {
	w := &partWriter{left: 10}
	for _, s := range []string{"12345678", "90ab", "c"} {
		if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
	if w.String() != "1234567890" || !w.cut {
		t.Errorf("%q, cut %v", w, w.cut)
	}
}

// A part arrives whole, with the end and the error in its last piece alone.
func TestPartsAreSentInPieces(t *testing.T) {
	for _, size := range []int{0, 1, debugPiece, debugPiece + 1, 3 * debugPiece} {
		data := bytes.Repeat([]byte{7}, size)
		var got []byte
		ended := false
		err := sendPart(t.Context(), "p", data, errors.New("why"), func(p *api.DebugPart) error {
			if ended || len(p.Data) > debugPiece || p.Name != "p" || (p.Error == "why") != p.Last {
				t.Errorf("%d bytes: a piece of %d, last %v, %q", size, len(p.Data), p.Last, p.Error)
			}
			ended = p.Last
			got = append(got, p.Data...)
			return nil
		})
		if err != nil || !ended || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: %d arrived, ended %v, %v", size, len(got), ended, err)
		}
	}
}
