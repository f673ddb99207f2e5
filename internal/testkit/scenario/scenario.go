// Package scenario runs scenario files: text that shows how a package behaves,
// command by command, in the format of github.com/cockroachdb/datadriven.
//
//	# A voter dies. For a minute nothing happens: it may be restarting.
//	down n3
//	at 1m59s
//	run
//	----
//	n1 leads the voters n1 n2 n3
//
// A directive is a command with its arguments, the command's input (or more
// commands, see [Steps]), a line of four dashes, and the expected output up to a
// blank line. "go test -rewrite" replaces the expected output of a package's
// files by the actual output; review the difference.
//
// Only tests import this package.
package scenario

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// Command runs one command of a scenario and returns its output.
type Command func(t *testing.T, d *datadriven.TestData) string

// Run runs each file dir/*.txt as a subtest. It calls start once for each file;
// the result runs the commands of that file.
func Run(t *testing.T, dir string, start func(t *testing.T) Command) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			command, commands := start(t), 0
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				commands++
				return command(t, d)
			})
			if commands == 0 {
				t.Errorf("%s has no commands", file)
			}
		})
	}
}

// Steps returns a Command that runs each line of a directive's input as a
// command as well, so that steps without output stand together above the one
// whose output is of interest. If a command that is not the last has output, the
// directive's output has it below that command, indented.
func Steps(command Command) Command {
	return func(t *testing.T, d *datadriven.TestData) string {
		if d.Input == "" {
			return command(t, d)
		}
		var out strings.Builder
		lines := append([]string{d.FullCmd()}, strings.Split(d.Input, "\n")...)
		for i, line := range lines {
			step := datadriven.TestData{Pos: d.Pos}
			var err error
			if step.Cmd, step.CmdArgs, err = datadriven.ParseLine(line); err != nil || step.Cmd == "" {
				d.Fatalf(t, "%q is no command: %v", line, err)
			}
			got := strings.TrimSuffix(command(t, &step), "\n")
			if i == len(lines)-1 || got == "" {
				out.WriteString(got)
				continue
			}
			out.WriteString(line + ":\n  " + strings.ReplaceAll(got, "\n", "\n  ") + "\n")
		}
		return out.String()
	}
}
