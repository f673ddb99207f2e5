package session

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The stories and tests that DESIGN.md names as those that hold an invariant are
// there, and every story is named.
func TestDesignNamesItsTests(t *testing.T) {
	text, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, dir := range []string{".", "..", "../wire", "../filter"} {
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(b)
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(text), -1)
	for _, name := range named {
		if !strings.Contains(code.String(), "func "+name[1]+"(") {
			t.Errorf("there is no %s", name[1])
		}
	}
	for _, name := range regexp.MustCompile("`(\\w+\\.txt)`").FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join("testdata", name[1])); err != nil {
			t.Error(err)
		}
	}
	stories, _ := filepath.Glob("testdata/*.txt")
	for _, s := range stories {
		if !strings.Contains(string(text), "`"+filepath.Base(s)+"`") {
			t.Errorf("%s is missing from DESIGN.md", s)
		}
	}
	if len(named) < 20 || len(stories) < 30 {
		t.Errorf("%d tests and %d stories", len(named), len(stories))
	}
}
