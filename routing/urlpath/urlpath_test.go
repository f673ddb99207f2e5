package urlpath

import (
	"net/url"
	"strings"
	"testing"
)

func TestNormalForm(t *testing.T) {
	for path, want := range map[string]string{
		"/":                   "/",
		"/a/b":                "/a/b",
		"/a//b":               "/a//b",
		"/%61%2d%7E":          "/a-~",
		"/%2f%3a%c3%a9":       "/%2F%3A%C3%A9",
		"/a b\"<>é":           "/a%20b%22%3C%3E%C3%A9",
		"/$&'()*+,;=:@!._-":   "/$&'()*+,;=:@!._-",
		"/...":                "/...",
		"/a.":                 "/a.",
		"/.a/..b/...;c/.%2e.": "/.a/..b/...;c/...",
		"/a../b./c..%2Fd":     "/a../b./c..%2Fd",
		"/a;../b;.":           "/a;../b;.",
		"//a//":               "//a//",
		"/%25":                "/%25",
	} {
		got, ok := Normal(path)
		if again, _ := Normal(got); !ok || got != want || again != got {
			t.Errorf("%s: %q, %v, want %q; again %q", path, got, ok, want, again)
		}
	}
	for _, path := range []string{
		"", "a", "*", "/%", "/%4", "/%zz", "/%00", "/\x00", "/.", "/..", "/a/../b", "/a/./", "/%2e%2E/b", "/a/%2e",
		"/a/..%2Fb", "/a/%2e%2e%2fb", "/a/..%5Cb", "/a/..;/b", "/a/..;x=1/b", "/a/.;", "/a/..%3bx", "/a%2f..",
		"/a%2F.%2Fb", "/a%5c..%5cb", "/a\\..\\b", "/...%2F../", "/a.b/c../..",
	} {
		if got, ok := Normal(path); ok {
			t.Errorf("%q is parsed as %q", path, got)
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

// servers are the ways in which servers in use interpret paths.
var servers = []func(path string) string{
	func(path string) string { return path },
	func(path string) string { return strings.ReplaceAll(path, `\`, "/") },
	withoutParameters,
	func(path string) string { return withoutParameters(strings.ReplaceAll(path, `\`, "/")) },
}

// withoutParameters removes everything after a semicolon from each segment.
func withoutParameters(path string) string {
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

// A path in normal form is in the same directories for every server, whether it
// splits the path into segments before or after unescaping.
func FuzzServersResolveTheSamePath(f *testing.F) {
	for _, s := range []string{"/a%2Fb/../%c3", "/a/..%2fb", "/a/..%5cb", "/a/..;/b", "/a%5c..;x/b", "/..%3b/a", "/a/.b/c."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		escaped, ok := Normal(text)
		if !ok {
			return
		}
		plain, err := url.PathUnescape(escaped)
		if err != nil {
			t.Fatal(err)
		}
		for i, read := range servers {
			for _, path := range []string{read(escaped), read(plain)} {
				for segment := range strings.SplitSeq(path, "/") {
					if segment == "." || segment == ".." {
						t.Fatalf("%q, which is %q, has the segment %s for server %d", text, escaped, segment, i)
					}
				}
			}
		}
	})
}

func BenchmarkNormal(b *testing.B) {
	for _, path := range []string{"/", "/service/25/a/b", "/static/js/app.min.js", "/a/%63art/b", "/" + strings.Repeat("segment/", 100)} {
		b.Run(path[:min(len(path), 24)], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := Normal(path); !ok {
					b.Fatal("it has none")
				}
			}
		})
	}
}
