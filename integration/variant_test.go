package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A variant is the real program built with a line or two changed, for
// conditions that no setting provides: a wrong clock, a short log. The source
// on disk is not changed, so everything else is what ships.
type variant struct {
	name  string
	file  string   // file to edit, relative to the root of the repository
	edits []edit   // edits of that file
	added string   // folder of testdata whose files are added to the main package
	flags []string // additional build flags
}

// edit replaces a piece of text that must occur exactly once.
type edit struct{ old, new string }

var (
	// skewedClock adds PENSTOCK_TEST_CLOCK seconds to the wall clock, but not
	// to the monotonic clock. The program reads the clock without a system call
	// (vDSO), so no outside tool can change it; but the runtime holds the
	// address of the function that it calls for that, and the linker lets an
	// assembly file change it with the right flag. Only the main package is
	// rebuilt.
	skewedClock = variant{name: "wrongclock", added: "wrongclock", flags: []string{"-ldflags=-s -w -checklinkname=0"}}

	// shortLog takes a snapshot every second or two, and keeps few log entries
	// before it.
	shortLog = variant{name: "shortlog", file: "consensus/replica/replica.go", edits: []edit{
		{"set(&c.SnapshotThreshold, 8192)", "set(&c.SnapshotThreshold, 64)"},
		{"set(&c.SnapshotInterval, 2*time.Minute)", "set(&c.SnapshotInterval, time.Second)"},
		{"set(&c.TrailingLogs, 10240)", "set(&c.TrailingLogs, 32)"},
	}}
)

// variants are the paths of the built variants, by name.
var variants struct {
	sync.Mutex
	paths map[string]string
}

// program builds the variant, once for all tests, and returns its path.
func (v variant) program(t testing.TB) string {
	t.Helper()
	program(t) // creates the shared build folder
	variants.Lock()
	defer variants.Unlock()
	if path := variants.paths[v.name]; path != "" {
		return path
	}
	path := filepath.Join(built, "penstock-"+v.name)
	args := append([]string{"build", "-ldflags=-s -w", "-overlay", v.overlay(t), "-o", path}, v.flags...)
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "penstock/cmd/penstock")...).CombinedOutput(); err != nil {
		t.Fatalf("the variant %s: go build: %v\n%s", v.name, err, out)
	}
	if variants.paths == nil {
		variants.paths = map[string]string{}
	}
	variants.paths[v.name] = path
	return path
}

// overlay writes the changed file, if any, and the -overlay file that maps all
// replaced files.
func (v variant) overlay(t testing.TB) string {
	t.Helper()
	top := root(t)
	replace := map[string]string{}
	if v.file != "" {
		changed := filepath.Join(built, v.name+".go")
		replace[filepath.Join(top, v.file)] = changed
		if err := os.WriteFile(changed, v.changed(t, filepath.Join(top, v.file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if v.added != "" {
		added, err := filepath.Glob(filepath.Join(top, "integration/testdata", v.added, "*"))
		if err != nil || len(added) == 0 {
			t.Fatalf("the variant %s adds no file: %v", v.name, err)
		}
		for _, file := range added {
			replace[filepath.Join(top, "cmd/penstock", filepath.Base(file))] = file
		}
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(built, v.name+".json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// changed returns the file's text after all edits.
func (v variant) changed(t testing.TB, original string) []byte {
	t.Helper()
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	changed := string(text)
	for _, e := range v.edits {
		if n := strings.Count(changed, e.old); n != 1 {
			t.Fatalf("%s has %d times, not once, what this test changes:\n%s", original, n, e.old)
		}
		changed = strings.Replace(changed, e.old, e.new, 1)
	}
	return []byte(changed)
}
