package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/demo"
)

func demoCommand() *cobra.Command {
	var length time.Duration
	var noScreen bool
	var sweep string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run three nodes with services and traffic on this machine, kill some, and watch",
		Long: "Starts a cluster of three nodes as separate processes, a balancer in front of them, two versions of a TCP service, a " +
			"TLS service and a flaky service behind them, and clients.\n" +
			"Nodes are killed with SIGKILL, the leader first, and restarted with only their data folders; a traffic split is " +
			"changed through different nodes; an endpoint stops, is avoided and comes back.\n" +
			"The exit code is 0 if every connection was answered except those that a killed node carried, else 1. Nodes, their " +
			"folders and logs are removed afterwards, however it ends.",
		Example: "  penstock demo\n  penstock demo --for 10s --no-screen",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sweep != "" {
				return demo.Sweep(cmd.InOrStdin(), sweep)
			}
			if length < 0 {
				return usagef("--for %v: want 0s (no end) or more", length)
			}
			executable, err := os.Executable()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal kills the process
			out := cmd.OutOrStdout()
			return demo.Run(ctx, demo.Options{For: length, Screen: !noScreen && isTerminal(out), Out: out, Executable: executable})
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "end after this much time with traffic, once a killed leader is back (default: on Ctrl-C)")
	cmd.Flags().BoolVar(&noScreen, "no-screen", false, "print plain lines, as if stdout is not a terminal")
	cmd.Flags().StringVar(&sweep, "sweep", "", "remove this demo folder when stdin ends: how a demo cleans up after itself")
	_ = cmd.Flags().MarkHidden("sweep")
	return cmd
}
