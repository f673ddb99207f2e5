package gossip

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestWireRoundTrip(t *testing.T) {
	meta := Meta{Name: "n", Cluster: "10.0.0.1:7001", HTTP: "[::1]:8080", Version: "1.2", Zone: "zürich", Instance: "x"}
	b, err := encodeMeta(meta)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeMeta(append(b, "of a newer version"...)); err != nil || got != meta {
		t.Errorf("%+v, %v", got, err)
	}
	b[0]++
	if _, err := decodeMeta(b); !errors.Is(err, errMalformed) {
		t.Errorf("a format from the future: %v", err)
	}
	records := []record{{ID: "a", Instance: "i", Version: 1 << 60, Facts: []byte("f")}, {ID: "b", Left: true, Facts: []byte{}}}
	var got []record
	if err := decodeRecords(encodeRecords(records...), func(r record) { got = append(got, r) }); err != nil ||
		!reflect.DeepEqual(got, records) {
		t.Errorf("%+v, %v", got, err)
	}
	c := claim{ID: "a", Addr: "127.0.0.1:1", Age: time.Hour, Meta: meta}
	if got, err := decodeClaim(encodeClaim(formatClaimRequest, c)); err != nil || got != c {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(encodeRecords(record{ID: "a", Version: 1, Facts: []byte("x")}))
	f.Add(appendMeta(nil, Meta{Name: "n"}))
	f.Add(encodeClaim(formatClaim, claim{ID: "a", Addr: "b"}))
	f.Add([]byte{formatRecords, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		// Decoded meta data must encode to the same fields.
		if m, err := decodeMeta(b); err == nil {
			again, err := encodeMeta(m)
			if back, err2 := decodeMeta(again); err != nil || err2 != nil || back != m {
				t.Errorf("%+v: %v, %v", m, err, err2)
			}
		}
		var records []record
		if err := decodeRecords(b, func(r record) {
			if len(r.ID) > maxID || len(r.Facts) > maxFacts || r.Version > maxVersion {
				t.Errorf("beyond its bounds: %+v", r)
			}
			records = append(records, r)
		}); err == nil {
			once := encodeRecords(records...)
			var back []record
			_ = decodeRecords(once, func(r record) { back = append(back, r) })
			if !bytes.Equal(encodeRecords(back...), once) {
				t.Errorf("%x became %x", once, encodeRecords(back...))
			}
		}
		if c, err := decodeClaim(b); err == nil {
			if back, err := decodeClaim(encodeClaim(formatClaimRequest, c)); err != nil || back != c {
				t.Errorf("%+v became %+v: %v", c, back, err)
			}
		}
	})
}
