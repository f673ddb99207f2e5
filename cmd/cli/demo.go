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
		Long: "Starts a cluster of three nodes, each a process of its own, a balancer in front of them, " +
			"two versions of a TCP service, a TLS service and a flaky one behind them, and clients.\n" +
			"Nodes are killed with SIGKILL, the leader first, and come back with their folders alone; " +
			"a split moves by way of one node or another; an endpoint dies, is passed over and comes back.\n" +
			"Ends with code 0 when every connection was answered but those that a killed node itself carried, 1 when not. Nodes, " +
			"their folders and logs are gone afterwards, however it ends.",
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
	cmd.Flags().DurationVar(&length, "for", 0, "end after that time with traffic, once a leader was killed and is back (default: on Ctrl-C)")
	cmd.Flags().BoolVar(&noScreen, "no-screen", false, "print plain lines, as where stdout is no terminal")
	cmd.Flags().StringVar(&sweep, "sweep", "", "remove that folder of a demo when stdin ends: how a demo cleans up after itself")
	_ = cmd.Flags().MarkHidden("sweep")
	return cmd
}
