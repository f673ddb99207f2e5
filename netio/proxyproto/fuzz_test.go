package proxyproto

import "testing"

func addHeaders(f *testing.F) {
	for _, h := range headers() {
		f.Add(Append(nil, V1, h))
		f.Add(Append(nil, V2, h))
	}
	for _, c := range refusals() {
		f.Add([]byte(c.b))
	}
	f.Add(withSum(tlv(typeAuthority, "a")))
}

// What is read can be written, and is then read as the same; waiting for what
// Parse needs misses nothing.
func FuzzParse(f *testing.F) {
	addHeaders(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), MaxV2+100)]
		h, n, err := Parse(b)
		switch {
		case err == nil && (n > len(b) || n > MaxV2):
			t.Fatalf("took %d of %d bytes", n, len(b))
		case err == ErrMore && (n <= len(b) || n > MaxV2):
			t.Fatalf("needs %d, has %d", n, len(b))
		}
		checkPrefixes(t, b)
		if err != nil {
			return
		}
		for v, want := range map[Version]Header{V1: inV1(h), V2: inV2(h)} {
			written := Append(nil, v, h)
			again, m, err := Parse(written)
			if err != nil || m != len(written) || !sameHeader(again, want) {
				t.Fatalf("v%d: wrote %q, read %+v (%d bytes, %v), want %+v", v, written, again, m, err, want)
			}
		}
	})
}

func FuzzGoProxyprotoReadsTheSame(f *testing.F) {
	addHeaders(f)
	f.Fuzz(compareWithPires)
}

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
		if m != n || !sameHeader(all, h) || (again == nil) != (err == nil) || again == ErrMore {
			t.Fatalf("%d bytes: %+v %v; all of them: %+v %v", i, h, err, all, again)
		}
		return
	}
}
