package wire

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// seedBodies adds bodies of all messages that list gives.
func seedBodies(f *testing.F, list func(do func(d Direction, key, version int16))) {
	list(func(d Direction, key, version int16) {
		rnd := rand.New(rand.NewPCG(uint64(key), uint64(version)))
		m, body := randomMessage(f, rnd, d, key, version)
		if len(body) > 2000 {
			body = newMessage(f, d, key, version).AppendTo(nil)
		}
		_ = m
		f.Add(uint8(d), key, version, body, uint64(version))
	})
}

// For any bytes in any pieces, a Walker ends and returns as many bytes as it
// announced; if kmsg can decode the input, the output decodes to the edited
// message.
func FuzzWalker(f *testing.F) {
	seedBodies(f, func(do func(d Direction, key, version int16)) { walkables(f, do) })
	f.Fuzz(func(t *testing.T, d uint8, key, version int16, body []byte, seed uint64) {
		if !Walkable(Direction(d), key, version) {
			return
		}
		rnd := rand.New(rand.NewPCG(seed, 8))
		edits := tolerant()
		told, _ := sessionOf(edits, newMessage(t, Direction(d), key, version))
		sent, err := walk(t, rnd, Direction(d), key, version, body, edits, 1+int(seed%300))
		whole, errWhole := Rewrite(nil, Direction(d), key, version, body, edits)
		if err != nil {
			return
		}
		if errWhole != nil {
			t.Fatalf("walked, but Rewrite failed: %v", errWhole)
		}
		want := newMessage(t, Direction(d), key, version)
		if Check(Direction(d), key, version, body) != nil || want.ReadFrom(body) != nil {
			return
		}
		if _, session := sessionOf(new(Edits), want); !told(session) {
			t.Fatalf("%s v%d: reported other sessions than %d", Name(key), version, session)
		}
		normal(want)
		editTopics(t, want, edits)
		for how, out := range map[string][]byte{"walked": sent, "whole": whole} {
			got := newMessage(t, Direction(d), key, version)
			if err := got.ReadFrom(out); err != nil {
				t.Fatalf("%s v%d, %s: kmsg read %x, but not %x: %v", Name(key), version, how, body, out, err)
			}
			normal(got)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s v%d, %s:\ngot  %+v\nwant %+v", Name(key), version, how, got, want)
			}
		}
	})
}

// tolerant are edits that accept any name and make it grow.
func tolerant() *Edits {
	e := prefixing(Request, "z4de-")
	e.Node = func(int32, string, int32) (string, int32, bool, error) { return "", 0, false, nil }
	return e
}

// normal removes node endpoints and null names from the comparison: hidden ones
// differ in how they are absent.
func normal(m message) {
	v := reflect.ValueOf(m).Elem()
	for _, name := range []string{"Brokers", "NodeEndpoints"} {
		if f := v.FieldByName(name); f.IsValid() {
			f.SetZero()
		}
	}
	plain(v)
}

// Edit-then-decode equals decode-then-edit, or both fail.
func FuzzMapAddresses(f *testing.F) {
	seedBodies(f, func(do func(d Direction, key, version int16)) {
		carriers(func(key, version int16) { do(Response, key, version) })
	})
	f.Fuzz(func(t *testing.T, _ uint8, key, version int16, body []byte, _ uint64) {
		if _, highest, ok := Known(key); !ok || version < 0 || version > highest || !CarriesAddress(key, version) {
			return
		}
		to := func(id int32, _ string, port int32) (string, int32, bool, error) {
			return fmt.Sprintf("broker-%d.t1.example", id), port, id%3 != 0, nil
		}
		got, err := mapAddresses(key, version, body, to)
		want := newMessage(t, Response, key, version)
		if err != nil || Check(Response, key, version, body) != nil || want.ReadFrom(body) != nil {
			return
		}
		mapDecoded(want, to)
		have := newMessage(t, Response, key, version)
		if err := have.ReadFrom(got); err != nil {
			t.Fatalf("kmsg parsed the input, but not the output: %v", err)
		}
		// A coordinator -1 whose empty host was null stays as it is.
		plain(reflect.ValueOf(want).Elem())
		plain(reflect.ValueOf(have).Elem())
		if !reflect.DeepEqual(have, want) {
			t.Fatalf("%s v%d of %x\ngot  %+v\nwant %+v", Name(key), version, body, have, want)
		}
	})
}

// A reader never returns more than there is, and keeps its first error.
func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0xff, 0xff, 0xff, 0xff, 0x0f}, []byte{0, 1, 2, 3, 4, 5, 6, 7}, true)
	f.Add((&kmsg.ApiVersionsResponse{Version: 3}).AppendTo(nil), []byte{2, 6, 1, 7}, true)
	f.Fuzz(func(t *testing.T, b, calls []byte, flexible bool) {
		r := NewReader(b, flexible)
		for _, c := range calls {
			before, at := r.Err(), r.At()
			switch c % 8 {
			case 0:
				r.Int8()
			case 1:
				r.Int16()
			case 2:
				r.Int32()
			case 3:
				r.Int64()
			case 4:
				r.String()
			case 5:
				r.Bytes()
			case 6:
				if n := r.Array(); n > len(b) {
					t.Fatalf("array of %d in %d bytes", n, len(b))
				}
			case 7:
				r.Tags()
			}
			if r.At() < at || r.At()+len(r.Rest()) != len(b) || before != nil && r.Err() != before {
				t.Fatalf("at %d after %d of %d, error %v after %v", r.At(), at, len(b), r.Err(), before)
			}
		}
	})
}
