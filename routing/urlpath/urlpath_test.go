package urlpath

import (
	"net/url"
	"testing"
)

func TestNormalForm(t *testing.T) {
	for path, want := range map[string]string{
		"/":                 "/",
		"/a/b":              "/a/b",
		"/a//b":             "/a//b",
		"/%61%2d%7E":        "/a-~",
		"/%2f%3a%c3%a9":     "/%2F%3A%C3%A9",
		"/a b\"<>é":         "/a%20b%22%3C%3E%C3%A9",
		"/$&'()*+,;=:@!._-": "/$&'()*+,;=:@!._-",
		"/...":              "/...",
		"/a.":               "/a.",
		"/%25":              "/%25",
	} {
		got, ok := Normal(path)
		if again, _ := Normal(got); !ok || got != want || again != got {
			t.Errorf("%s: %q, %v, want %q; again %q", path, got, ok, want, again)
		}
	}
	for _, path := range []string{"", "a", "*", "/%", "/%4", "/%zz", "/%00", "/\x00", "/.", "/..", "/a/../b", "/a/./", "/%2e%2E/b", "/a/%2e"} {
		if got, ok := Normal(path); ok {
			t.Errorf("%q is taken as %q", path, got)
		}
	}
}

func FuzzNormal(f *testing.F) {
	for _, s := range []string{"/a%2Fb/../%c3", "/%2e", "//", "/a%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, ok := Normal(path)
		if !ok {
			return
		}
		if again, ok := Normal(got); !ok || again != got {
			t.Fatalf("%q becomes %q, and that %q", path, got, again)
		}
		was, err := url.PathUnescape(path)
		is, err2 := url.PathUnescape(got)
		if err != nil || err2 != nil || was != is {
			t.Fatalf("%q means %q (%v), and %q means %q (%v)", path, was, err, got, is, err2)
		}
	})
}
