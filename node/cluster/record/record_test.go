package record

import (
	"errors"
	"testing"

	"penstock/consensus/store"
)

func TestRecordOfAnUnknownFormatIsRefused(t *testing.T) {
	k := NodeKey("1")
	good := Node{Format: Format, ID: "1", Name: "a"}
	if r, err := Unmarshal[Node](k, Marshal(good)); err != nil || r != good {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, bad := range []string{`{"format":2}`, `{}`, `[]`, ``, `{"format":1,"name":5}`} {
		if _, err := Unmarshal[Node](k, []byte(bad)); !errors.Is(err, store.ErrFormat) {
			t.Errorf("%s: got %v, want ErrFormat", bad, err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"id":"1","name":"a","joined":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Unmarshal[Node](store.Key{Kind: KindNode, Name: "1"}, b)
		if err != nil {
			return
		}
		again, err := Unmarshal[Node](NodeKey("1"), Marshal(r))
		if err != nil || again.ID != r.ID || again.Name != r.Name || again.Member() != r.Member() {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}
