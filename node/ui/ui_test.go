package ui

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"penstock/internal/testkit"
)

func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

func key(b byte) (k [32]byte) {
	for i := range k {
		k[i] = b
	}
	return k
}

// A session is opened by every node that has one of the keys, while the key that sealed it
// is kept, and by no other cluster.
func TestSessionsOpenWhileTheirKeyIsKept(t *testing.T) {
	one := session{token: "00112233", begun: time.Unix(1_700_000_000, 0), csrf: [16]byte{1, 2, 3}}
	var ahead, behind, other Keys
	if _, err := ahead.seal(one); !errors.Is(err, errNoKeys) {
		t.Errorf("sealed without a key: %v", err)
	}
	if _, err := ahead.open("x"); !errors.Is(err, errNoKeys) {
		t.Errorf("opened without a key: %v", err)
	}
	behind.Set([][32]byte{key(1)})
	ahead.Set([][32]byte{key(2), key(1)}) // a rotation that the other one has not applied yet
	other.Set([][32]byte{key(9)})
	value, err := ahead.seal(one)
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*Keys{"the node itself": &ahead, "a node that is behind": &behind} {
		if got, err := k.open(value); err != nil || got != one {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	ahead.Set([][32]byte{key(3), key(2), key(1)})
	if got, err := ahead.open(value); err != nil || got != one {
		t.Errorf("after a day: %+v, %v", got, err)
	}
	ahead.Set([][32]byte{key(4), key(3), key(2)})
	for name, k := range map[string]*Keys{"after two days": &ahead, "another cluster": &other} {
		if _, err := k.open(value); !errors.Is(err, errCookie) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range value {
		changed := []byte(value)
		changed[i] ^= 1
		if _, err := behind.open(string(changed)); err == nil {
			t.Errorf("opened with byte %d changed", i)
		}
	}
	for _, bad := range []string{"", "AQ", value[:len(value)-2], value + "AA", strings.Repeat("A", maxCookie+1)} {
		if _, err := behind.open(bad); err == nil {
			t.Errorf("opened %.40q", bad)
		}
	}
}

// Files are sent compressed as the client accepts it, those with hashed names for ever, and
// with the types that nosniff requires.
func TestFilesAreSentAsTheClientAcceptsThem(t *testing.T) {
	script := []byte(strings.Repeat("let a = 1;\n", 1000))
	kept := files
	defer func() { files = kept }()
	made := readFiles(fstest.MapFS{
		"dist/index.html":            {Data: []byte("<!doctype html>")},
		"dist/icon.svg":              {Data: []byte("<svg/>")},
		"dist/assets/app-1f.js":      {Data: script},
		"dist/assets/app-1f.js.br":   {Data: []byte("br")},
		"dist/assets/style-2a.css":   {Data: script},
		"dist/assets/unknown-3b.xyz": {Data: []byte("x")},
	}, "dist")
	files = func() map[string]*file { return made }
	get := func(path, accept, tag string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", accept)
		r.Header.Set("If-None-Match", tag)
		Handler(NewSessions(Config{Dev: true})).ServeHTTP(w, r)
		return w
	}
	const forever = "public, max-age=31536000, immutable"
	for _, c := range []struct {
		path, accept           string
		status                 int
		encoding, media, cache string
	}{
		{"/ui/", "gzip, br", 200, "", "text/html; charset=utf-8", "no-store"},
		{"/ui/flow/apps", "", 200, "", "text/html; charset=utf-8", "no-store"},
		{"/ui/icon.svg", "gzip", 200, "", "image/svg+xml", "no-cache"},
		{"/ui/assets/app-1f.js", "gzip, deflate, br;q=0.5", 200, "br", "text/javascript; charset=utf-8", forever},
		{"/ui/assets/app-1f.js", "gzip, br;q=0", 200, "gzip", "text/javascript; charset=utf-8", forever},
		{"/ui/assets/app-1f.js", "", 200, "", "text/javascript; charset=utf-8", forever},
		{"/ui/assets/style-2a.css", "*", 200, "gzip", "text/css; charset=utf-8", forever},
		{"/ui/assets/unknown-3b.xyz", "gzip", 200, "", "application/octet-stream", forever},
		{"/ui/assets/app-1f.js.br", "", 404, "", "text/plain; charset=utf-8", ""},
		{"/ui/assets/", "", 404, "", "text/plain; charset=utf-8", ""},
	} {
		resp := get(c.path, c.accept, "")
		h := resp.Header()
		if resp.Code != c.status || h.Get("Content-Encoding") != c.encoding || h.Get("Content-Type") != c.media || h.Get("Cache-Control") != c.cache {
			t.Errorf("%s with %q: %d %v, want %+v", c.path, c.accept, resp.Code, h, c)
		}
		if c.status == 200 && h.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: Vary %q", c.path, h.Get("Vary"))
		}
		if tag := h.Get("ETag"); tag != "" {
			if again := get(c.path, c.accept, tag); again.Code != http.StatusNotModified {
				t.Errorf("%s again: %d", c.path, again.Code)
			}
		}
	}
	z, err := gzip.NewReader(get("/ui/assets/style-2a.css", "gzip", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || !bytes.Equal(text, script) {
		t.Errorf("compressed: %d bytes, %v", len(text), err)
	}
}

// A session ends after its life, whatever its token.
func TestSessionsEnd(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	keys := new(Keys)
	keys.Set([][32]byte{key(1)})
	s := NewSessions(Config{Keys: keys, Now: func() time.Time { return now }, Holder: holder})
	value, err := keys.seal(session{token: "ok", begun: now})
	if err != nil {
		t.Fatal(err)
	}
	check := func() error {
		r := httptest.NewRequest(http.MethodGet, "/v1/status", nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.AddCookie(&http.Cookie{Name: Cookie, Value: "of another server"})
		r.AddCookie(&http.Cookie{Name: Cookie, Value: value})
		_, err := s.Check(r)
		return err
	}
	if err := check(); err != nil {
		t.Errorf("at once: %v", err)
	}
	now = now.Add(SessionLife - time.Second)
	if err := check(); err != nil {
		t.Errorf("just before its end: %v", err)
	}
	now = now.Add(time.Second)
	if err := check(); err == nil || !strings.Contains(err.Error(), "12h") {
		t.Errorf("after 12 hours: %v", err)
	}
}

// Sessions and logins need TLS, except from this machine; the cookie is Secure with it.
func TestSessionsNeedTLS(t *testing.T) {
	keys := new(Keys)
	keys.Set([][32]byte{key(1)})
	s := NewSessions(Config{Keys: keys, Now: time.Now, Login: login, Holder: holder, Audit: ignore})
	for _, c := range []struct {
		from   string
		tls    bool
		status int
	}{{"192.0.2.1:1", false, 403}, {"192.0.2.1:1", true, 200}, {"127.0.0.1:1", false, 200}, {"[::1]:1", false, 200}} {
		target := map[bool]string{true: "https://x/ui/login", false: "http://x/ui/login"}[c.tls]
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, target, strings.NewReader(`{"token":"pst1.x"}`))
		r.RemoteAddr = c.from
		r.Header.Set("Content-Type", "application/json")
		Handler(s).ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
		if cookies := w.Result().Cookies(); c.status == 200 && (len(cookies) != 1 || cookies[0].Secure != c.tls) {
			t.Errorf("%+v: %v", c, cookies)
		}
	}
}
