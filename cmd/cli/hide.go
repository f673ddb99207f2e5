package cli

import (
	"strings"
	"unsafe"
)

// secretFlags are the flags whose values are secrets.
var secretFlags = []string{"--token"}

// HideSecrets gives a copy of the process's arguments and overwrites the
// secrets among the originals, so that what shows a process's command line
// (ps, /proc/PID/cmdline) does not show them. args must be os.Args: the Go
// runtime makes its strings of the memory in which the kernel put the
// arguments (goargs in runtime/runtime1.go), and the kernel reads the command
// line from there. Between the start of the process and this call the secrets
// are there to be seen; in the environment or in a file they never are.
func HideSecrets(args []string) []string {
	own := make([]string, len(args))
	for i, a := range args {
		own[i] = strings.Clone(a)
	}
	for i, a := range own {
		if a == "--" {
			break
		}
		for _, flag := range secretFlags {
			switch {
			case a == flag && i+1 < len(args):
				blank(args[i+1])
			case strings.HasPrefix(a, flag+"="):
				blank(args[i][len(flag)+1:])
			}
		}
	}
	return own
}

// blank overwrites the bytes of an argument.
func blank(s string) {
	bytes := unsafe.Slice(unsafe.StringData(s), len(s))
	for i := range bytes {
		bytes[i] = '*'
	}
}
