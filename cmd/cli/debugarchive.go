package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// bundleArchive is the .tar.gz of a bundle. Its methods are safe for concurrent use.
type bundleArchive struct {
	at   time.Time
	root string // the folder in which all files are

	mu     sync.Mutex
	zip    *gzip.Writer
	tar    *tar.Writer
	report bundleReport
}

func newBundleArchive(w io.Writer, at time.Time) *bundleArchive {
	zip := gzip.NewWriter(w)
	return &bundleArchive{
		at: at, root: "penstock-debug-" + at.UTC().Format("20060102-150405") + "/", zip: zip, tar: tar.NewWriter(zip),
		report: bundleReport{Files: []bundleFile{}, Missing: []bundleFault{}},
	}
}

// add adds a file.
func (a *bundleArchive) add(path, about string, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report.Files = append(a.report.Files, bundleFile{path, len(data), about})
	h := &tar.Header{Name: a.root + path, Mode: 0o600, Size: int64(len(data)), ModTime: a.at, Typeflag: tar.TypeReg}
	if err := a.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := a.tar.Write(data)
	return err
}

// miss notes that a file is missing or incomplete.
func (a *bundleArchive) miss(path, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report.Missing = append(a.report.Missing, bundleFault{path, why})
}

// end adds README.md and ends the archive.
func (a *bundleArchive) end() (*bundleReport, error) {
	slices.SortFunc(a.report.Files, func(x, y bundleFile) int { return strings.Compare(x.Path, y.Path) })
	slices.SortFunc(a.report.Missing, func(x, y bundleFault) int { return strings.Compare(x.Path, y.Path) })
	if err := a.add("README.md", "what each file is, and what is missing", a.readme()); err != nil {
		return nil, err
	}
	if err := a.tar.Close(); err != nil {
		return nil, err
	}
	return &a.report, a.zip.Close()
}

// readme describes the other files.
func (a *bundleArchive) readme() []byte {
	var w bytes.Buffer
	fmt.Fprintf(&w, "# Penstock debug bundle\n\nCollected %s by penstock %s.\n\n", a.at.UTC().Format(time.RFC3339), Build())
	fmt.Fprintf(&w, "It contains no keys, passwords, tokens or values of headers, but names, addresses and log lines.\n\n")
	fmt.Fprintf(&w, "| file | bytes | what |\n|---|---|---|\n")
	for _, f := range a.report.Files {
		fmt.Fprintf(&w, "| `%s` | %d | %s |\n", f.Path, f.Bytes, f.About)
	}
	fmt.Fprintf(&w, "\n## What is missing\n\n")
	for _, m := range a.report.Missing {
		fmt.Fprintf(&w, "- `%s`: %s\n", m.Path, sanitize(m.Why))
	}
	if len(a.report.Missing) == 0 {
		fmt.Fprintf(&w, "Nothing.\n")
	}
	fmt.Fprintf(&w, "\n## How to read it\n\n"+
		"- `go tool pprof -http=: nodes/NAME/cpu.pb.gz` shows where a node's CPU time goes, `heap.pb.gz` what holds its memory.\n"+
		"- `goroutines.txt` counts equal stacks; the most frequent come first.\n"+
		"- `metrics.prom` has the values at the end, `telemetry.jsonl` those of the last hour, a metric on each line: groups of series by `by`, "+
		"points of a minute, the last one now.\n"+
		"- The reasons for which connections end are explained in docs/reasons.md, metrics in docs/metrics.md.\n")
	return w.Bytes()
}

// fileName makes a name of a file from the name of a node or a kind.
func fileName(s string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, s)
	return strings.TrimLeft(clean[:min(len(clean), 100)], ".")
}
