package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	// benchCommand finds the pattern and the packages of a go test -bench command.
	benchCommand  = regexp.MustCompile("go test [^\n`]*?-bench (?:'([^'\n]+)'|([^ \n]+))([^\n`;]*)")
	packageFolder = regexp.MustCompile(`\./[a-z0-9/]+`)
	benchmarkFunc = regexp.MustCompile(`(?m)^func (Benchmark\w+)\(`)
)

// The benchmarks that the documents tell readers to run are in the packages that
// the commands name: go test prints "ok" for a package without any.
func TestDocsBenchmarksExist(t *testing.T) {
	checked := 0
	for _, name := range allDocuments(t) {
		for _, m := range benchCommand.FindAllStringSubmatch(readDocument(t, name), -1) {
			pattern, err := regexp.Compile(m[1] + m[2])
			if err != nil {
				t.Errorf("%s: %s: %v", name, m[0], err)
				continue
			}
			folders := packageFolder.FindAllString(m[3], -1)
			if len(folders) == 0 {
				t.Errorf("%s: %s names no package", name, m[0])
			}
			for _, folder := range folders {
				checked++
				if !hasBenchmark(t, filepath.Join(root(t), folder), pattern) {
					t.Errorf("%s: %s: %s has no such benchmark", name, m[0], folder)
				}
			}
		}
	}
	if checked < 4 {
		t.Errorf("only %d packages were checked", checked)
	}
}

// hasBenchmark reports whether a folder's tests have a benchmark that fits.
func hasBenchmark(t *testing.T, folder string, pattern *regexp.Regexp) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range benchmarkFunc.FindAllSubmatch(text, -1) {
			if pattern.Match(m[1]) {
				return true
			}
		}
	}
	return false
}
