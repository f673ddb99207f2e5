package proxyproto

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func meshHeaders() map[string]Header {
	bare := Header{Mesh: &Mesh{Service: "shop"}}
	full := headers()["all"]
	full.Mesh = &Mesh{
		SPIFFEID: "spiffe://0123456789abcdef/ns/shop/web", Service: "shop", Route: "edge/apps",
		Tags: map[string]string{"service": "web", "kuma.io/zone": "a", "empty": ""},
	}
	undecided := headers()["v6"]
	undecided.Mesh = &Mesh{Service: "shop", Undecided: true}
	return map[string]Header{"no addresses": bare, "full": full, "undecided": undecided}
}

func mustMesh(t testing.TB, h Header) []byte {
	t.Helper()
	b, err := AppendMesh(nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sameMesh(a, b Header) bool {
	return sameHeader(a, b) && reflect.DeepEqual(a.Mesh, b.Mesh)
}

func TestMeshHeaderIsReadAsWritten(t *testing.T) {
	for name, h := range meshHeaders() {
		b := mustMesh(t, h)
		for i := range b {
			if _, n, err := ParseMesh(b[:i]); err != ErrMore || n <= i || n > len(b) {
				t.Fatalf("%s: %d of %d bytes: needs %d, %v", name, i, len(b), n, err)
			}
		}
		got, n, err := ParseMesh(append(b, "hello"...))
		if err != nil || n != len(b) || !sameMesh(got, h) {
			t.Errorf("%s: read %+v %+v (%d of %d bytes, %v)", name, got, got.Mesh, n, len(b), err)
		}
	}
}

// Who may send an ordinary header cannot claim what only the mesh may.
func TestOrdinaryHeadersHaveNoMesh(t *testing.T) {
	h, _, err := Parse(mustMesh(t, meshHeaders()["full"]))
	if err != nil || h.Mesh != nil {
		t.Errorf("read %+v, %v", h.Mesh, err)
	}
}

func TestMeshHeadersThatAreRefused(t *testing.T) {
	with := func(tlvs ...string) []byte {
		b := Append(nil, V2, headers()["v4"])
		for _, v := range tlvs {
			b = append(b, v...)
		}
		setLength(b, 0)
		return b
	}
	service, id := tlv(typeMeshService, "shop"), tlv(typeMeshIdentity, "spiffe://a/b")
	var many []string
	for i := range MaxMeshTags + 1 {
		many = append(many, tlv(typeMeshTag, strconv.Itoa(i)+"=x"))
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"version 1":        {Append(nil, V1, headers()["v4"]), ErrNoHeader},
		"local":            {Append(nil, V2, Header{Local: true}), ErrMesh},
		"no service":       {with(id), ErrMesh},
		"service twice":    {with(service, service), ErrMalformed},
		"identity twice":   {with(service, id, id), ErrMalformed},
		"tag twice":        {with(service, tlv(typeMeshTag, "a=1"), tlv(typeMeshTag, "a=2")), ErrMalformed},
		"tag without name": {with(service, tlv(typeMeshTag, "=1")), ErrMalformed},
		"tag without =":    {with(service, tlv(typeMeshTag, "a")), ErrMalformed},
		"too many tags":    {with(append(many, service)...), ErrMalformed},
		"line break":       {with(service, tlv(typeMeshRoute, "a\nb")), ErrMalformed},
		"not UTF-8":        {with(service, tlv(typeMeshRoute, "\xff")), ErrMalformed},
		"unknown flags":    {with(service, tlv(typeMeshFlags, "\x02")), ErrMalformed},
		"undecided and ID": {with(service, id, tlv(typeMeshFlags, "\x01")), ErrMesh},
		"too long":         {with(service, tlv(typeMeshRoute, strings.Repeat("a", MaxMesh))), ErrTooLong},
	} {
		if h, n, err := ParseMesh(c.b); !errors.Is(err, c.want) || n != 0 || h.Mesh != nil {
			t.Errorf("%s: %+v, %d, %v; want %v", name, h, n, err, c.want)
		}
	}
}

// A header that does not fit is an error: nothing is left out of it.
func TestMeshHeaderThatCannotBeWritten(t *testing.T) {
	many := map[string]string{}
	for i := range MaxMeshTags + 1 {
		many[strconv.Itoa(i)] = "x"
	}
	for name, c := range map[string]struct {
		m    *Mesh
		want error
	}{
		"none":          {nil, ErrMesh},
		"no service":    {&Mesh{}, ErrMesh},
		"long tag":      {&Mesh{Service: "s", Tags: map[string]string{"a": strings.Repeat("x", MaxMesh)}}, ErrMesh},
		"long together": {&Mesh{Service: "s", Route: strings.Repeat("x", MaxMesh/2), SPIFFEID: strings.Repeat("x", MaxMesh/2)}, ErrTooLong},
		"many tags":     {&Mesh{Service: "s", Tags: many}, ErrTooLong},
		"tag's name":    {&Mesh{Service: "s", Tags: map[string]string{"a=b": "c"}}, ErrMesh},
		"line break":    {&Mesh{Service: "s", Route: "a\nb"}, ErrMesh},
		"two answers":   {&Mesh{Service: "s", SPIFFEID: "spiffe://a/b", Undecided: true}, ErrMesh},
	} {
		if b, err := AppendMesh([]byte("before"), Header{Mesh: c.m}); !errors.Is(err, c.want) || string(b) != "before" {
			t.Errorf("%s: %q, %v; want %v", name, b, err, c.want)
		}
	}
}

// What is read can be written, and is then read as the same.
func FuzzParseMesh(f *testing.F) {
	addHeaders(f)
	for _, h := range meshHeaders() {
		f.Add(mustMesh(f, h))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := ParseMesh(b)
		switch {
		case err == nil && (n > len(b) || n > MaxMesh || len(h.Mesh.Tags) > MaxMeshTags):
			t.Fatalf("took %d of %d bytes", n, len(b))
		case err == ErrMore && (n <= len(b) || n > MaxMesh):
			t.Fatalf("needs %d, has %d", n, len(b))
		}
		if err != nil {
			return
		}
		written, err := AppendMesh(nil, h)
		if err != nil {
			t.Fatalf("cannot write %+v: %v", h.Mesh, err)
		}
		again, m, err := ParseMesh(written)
		if err != nil || m != len(written) || !reflect.DeepEqual(again.Mesh, h.Mesh) || again.Source != h.Source {
			t.Fatalf("wrote %q, read %+v (%v), want %+v", written, again.Mesh, err, h.Mesh)
		}
	})
}
