package ui

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// dist is the dashboard's bundle, which is built from app. A file may have siblings with
// the suffixes .br and .gz: its content, compressed.
//
//go:embed all:dist
var dist embed.FS

// file is one file of the bundle, as it is sent.
type file struct {
	media  string // Content-Type
	plain  []byte
	packed map[string][]byte // by Content-Encoding
	tag    string            // ETag of the plain content
	hashed bool              // its name has a hash of its content
}

// files reads the bundle, by path below /ui/, when somebody first asks for it. What
// has no compressed sibling is compressed here.
var files = sync.OnceValue(func() map[string]*file { return readFiles(dist, "dist") })

func readFiles(from fs.FS, root string) map[string]*file {
	all := map[string]*file{}
	_ = fs.WalkDir(from, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, ".br") || strings.HasSuffix(name, ".gz") {
			return err
		}
		f := &file{packed: map[string][]byte{}, media: mediaType(name)}
		if f.plain, err = fs.ReadFile(from, name); err != nil {
			return err
		}
		sum := sha256.Sum256(f.plain)
		f.tag = hex.EncodeToString(sum[:12])
		for encoding, suffix := range map[string]string{"br": ".br", "gzip": ".gz"} {
			if b, err := fs.ReadFile(from, name+suffix); err == nil {
				f.packed[encoding] = b
			}
		}
		if b := compress(f.plain); f.packed["gzip"] == nil && len(b) < len(f.plain) {
			f.packed["gzip"] = b
		}
		below := strings.TrimPrefix(name, root+"/")
		f.hashed = strings.HasPrefix(below, "assets/")
		all[below] = f
		return nil
	})
	return all
}

// mediaTypes has the types of what a bundle contains: those of the system's tables differ
// from one machine to another.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json", ".woff2": "font/woff2", ".png": "image/png", ".ico": "image/x-icon",
	".txt": "text/plain; charset=utf-8", ".webmanifest": "application/manifest+json", ".map": "application/json",
}

func mediaType(name string) string {
	return cmp.Or(mediaTypes[path.Ext(name)], "application/octet-stream")
}

func compress(plain []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // fails for other levels alone
	_, _ = w.Write(plain)                                   // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

// serveFile serves a file of the bundle. A path that is none is one of the page's own,
// which the page finds in its address, except below assets/.
func serveFile(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/ui/")
	f := files()[name]
	if f == nil {
		if strings.HasPrefix(name, "assets/") {
			http.NotFound(w, r)
			return
		}
		name = "index.html"
		f = files()[name]
	}
	h := w.Header()
	switch {
	case f.hashed:
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	case name == "index.html":
		h.Set("Cache-Control", "no-store")
	default:
		h.Set("Cache-Control", "no-cache") // asks whether it has changed
	}
	body, tag := f.plain, `"`+f.tag+`"`
	h.Add("Vary", "Accept-Encoding")
	for _, encoding := range []string{"br", "gzip"} {
		if packed := f.packed[encoding]; packed != nil && accepts(r.Header.Get("Accept-Encoding"), encoding) {
			body, tag = packed, `"`+f.tag+"-"+encoding+`"`
			h.Set("Content-Encoding", encoding)
			break
		}
	}
	h.Set("Content-Type", f.media)
	if name != "index.html" {
		h.Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // fails only if the client has gone
}

// accepts reports whether a client accepts an encoding (RFC 9110, section 12.5.3).
func accepts(header, encoding string) bool {
	accepted := false
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		name = strings.TrimSpace(name)
		if !strings.EqualFold(name, encoding) && name != "*" {
			continue
		}
		weight, isWeight := strings.CutPrefix(strings.ToLower(strings.TrimSpace(params)), "q=")
		q, err := strconv.ParseFloat(weight, 64)
		ok := !isWeight || err == nil && q > 0
		if name != "*" {
			return ok
		}
		accepted = ok
	}
	return accepted
}
