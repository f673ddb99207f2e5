package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"penstock/internal/testkit"
)

// A document with console blocks is a session that this test runs from its first to
// its last line, in one shell and one empty folder: the lines that begin with "$ "
// are commands, and those below are what each prints. A YAML block after "Write
// `NAME`:" becomes that file. In the output "..." stands for anything in a line, and
// alone for any lines; IDs, times and the number of spaces are not compared. Addresses
// of loopback are the test's own.
func TestDocsSessions(t *testing.T) {
	t.Parallel()
	for _, peer := range []string{"curl", "python3"} {
		requirePeer(t, peer)
	}
	sessions := 0
	for _, name := range documents(t) {
		text := readDocument(t, name)
		if !strings.Contains(text, "\n```console\n") {
			continue
		}
		sessions++
		t.Run(name, func(t *testing.T) { newSession(t, newNetwork()).follow(name, text) })
	}
	if sessions == 0 {
		t.Fatal("no document has a session")
	}
}

// session is a shell in an empty folder.
type session struct {
	t       *testing.T
	dir     string
	network string // instead of 127.0.0.
	in      io.Writer
	out     *bufio.Reader
}

func newSession(t *testing.T, network string) *session {
	t.Helper()
	dir, err := os.MkdirTemp("", "ps") // short: sockets are below
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--norc")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), quickRace, "PATH="+filepath.Dir(program(t))+":"+os.Getenv("PATH"), "PENSTOCK_BIND="+network+"1",
		"PENSTOCK_CLUSTER="+network+"1:7947", "PENSTOCK_GOSSIP="+network+"1:7946", "PENSTOCK_HTTP="+network+"1:7948")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, into, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = into, into
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	into.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and what runs in the background
		_ = cmd.Wait()
		out.Close()
		if t.Failed() {
			logs, _ := filepath.Glob(dir + "/*.log")
			for _, path := range logs {
				text, _ := os.ReadFile(path)
				t.Logf("%s:\n%s", filepath.Base(path), text)
			}
		}
		os.RemoveAll(dir)
	})
	s := &session{t: t, dir: dir, network: network, in: in, out: bufio.NewReader(out)}
	s.run("trap 'kill 0' EXIT") // where the test does not live to do it
	return s
}

var writes = regexp.MustCompile("Write `([\\w.-]+)`:\\s*(<!-- part -->\\s*)?$")

// follow runs the document's blocks in order, until one is not as it says.
func (s *session) follow(name, text string) {
	s.t.Helper()
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		block := text[at[4]:at[5]]
		line := strings.Count(text[:at[4]], "\n") + 1
		switch text[at[2]:at[3]] {
		case "yaml":
			file := writes.FindStringSubmatch(text[:at[0]])
			if file == nil {
				s.t.Fatalf("%s:%d: no word of the file that this is", name, line)
			}
			if err := os.WriteFile(filepath.Join(s.dir, file[1]), []byte(s.local(block)), 0o600); err != nil {
				s.t.Fatal(err)
			}
		case "console":
			for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
				command, want, _ := strings.Cut(step, "\n")
				s.step(fmt.Sprintf("%s:%d: $ %s", name, line, command), s.local(command), strings.TrimSuffix(want, "\n"))
				line += strings.Count(step, "\n") + 1
			}
		}
	}
}

func (s *session) local(text string) string { return strings.ReplaceAll(text, "127.0.0.", s.network) }

// asks matches commands that change nothing, and may be repeated: a line of a log or
// a counter of another thread may come a moment after the answer that it is about.
var asks = regexp.MustCompile(`^(grep|penstock (get|audit|explain|members|status|identity list)|curl -s http:)`)

// step runs one command and compares what it prints.
func (s *session) step(where, command, want string) {
	s.t.Helper()
	pattern := sessionPattern(want)
	var got string
	matches := func() bool {
		got = s.run(command)
		return pattern.MatchString(sessionText(got) + "\n")
	}
	if ok := matches(); !ok && (!asks.MatchString(command) || !testkit.Poll(testkit.Patience, matches)) {
		s.t.Fatalf("%s\nprinted:\n%s\nthe document has:\n%s", where, got, want)
	}
}

const sessionMark = "-- that was it --"

// run runs one command and returns what it prints on stdout and stderr.
func (s *session) run(command string) string {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null\necho '%s'\n", command, sessionMark); err != nil {
		s.t.Fatal(err)
	}
	var got strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if before, over := strings.CutSuffix(line, sessionMark+"\n"); over {
			got.WriteString(before)
			return strings.TrimSuffix(got.String(), "\n")
		}
		got.WriteString(line)
		if err != nil {
			s.t.Fatalf("%s: the shell has ended: %v\n%s", command, err, got.String())
		}
	}
}

var (
	sessionSpaces  = regexp.MustCompile(` +`)
	sessionTimes   = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	sessionIDs     = regexp.MustCompile(`\b[0-9a-f]{15,}\b`)
	sessionAddress = regexp.MustCompile(`\b127\.\d+\.\d+\.(\d+)`)
)

// sessionText returns output without what differs from run to run.
func sessionText(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = sessionTimes.ReplaceAllString(sessionSpaces.ReplaceAllString(text, " "), "TIME")
	return sessionIDs.ReplaceAllString(sessionAddress.ReplaceAllString(text, "127.0.0.$1"), "ID")
}

// sessionPattern matches the output that a document shows.
func sessionPattern(want string) *regexp.Regexp {
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	for line := range strings.Lines(sessionText(want) + "\n") {
		if line == "...\n" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`))
	}
	pattern.WriteString(`\z`)
	return regexp.MustCompile(pattern.String())
}
