package cli_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"penstock/internal/testkit"
)

// demoCommand returns the demo as a separate process that uses dir for its
// folders.
func demoCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("penstock", append([]string{"demo", "--no-screen"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0",
		"PENSTOCK_TOKEN=of another cluster", "PENSTOCK_CONFIG=/nowhere") // must not reach the demo's nodes
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// demoFolder returns a folder with a short path: the length of socket paths is
// bounded.
func demoFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "demo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// The demo itself counts whether each connection was answered, across the death
// of the leader and of an endpoint and across changes of the split.
func TestDemoAnswersEveryConnection(t *testing.T) {
	dir := demoFolder(t)
	cmd := demoCommand(t, dir, "--for", "5s")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s\n%s", err, errs.String(), out.String())
	}
	for _, want := range []string{
		"endpoint flaky-b stops", "is paused", "canary moves", "25 long-lived connections", ", 0 broken otherwise",
		"the leader, is killed", "is the new leader", "is restarted with only its data folder", "is back after",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo did not say %q:\n%s", want, out.String())
		}
	}
	nothingLeft(t, dir, pids(out.String()))
}

// The demo leaves no process and no file, however it ends.
func TestDemoLeavesNothing(t *testing.T) {
	for name, end := range map[string]struct {
		signal syscall.Signal
		code   int
	}{
		"by Ctrl-C":  {syscall.SIGINT, 0},
		"by SIGKILL": {syscall.SIGKILL, -1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := demoFolder(t)
			cmd := demoCommand(t, dir)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			sent := false
			for lines := bufio.NewScanner(pipe); lines.Scan(); {
				said.WriteString(lines.Text() + "\n")
				if !sent && strings.Contains(lines.Text(), "answered 1") { // there is traffic
					sent = true
					cmd.Process.Signal(end.signal)
				}
			}
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != end.code {
				t.Errorf("the code is %d, want %d: %s\n%s", code, end.code, errs.String(), said.String())
			}
			if n := len(pids(said.String())); n < 3 {
				t.Errorf("%d nodes were started, want 3 or more:\n%s", n, said.String())
			}
			nothingLeft(t, dir, pids(said.String()))
		})
	}
}

// If a node does not start, the demo prints the end of its log.
func TestDemoShowsWhyANodeFails(t *testing.T) {
	dir := filepath.Join(demoFolder(t), strings.Repeat("long", 25)) // too long for a node's socket
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := demoCommand(t, dir, "--for", "1s").CombinedOutput()
	// The three nodes start concurrently: any of them may fail first.
	if err == nil ||
		!regexp.MustCompile(`node n[123]: exit status 1; the end of its log`).Match(out) ||
		!strings.Contains(string(out), "own socket") {
		t.Errorf("the demo ended with %v and said:\n%s", err, out)
	}
	nothingLeft(t, dir, nil)
}

var processNumber = regexp.MustCompile(`\(process (\d+)\)`)

// pids returns the process IDs of the nodes, parsed from the demo's output.
func pids(said string) (all []int) {
	for _, m := range processNumber.FindAllStringSubmatch(said, -1) {
		pid, _ := strconv.Atoi(m[1])
		all = append(all, pid)
	}
	return all
}

// nothingLeft waits until the demo's folder is empty and its nodes have ended.
func nothingLeft(t *testing.T, dir string, pids []int) {
	t.Helper()
	var left []os.DirEntry
	alive := 0
	if !testkit.Poll(testkit.Patience, func() bool {
		var err error
		if left, err = os.ReadDir(dir); err != nil {
			t.Fatal(err)
		}
		alive = 0
		for _, pid := range pids {
			// The PID may have been reused by another program.
			if line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil && bytes.Contains(line, []byte(dir)) {
				alive++
			}
		}
		return len(left) == 0 && alive == 0
	}) {
		t.Fatalf("%d files and %d processes are left: %v", len(left), alive, left)
	}
}
