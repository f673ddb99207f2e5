package cli

import (
	"strings"
	"unsafe"
)

// secretFlags are the flags whose values are secrets.
var secretFlags = []string{"--token"}

// HideSecrets returns a copy of the process's arguments and overwrites the
// secrets in the originals, so that tools which show a command line (ps,
// /proc/PID/cmdline) do not show them. args must be os.Args: the Go runtime
// builds its strings from the memory in which the kernel put the arguments
// (goargs in runtime/runtime1.go), and the kernel reads the command line from
// there. Between process start and this call the secrets are visible; passed in
// the environment or in a file they never are.
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
