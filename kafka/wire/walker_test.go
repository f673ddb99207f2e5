package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// walkables calls do for all messages that can be walked.
func walkables(t testing.TB, do func(d Direction, key, version int16)) {
	t.Helper()
	n := 0
	for _, d := range []Direction{Request, Response} {
		for key := range int16(MaxKey + 1) {
			for v := int16(0); Walkable(d, key, v); v++ {
				do(d, key, v)
				n++
			}
		}
	}
	if n < 40 {
		t.Errorf("%d versions of messages can be walked, more were expected", n)
	}
}

// walk sends a body through a Walker in pieces of random length, and checks that
// the output has the length that was announced before its first byte.
func walk(t testing.TB, rnd *rand.Rand, d Direction, key, version int16, body []byte, edits *Edits, most int) ([]byte, error) {
	t.Helper()
	var w Walker
	w.Init(d, key, version, len(body), edits)
	var sent []byte
	told, growth := false, 0
	tail := []byte("of the next message")
	stream := append(append([]byte{}, body...), tail...)
	for p := stream; ; {
		chunk := p[:min(len(p), rnd.IntN(most+1))]
		out, view, n, pass, err := w.Next([]byte("head"), chunk)
		if err != nil {
			return nil, err
		}
		if n < 0 || n > len(chunk) {
			t.Fatalf("%d of %d bytes were consumed", n, len(chunk))
		}
		out = out[len("head"):]
		if g, known := w.Growth(); len(out)+len(view)+pass > 0 {
			if !known {
				t.Fatal("bytes were returned before the growth is known")
			}
			if told && g != growth {
				t.Fatalf("the growth changed from %d to %d", growth, g)
			}
			told, growth = true, g
		}
		sent = append(append(sent, out...), view...)
		sent = append(sent, p[n:n+pass]...)
		p = p[n+pass:]
		if w.Done() {
			if len(p) != len(tail) {
				t.Fatalf("%d bytes of the next message were consumed", len(tail)-len(p))
			}
			break
		}
	}
	if len(sent) != len(body)+growth {
		t.Fatalf("%s v%d: %d bytes became %d, expected a growth of %d", Name(key), version, len(body), len(sent), growth)
	}
	return sent, nil
}

var errForeign = errors.New("foreign")

// prefixing are the edits of a tenant, to the broker or back.
func prefixing(d Direction, prefix string) *Edits {
	return &Edits{
		TopicGrowth: map[Direction]int{Request: len(prefix), Response: -len(prefix)}[d],
		Topic: func(dst, name []byte) ([]byte, error) {
			if d == Request {
				return append(append(dst, prefix...), name...), nil
			}
			own, ok := strings.CutPrefix(string(name), prefix)
			if !ok {
				return nil, errForeign
			}
			return append(dst, own...), nil
		},
		TransactionalID: func(dst, id []byte) ([]byte, error) {
			return append(append(dst, prefix...), id...), nil
		},
		TopicID: func(id *[16]byte) error {
			id[0] ^= 0xff
			return nil
		},
	}
}

// editTopics applies edits to a decoded message.
func editTopics(t testing.TB, m message, edits *Edits) {
	t.Helper()
	name := func(s string, edit func(dst, name []byte) ([]byte, error)) string {
		out, err := edit(nil, []byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	v := reflect.ValueOf(m).Elem()
	if id := v.FieldByName("TransactionID"); id.IsValid() && !id.IsNil() {
		id.Elem().SetString(name(id.Elem().String(), edits.TransactionalID))
	}
	topics := v.FieldByName("Topics")
	for i := range topics.Len() {
		s := shapeOf(directionOf(m), m.(interface{ Key() int16 }).Key(), m.GetVersion())
		if s.named {
			f := topics.Index(i).FieldByName("Topic")
			f.SetString(name(f.String(), edits.Topic))
		} else {
			id := topics.Index(i).FieldByName("TopicID").Addr().Interface().(*[16]byte)
			if err := edits.TopicID(id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sessionOf returns the fetch session of a message, or -1, and a function that
// reports whether edits received that one, and no other, since its last call.
func sessionOf(edits *Edits, m message) (told func(want int32) bool, session int32) {
	session = -1
	if r, ok := m.(*kmsg.FetchResponse); ok && r.Version >= 7 {
		session = r.SessionID
	}
	seen, other := false, false
	last := int32(-1)
	edits.FetchSession = func(number int32) {
		other = other || seen && number != last
		seen, last = true, number
	}
	return func(want int32) bool {
		is := last == want && !other
		seen, other, last = false, false, -1
		return is
	}, session
}

func directionOf(m message) Direction {
	if _, ok := m.(kmsg.Request); ok {
		return Request
	}
	return Response
}

// addPrefix adds the prefix of a tenant to the names of a response.
func addPrefix(m message, prefix string) {
	topics := reflect.ValueOf(m).Elem().FieldByName("Topics")
	for i := range topics.Len() {
		if f := topics.Index(i).FieldByName("Topic"); f.IsValid() {
			f.SetString(prefix + f.String())
		}
	}
}

func TestWalkerMatchesDecodedEdits(t *testing.T) {
	const prefix = "z4de-"
	walkables(t, func(d Direction, key, version int16) {
		t.Run(fmt.Sprint(d, Name(key), version), func(t *testing.T) {
			for seed := range uint64(12) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				m := newMessage(t, d, key, version)
				fill(rnd, reflect.ValueOf(m).Elem(), 0)
				m.SetVersion(version)
				if d == Response {
					addPrefix(m, prefix)
				}
				body := m.AppendTo(nil)
				want := decode(t, d, key, version, body)
				edits := prefixing(d, prefix)
				editTopics(t, want, edits)
				told, session := sessionOf(edits, want)
				for _, most := range []int{1, 7, 100, 1 << 20} {
					got, err := walk(t, rnd, d, key, version, body, edits, most)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					if m := decode(t, d, key, version, got); !reflect.DeepEqual(m, want) {
						t.Fatalf("seed %d, up to %d bytes at once:\ngot  %+v\nwant %+v", seed, most, m, want)
					}
					if !told(session) {
						t.Errorf("seed %d, up to %d bytes at once: reported other sessions than %d", seed, most, session)
					}
				}
				got, err := Rewrite(nil, d, key, version, body, edits)
				if err != nil {
					t.Fatal(err)
				}
				if m := decode(t, d, key, version, got); !reflect.DeepEqual(m, want) {
					t.Fatalf("seed %d, whole:\ngot  %+v\nwant %+v", seed, m, want)
				}
				if !told(session) {
					t.Errorf("seed %d, whole: reported other sessions than %d", seed, session)
				}
			}
		})
	})
}
