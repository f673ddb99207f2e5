package cli

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
)

// The values of headers are hidden in resources, and nothing else is.
func TestHeadersAreHiddenInBundles(t *testing.T) {
	const given = `{"spec":{"otlp":{"headers":{"api-key":"S3CRET"}},"to":[{"rules":[{` +
		`"default":{"filters":[{"requestHeaderModifier":{"add":[{"name":"a","value":"S3CRET"}],"set":[{"name":"authorization","value":"S3CRET"}]}}]},` +
		`"matches":[{"headers":[{"name":"x-key","type":"Exact","value":"S3CRET"}],"queryParams":[{"name":"q","value":"seen"}]}]}]}],` +
		`"version":12345678901234567890}}`
	var v any
	d := json.NewDecoder(strings.NewReader(given))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	hideHeaders(v)
	got, err := json.Marshal(v)
	if want := strings.ReplaceAll(given, "S3CRET", "(hidden)"); err != nil || string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// A node that sends more than it may is not believed, and its names are no paths.
func TestPartsOfNodesAreBounded(t *testing.T) {
	n := func() *nodeParts {
		return &nodeParts{b: &bundler{archive: newBundleArchive(io.Discard, time.Now())}, folder: "nodes/n1"}
	}
	big, many, strange := n(), n(), n()
	piece := make([]byte, 1<<20)
	var err error
	for i := 0; err == nil && i <= api.MaxDebugPart>>20+1; i++ {
		err = big.add(&api.DebugPart{Name: api.DebugMetrics, Data: piece})
	}
	if !errors.Is(err, errTooLong) || len(big.data) > api.MaxDebugPart+len(piece) {
		t.Errorf("a large part: %v, %d bytes", err, len(big.data))
	}
	err = nil
	for i := 0; err == nil && i <= api.MaxDebugParts+1; i++ {
		err = many.add(&api.DebugPart{Name: api.DebugAbout, Last: true})
	}
	if !errors.Is(err, errTooLong) {
		t.Errorf("many parts: %v", err)
	}
	for _, name := range []string{"../../etc/passwd", "cmdline", ""} {
		if err := strange.add(&api.DebugPart{Name: name, Data: piece, Last: true}); err != nil || len(strange.b.archive.report.Files) > 0 {
			t.Errorf("%q: %v, %v", name, err, strange.b.archive.report.Files)
		}
	}
}

func TestFileNamesOfNodes(t *testing.T) {
	for name, want := range map[string]string{
		"n1": "n1", "../../x": "_.._x", "..": "", "a b\x1b[2J|c": "a_b__2J_c", "ü": "_", "db-1.example.com": "db-1.example.com",
		strings.Repeat("x", 300): strings.Repeat("x", 100),
	} {
		if got := fileName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
