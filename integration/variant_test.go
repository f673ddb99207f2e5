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

// A variant is the real program with a line or two changed at its build, where
// a test needs what no setting gives: a wrong clock, a log that is short. The
// code on the disk stays as it is, so what runs beside the change is what ships.
type variant struct {
	pkg   string // whose file is changed: "time", "penstock/consensus"
	file  string // its name
	edits []edit
	// std: the file is of the standard library. Then all of that is built
	// anew, and without the race detector, for time's sake.
	std bool
}

// edit is a piece of text, which must be there once, and what takes its place.
type edit struct{ old, new string }

var (
	// wrongClock adds PENSTOCK_TEST_CLOCK seconds to the wall clock, and
	// nothing to the one that measures. (The program reads the clock without a
	// system call, so nobody can lie to it from outside.)
	wrongClock = variant{pkg: "time", file: "time.go", std: true, edits: []edit{
		{"\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {", "\tsec, nsec, mono := runtimeNow()\n\tsec += wrongBy\n\tif mono == 0 {"},
		{"import (\n", "import (\n\t\"syscall\"\n"},
		{"// Since returns the time elapsed since t.\n", `// wrongBy is how many seconds the wall clock is ahead.
var wrongBy = func() (by int64) {
	text, _ := syscall.Getenv("PENSTOCK_TEST_CLOCK")
	sign := int64(1)
	for i, c := range []byte(text) {
		switch {
		case i == 0 && c == '-':
			sign = -1
		case '0' <= c && c <= '9':
			by = 10*by + int64(c-'0')
		default:
			panic("PENSTOCK_TEST_CLOCK: " + text)
		}
	}
	return sign * by
}()

// Since returns the time elapsed since t.
`},
	}}

	// shortLog takes a snapshot every second or two, and keeps little of the
	// log that it stands for.
	shortLog = variant{pkg: "penstock/consensus", file: "replica.go", edits: []edit{
		{"set(&c.SnapshotThreshold, 8192)", "set(&c.SnapshotThreshold, 64)"},
		{"set(&c.SnapshotInterval, 2*time.Minute)", "set(&c.SnapshotInterval, time.Second)"},
		{"set(&c.TrailingLogs, 10240)", "set(&c.TrailingLogs, 32)"},
	}}
)

// variants are those that have been built, by package and file.
var variants struct {
	sync.Mutex
	paths map[string]string
}

// program builds the variant, once for all tests, and gives its path.
func (v variant) program(t testing.TB) string {
	t.Helper()
	program(t) // which makes the folder of all
	variants.Lock()
	defer variants.Unlock()
	name := strings.ReplaceAll(v.pkg, "/", "-") + "-" + strings.TrimSuffix(v.file, ".go")
	if path := variants.paths[name]; path != "" {
		return path
	}
	at, err := exec.Command("go", "list", "-f", "{{.Dir}}", v.pkg).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", v.pkg, err)
	}
	original := filepath.Join(strings.TrimSpace(string(at)), v.file)
	overlay := v.overlay(t, original, filepath.Join(built, name))
	path := filepath.Join(built, "penstock-"+name)
	args := []string{"build", "-ldflags=-s -w", "-overlay", overlay, "-o", path}
	if raceEnabled && !v.std {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "penstock/cmd/penstock")...).CombinedOutput(); err != nil {
		t.Fatalf("the variant %s: go build: %v\n%s", name, err, out)
	}
	if variants.paths == nil {
		variants.paths = map[string]string{}
	}
	variants.paths[name] = path
	return path
}

// overlay writes the changed file, and what tells the compiler of it.
func (v variant) overlay(t testing.TB, original, to string) string {
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
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: to + ".go"}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{to + ".go": changed, to + ".json": string(list)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to + ".json"
}
