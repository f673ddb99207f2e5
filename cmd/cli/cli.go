// Package cli implements the penstock command line. It reads flags, files and
// terminals, sends requests to a node and prints the answers; the semantics of
// each command live in the node.
//
// Every command ends with one of five codes: 0 done, 1 refused or invalid,
// 2 wrong usage, 3 cannot reach a node; 4, from start alone, means that the node
// is no longer a member of its cluster, so a restart is pointless. Errors go to
// stderr, one line each.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/node/cluster"
	"penstock/node/rpc"
	"penstock/routing/resource"
)

// Streams are the standard streams of a command.
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
	exitGone        = 4
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

// New returns the root command with all subcommands.
func New(s Streams) *cobra.Command {
	var t target
	root := &cobra.Command{
		Use:           "penstock",
		Short:         "A self-clustering proxy for TCP, TLS-SNI, HTTP and Kafka traffic",
		SilenceErrors: true,
		SilenceUsage:  true,
		// The root command runs only when no subcommand matches.
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
	t.flags(root.PersistentFlags())
	root.AddCommand(
		startCommand(), demoCommand(), checkCommand(),
		applyCommand(&t), diffCommand(&t), simulateCommand(&t), getCommand(&t), deleteCommand(&t),
		historyCommand(&t), auditCommand(&t), logsCommand(&t), rollbackCommand(&t), rolloutCommand(&t),
		explainCommand(&t), membersCommand(&t), statusCommand(&t), problemsCommand(&t), topCommand(&t), sessionsCommand(&t),
		connectionsCommand(&t), traceCommand(&t),
		drainCommand(&t), leaveCommand(&t), removeCommand(&t),
		snapshotCommand(&t), tokenCommand(&t), identityCommand(&t), rotateCommand(&t), xdsCommand(&t),
		kubernetesCommand(&t), debugCommand(&t), versionCommand(&t),
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

// commandGroup returns a command that only groups subcommands.
func commandGroup(cmd *cobra.Command, members ...*cobra.Command) *cobra.Command {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name()
	}
	usage := strings.Join(names, "|")
	cmd.Use += " " + usage
	cmd.Args = cobra.ArbitraryArgs // RunE reports the usage error
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return usagef("usage: %s %s; see %s --help", cmd.CommandPath(), usage, cmd.CommandPath())
	}
	cmd.AddCommand(members...)
	return cmd
}

// usageError marks an error as a wrong use of the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// argRange requires least to most arguments; names describes them in the usage
// text.
func argRange(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			if names == "" {
				return usagef("%s takes no arguments, but got %q", cmd.CommandPath(), args)
			}
			return usagef("usage: %s %s; see %s --help", cmd.CommandPath(), names, cmd.CommandPath())
		}
		return nil
	}
}

var noArgs = argRange(0, 0, "")

// exitCode returns the process exit code for err.
func exitCode(err error) int {
	var usage usageError
	var unknown *unknownOutcomeError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &unknown):
		return exitUnreachable
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, cluster.ErrRemoved), errors.Is(err, cluster.ErrLeft):
		return exitGone
	case misdirected(err): // a node answered, but not one that the command can talk to
		return exitRefused
	case errors.Is(err, rpc.ErrUnreachable), timedOut(err):
		return exitUnreachable
	}
	return exitRefused
}

// misdirected reports whether a node answered that is of another cluster, or
// that expects TLS where the command speaks none or the reverse. Retrying will
// not help.
func misdirected(err error) bool {
	return errors.Is(err, rpc.ErrForeign) || errors.Is(err, rpc.ErrWantsTLS) || errors.Is(err, rpc.ErrWantsPlain)
}

// timedOut reports whether the command's deadline passed, by its own clock or by
// the node's.
func timedOut(err error) bool {
	var refusal *api.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refusal) && refusal.Code == api.Deadline
}

// errReported ends a command with code 1 after it has printed everything
// itself.
var errReported = errors.New("reported")

// errorLines formats err for people, one line per fault.
func errorLines(err error) []string {
	if err == nil || errors.Is(err, errReported) {
		return nil
	}
	var faults resource.Faults
	if errors.As(err, &faults) {
		return strings.Split(faults.Error(), "\n")
	}
	var unknown *unknownOutcomeError
	if errors.As(err, &unknown) {
		return []string{"penstock: " + unknown.Error()}
	}
	var refusal *api.Error
	if errors.As(err, &refusal) && !timedOut(err) {
		lines := []string{"penstock: " + refusal.Message}
		for _, f := range refusal.Faults {
			lines = append(lines, faultLine(f))
		}
		return append(lines, refusal.Details...)
	}
	text := err.Error()
	switch {
	case errors.Is(err, rpc.ErrWantsTLS):
		text += ", which is --addr unix:DATA-DIR/penstock.sock"
	case misdirected(err):
	case errors.Is(err, rpc.ErrUnreachable):
		text += "; is it running? --addr or PENSTOCK_ADDR sets its address"
	case timedOut(err):
		text = "the node did not answer in time; raise --timeout"
	}
	lines := strings.Split(text, "\n") // errors.Join separates with newlines
	for i := range lines {
		lines[i] = "penstock: " + lines[i]
	}
	return lines
}

func faultLine(f api.Fault) string {
	s := strings.TrimSpace(f.Key+" "+f.Path) + ": " + f.Message
	if f.Value != "" {
		s += " (" + f.Value + ")"
	}
	return s
}
