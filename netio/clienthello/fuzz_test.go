package clienthello

import "testing"

func addHellos(f *testing.F) {
	for _, b := range hellos(f) {
		f.Add(b)
	}
	for _, c := range refusedHellos(f) {
		f.Add(c.b)
	}
}

func FuzzParse(f *testing.F) {
	addHellos(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), MaxSize+100)]
		h, n, err := Parse(b)
		switch {
		case err == nil && (n > len(b) || n > MaxSize):
			t.Fatalf("took %d of %d bytes", n, len(b))
		case err == ErrMore && (n <= len(b) || n > MaxSize):
			t.Fatalf("needs %d, has %d", n, len(b))
		}
		checkPrefixes(t, b)
		if err != nil {
			return
		}
		split := records(join(b[:n], n), 1+n/2)
		again, _, err := Parse(split)
		if len(split) <= MaxSize && (err != nil || !sameHello(again, h)) {
			t.Fatalf("in two records: %+v, %v; before %+v", again, err, h)
		}
	})
}

// checkPrefixes checks that waiting for what Parse needs misses nothing, and
// that an answer once given stays.
func checkPrefixes(t *testing.T, b []byte) {
	t.Helper()
	need := 0
	for i := range len(b) + 1 {
		h, n, err := Parse(b[:i])
		if err == ErrMore {
			need = max(need, n)
			continue
		}
		if i < need {
			t.Fatalf("%d bytes: %v, though %d were needed", i, err, need)
		}
		all, m, again := Parse(b)
		if m != n || !sameHello(all, h) || (again == nil) != (err == nil) || again == ErrMore {
			t.Fatalf("%d bytes: %+v %v; all of them: %+v %v", i, h, err, all, again)
		}
		return
	}
}
