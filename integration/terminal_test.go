package integration

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"github.com/gdamore/tcell/v3/vt"

	"penstock/internal/testkit"
)

// terminal runs a command in a pseudo-terminal, and has what a person would see there.
type terminal struct {
	t    testing.TB
	cmd  *exec.Cmd
	pty  *os.File
	done chan struct{} // closed when all output has come

	mu   sync.Mutex
	size vt.Coord
	seen vt.MockTerm
	raw  strings.Builder // all output
}

// startTerminal runs penstock with these arguments in a terminal of 80x24.
func startTerminal(t testing.TB, env []string, args ...string) *terminal {
	t.Helper()
	x := &terminal{t: t, cmd: exec.Command(program(t), args...), done: make(chan struct{}), size: vt.Coord{X: 80, Y: 24}}
	x.cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "PENSTOCK_") || strings.HasPrefix(s, "LC_") || strings.HasPrefix(s, "LANG=") || strings.HasPrefix(s, "NO_COLOR=")
	})
	x.cmd.Env = append(append(x.cmd.Env, quickRace, "TERM=xterm-256color"), env...)
	x.seen = vt.NewMockTerm(vt.MockOptSize(x.size))
	if err := x.seen.Start(); err != nil {
		t.Fatal(err)
	}
	var err error
	if x.pty, err = pty.StartWithSize(x.cmd, &pty.Winsize{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	go x.copy()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		x.pty.Close()
		<-x.done
		_ = x.seen.Stop()
	})
	return x
}

// copy shows what the command writes.
func (x *terminal) copy() {
	defer close(x.done)
	buf := make([]byte, 4096)
	for {
		n, err := x.pty.Read(buf)
		x.mu.Lock()
		x.raw.Write(buf[:n])
		_, _ = x.seen.Write(buf[:n])
		x.mu.Unlock()
		if err != nil { // the command has ended
			return
		}
	}
}

// screen returns the lines on the screen.
func (x *terminal) screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var b strings.Builder
	for y := range x.size.Y {
		line := ""
		for col := range x.size.X {
			c := x.seen.GetCell(vt.Coord{X: col, Y: y}).C
			if c == "" {
				c = " "
			}
			line += c
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// press sends keys.
func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.pty, keys); err != nil {
		x.t.Fatal(err)
	}
}

// await waits until the screen has all of these texts.
func (x *terminal) await(texts ...string) {
	x.t.Helper()
	ok := testkit.Poll(testkit.Patience, func() bool {
		s := x.screen()
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(s, text) })
	})
	if !ok {
		x.t.Fatalf("the screen never had %q:\n%s", texts, x.screen())
	}
}

// resize gives the terminal another size.
func (x *terminal) resize(w, h int) {
	x.t.Helper()
	x.mu.Lock()
	x.size = vt.Coord{X: vt.Col(w), Y: vt.Row(h)}
	x.seen.SetSize(x.size)
	x.mu.Unlock()
	if err := pty.Setsize(x.pty, &pty.Winsize{Cols: uint16(w), Rows: uint16(h)}); err != nil {
		x.t.Fatal(err)
	}
}

// wantExit waits until the command has ended, with that code, and returns all its
// output.
func (x *terminal) wantExit(code int) string {
	x.t.Helper()
	ended := make(chan struct{})
	go func() { _ = x.cmd.Wait(); close(ended) }()
	testkit.Receive(x.t, "the end of the command", ended)
	<-x.done
	if got := x.cmd.ProcessState.ExitCode(); got != code {
		x.t.Errorf("exit code %d, want %d:\n%s", got, code, x.screen())
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.raw.String()
}
