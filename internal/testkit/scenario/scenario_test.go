package scenario

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestSteps has one command, say: its arguments are its output, a line each.
func TestSteps(t *testing.T) {
	Run(t, "testdata", func(*testing.T) Command {
		return Steps(func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "say" {
				d.Fatalf(t, "unknown command")
			}
			var lines []string
			for _, arg := range d.CmdArgs {
				lines = append(lines, arg.String())
			}
			return strings.Join(lines, "\n")
		})
	})
}
