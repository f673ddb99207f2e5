package integration

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ownWords maps words coined in this code to the established terms.
var ownWords = map[string]string{
	"duct": "pipe", "ducts": "pipes", "mutter": "error log", "muttering": "error log", "muttered": "error log",
	"lane": "direction", "lanes": "directions", "detour": "reorder buffer", "detours": "reorder buffers",
	"hesitant": "buffering", "hesitates": "buffers", "astray": "orphaned",
	"agenda": "scheduler", "ballot": "vote filter", "ballots": "vote filters",
	"tenure": "leader term", "pulse": "liveness probe", "pulses": "liveness probes",
	"outbox": "write coalescer", "vouch": "token throttle", "vouched": "token throttle", "vouches": "signs",
	"labeler": "described", "farewells": "removed listeners",
}

var allOwnWords = slices.Collect(maps.Keys(ownWords))

// wordParts matches the words of an identifier or of a text.
var wordParts = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// TestNoOwnWords checks that code, file names and documents use the established
// terms.
func TestNoOwnWords(t *testing.T) {
	t.Parallel()
	top := root(t)
	files := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(top, path)
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(name); ext != ".go" && ext != ".md" || name == "integration/words_test.go" {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		for i, line := range append([]string{name}, strings.Split(string(text), "\n")...) {
			for _, word := range ownWordsIn(line) {
				t.Errorf("%s:%d says %q: say %q", name, i, word, ownWords[word])
			}
		}
		return err
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
	for line, want := range map[string][]string{
		"func newDuct() *outBox": {"duct"}, "product, planes, pulsed": nil, "an agenda; TestDetours": {"agenda", "detours"},
	} {
		if got := ownWordsIn(line); !slices.Equal(got, want) {
			t.Errorf("%q has %q, want %q", line, got, want)
		}
	}
}

func ownWordsIn(line string) (found []string) {
	if lower := strings.ToLower(line); !slices.ContainsFunc(allOwnWords, func(word string) bool { return strings.Contains(lower, word) }) {
		return nil // the regular expression is slow with the race detector
	}
	for _, part := range wordParts.FindAllString(line, -1) {
		if word := strings.ToLower(part); ownWords[word] != "" {
			found = append(found, word)
		}
	}
	return found
}
