// Package cli is the command line: it reads flags, files and terminals, asks a
// node, and writes what it heard. What a command means is the node's business.
//
// Every command ends with one of four codes: 0 done, 1 refused or invalid,
// 2 wrong usage, 3 cannot reach a node. Errors go to stderr, one line each.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/admin"
	"penstock/routing/resource"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// The exit codes.
const (
	exitDone        = 0
	exitRefused     = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// Run executes the command line and returns its exit code.
func Run(args []string, s Streams) int {
	root := New(s)
	root.SetArgs(args)
	err := root.Execute()
	for _, line := range errorLines(err) {
		fmt.Fprintln(s.Err, line)
	}
	return exitCode(err)
}

// New makes the command tree.
func New(s Streams) *cobra.Command {
	var t target
	root := &cobra.Command{
		Use:           "penstock",
		Short:         "A self-clustering proxy for TCP, TLS-SNI and Kafka traffic",
		SilenceErrors: true,
		SilenceUsage:  true,
		// Not a command of its own: it catches what is no command at all.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	})
	t.flags(root)
	root.AddCommand(
		startCommand(), demoCommand(), checkCommand(),
		applyCommand(&t), diffCommand(&t), getCommand(&t), deleteCommand(&t),
		explainCommand(&t), membersCommand(&t), statusCommand(&t), topCommand(&t),
		drainCommand(&t), versionCommand(&t),
	)
	return root
}

func unknownCommand(root *cobra.Command, name string) error {
	hint := ""
	if near := root.SuggestionsFor(name); len(near) > 0 {
		hint = ", did you mean " + near[0] + "?"
	}
	return usagef("unknown command %q%s; see penstock --help", name, hint)
}

// usageError is an error in how a command was called.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// argRange wants that many arguments and calls them by name.
func argRange(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			if names == "" {
				return usagef("%s takes no arguments, it got %q", cmd.CommandPath(), args)
			}
			return usagef("usage: %s %s; see %s --help", cmd.CommandPath(), names, cmd.CommandPath())
		}
		return nil
	}
}

var noArgs = argRange(0, 0, "")

// exitCode gives the code that an error ends the process with.
func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, admin.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	}
	return exitRefused
}

// errReported ends a command with code 1 that has said everything already.
var errReported = errors.New("reported")

// errorLines writes an error for people, one line for each thing.
func errorLines(err error) []string {
	if err == nil || errors.Is(err, errReported) {
		return nil
	}
	var faults resource.Faults
	if errors.As(err, &faults) {
		return strings.Split(faults.Error(), "\n")
	}
	var refusal *admin.Error
	if errors.As(err, &refusal) {
		lines := []string{"penstock: " + refusal.Message}
		for _, f := range refusal.Faults {
			lines = append(lines, faultLine(f))
		}
		return append(lines, refusal.Details...)
	}
	text := err.Error()
	switch {
	case errors.Is(err, admin.ErrUnreachable):
		text += "; is it running? --addr or PENSTOCK_ADDR says where"
	case errors.Is(err, context.DeadlineExceeded):
		text = "the node did not answer in time; --timeout gives it longer"
	}
	lines := strings.Split(text, "\n") // of errors that were joined
	for i := range lines {
		lines[i] = "penstock: " + lines[i]
	}
	return lines
}

func faultLine(f admin.Fault) string {
	s := strings.TrimSpace(f.Key+" "+f.Path) + ": " + f.Message
	if f.Value != "" {
		s += " (" + f.Value + ")"
	}
	return s
}

// target is the node that a command asks, and how.
type target struct {
	addr, token string
	timeout     time.Duration
}

const defaultAddr = "127.0.0.1:7947"

func (t *target) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&t.addr, "addr", "", "node to ask: host:port of its cluster port, or unix:PATH (PENSTOCK_ADDR; default "+defaultAddr+")")
	f.StringVar(&t.token, "token", "", "token to show to the node (PENSTOCK_TOKEN)")
	f.DurationVar(&t.timeout, "timeout", 30*time.Second, "how long to wait for an answer")
}

// dial connects to the node.
func (t *target) dial(ctx context.Context) (*admin.Client, error) {
	addr := t.addr
	if addr == "" {
		addr = os.Getenv("PENSTOCK_ADDR")
	}
	if addr == "" {
		addr = defaultAddr
	}
	if t.timeout <= 0 {
		return nil, usagef("--timeout %v: want more than 0s", t.timeout)
	}
	if !strings.HasPrefix(addr, "unix:") && !strings.Contains(addr, ":") {
		return nil, usagef("--addr %s: want host:port or unix:PATH", addr)
	}
	return admin.Dial(ctx, addr)
}

// ask makes one request.
func ask[Resp any](cmd *cobra.Command, t *target, method string, req any) (*Resp, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
	defer cancel()
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return admin.Call[Resp](ctx, c, method, req)
}

// Build is this build's version: the module's, with the commit where known.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, dirty := info.Main.Version, ""
	if version == "" || version == "(devel)" {
		version = "devel"
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				version = "devel-" + s.Value[:12]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+changes"
			}
		}
	}
	return version + dirty
}
