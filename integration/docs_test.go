package integration

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"penstock/kafka/model"
	"penstock/routing/formats"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// This file and docs_*_test.go check the documents against the code. Parts
// between <!-- generated: NAME --> and <!-- end --> are written by these tests:
//
//	go test ./integration -run Docs -update
var update = flag.Bool("update", false, "write the generated parts of docs/ anew")

// documents returns the paths of the README and of all files in docs/, relative
// to the root.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal("docs/ has no documents", err)
	}
	names := []string{"README.md"}
	for _, f := range files {
		names = append(names, "docs/"+filepath.Base(f))
	}
	return names
}

// allDocuments returns documents and the Markdown files next to the code.
func allDocuments(t *testing.T) []string {
	t.Helper()
	var names []string
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			name, err := filepath.Rel(top, path)
			names = append(names, name)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func readDocument(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// checkGenerated compares the generated part of a document with want, or
// rewrites it with -update.
func checkGenerated(t *testing.T, document, name, want string) {
	t.Helper()
	text := readDocument(t, document)
	open, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(text, open)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Errorf("%s has no part %q", document, name)
		return
	}
	want = "\n" + strings.TrimSpace(want) + "\n\n"
	if got == want {
		return
	}
	if !*update {
		t.Errorf("%s: the part %q is not what the code says; go test ./integration -run Docs -update writes it anew; it should be:\n%s",
			document, name, firstDifference(got, want))
		return
	}
	if err := os.WriteFile(filepath.Join(root(t), document), []byte(before+open+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range w {
		if i >= len(g) || g[i] != w[i] {
			return fmt.Sprintf("line %d: %s", i+1, w[i])
		}
	}
	return fmt.Sprintf("%d lines, not %d", len(w), len(g))
}

// checkSame compares the documented items with those of the code.
func checkSame(t *testing.T, what string, inDocs, inCode map[string]bool) {
	t.Helper()
	if len(inCode) == 0 {
		t.Fatalf("no %s was found in the code", what)
	}
	for name := range inCode {
		if !inDocs[name] {
			t.Errorf("%s %s is not documented", what, name)
		}
	}
	for name := range inDocs {
		if !inCode[name] {
			t.Errorf("%s %s is documented and does not exist", what, name)
		}
	}
}

var tableKey = regexp.MustCompile("^\\| *`([^`]+)` *\\|")

// tableKeys returns the first cells of all tables of a document that are
// written as code.
func tableKeys(text string) map[string]bool {
	keys := map[string]bool{}
	for line := range strings.Lines(text) {
		if m := tableKey.FindStringSubmatch(line); m != nil {
			keys[m[1]] = true
		}
	}
	return keys
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fence   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	// ourPath matches a path of the repository, written as code.
	ourPath = regexp.MustCompile("`((?:cmd|node|consensus|netio|routing|integration|docs|deploy)/[\\w./-]*[\\w/])`")
)

// anchors returns the link fragments of a document's headings.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all[anchor(m[1])] = true
	}
	return all
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestDocsLinksResolve(t *testing.T) {
	checked := 0
	headings := map[string]map[string]bool{} // by document
	for _, name := range allDocuments(t) {
		text := readDocument(t, name)
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			path, fragment, _ := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
				if _, err := os.Stat(filepath.Join(root(t), target)); err != nil {
					t.Errorf("%s: %s leads nowhere", name, m[1])
					continue
				}
			}
			if fragment != "" && headings[target] == nil {
				headings[target] = anchors(readDocument(t, target))
			}
			if fragment != "" && !headings[target][fragment] {
				t.Errorf("%s: %s: there is no such heading", name, m[1])
			}
		}
		for _, m := range ourPath.FindAllStringSubmatch(text, -1) {
			checked++
			if _, err := os.Stat(filepath.Join(root(t), m[1])); err != nil {
				t.Errorf("%s speaks of %s, which does not exist", name, m[1])
			}
		}
	}
	if checked == 0 {
		t.Fatal("no link was checked")
	}
}

// Each YAML block of the documents is complete and valid, unless one of these
// comments precedes it:
//
//	<!-- part -->              refers to resources outside of the block
//	<!-- settings -->          a file for penstock start --config
//	<!-- not in this version --> kinds that this version does not support
func TestDocsExamplesAreValid(t *testing.T) {
	checked := 0
	for _, name := range documents(t) {
		text := readDocument(t, name)
		for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
			if text[at[2]:at[3]] != "yaml" {
				continue
			}
			checked++
			block, before := text[at[4]:at[5]], strings.TrimSpace(text[:at[0]])
			where := fmt.Sprintf("%s:%d", name, strings.Count(text[:at[4]], "\n")+1)
			switch {
			case strings.HasSuffix(before, "<!-- not in this version -->"):
			case strings.HasSuffix(before, "<!-- settings -->"):
				checkSettings(t, where, block)
			default:
				checkResources(t, where, block, strings.HasSuffix(before, "<!-- part -->"))
			}
		}
	}
	if checked == 0 {
		t.Fatal("no example was checked")
	}
}

func checkResources(t *testing.T, where, block string, part bool) {
	t.Helper()
	objects, faults := codec.DecodeForeign("", []byte(block), allKinds(), append(formats.All(), model.Foreign()...))
	if len(faults) == 0 && !part {
		var warnings resource.Warnings
		faults, warnings = validate.Objects(objects)
		for _, w := range warnings {
			t.Errorf("%s: warning: %v", where, w)
		}
	}
	if len(objects) == 0 {
		t.Errorf("%s: holds no resource", where)
	}
	for _, f := range faults {
		t.Errorf("%s, line %d of the example: %v", where, f.Line, f)
	}
}
