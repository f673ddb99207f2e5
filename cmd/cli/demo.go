package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/demo"
	"penstock/node"
)

func demoCommand() *cobra.Command {
	var length time.Duration
	var noScreen bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a node with services and traffic on this machine, and watch it",
		Long: "Starts a node, two versions of a TCP service, a TLS service and a flaky one behind it, and clients.\n" +
			"An endpoint dies, is ejected and comes back; a split moves while connections run.\n" +
			"Ends with code 0 when every connection was answered, 1 when not.",
		Example: "  penstock demo\n  penstock demo --for 10s --no-screen",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length < 0 {
				return usagef("--for %v: want 0s (no end) or more", length)
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			out := cmd.OutOrStdout()
			return demo.Run(ctx, demo.Options{
				For:       length,
				Screen:    !noScreen && isTerminal(out),
				Out:       out,
				StartNode: startDemoNode,
			})
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "end after that time (default: on Ctrl-C)")
	cmd.Flags().BoolVar(&noScreen, "no-screen", false, "print plain lines, as where stdout is no terminal")
	return cmd
}

// startDemoNode runs a node with the usual addresses, or free ones where
// another node has those.
func startDemoNode(ctx context.Context, dataDir string) (demo.Node, error) {
	admin, err := demo.Address("7947")
	if err != nil {
		return demo.Node{}, err
	}
	http, err := demo.Address("7948")
	if err != nil {
		return demo.Node{}, err
	}
	n, err := node.Start(ctx, node.Config{
		Name: "demo", Dev: true, DataDir: filepath.Join(dataDir, "node"), Cluster: admin, HTTP: http,
		DrainTimeout: time.Second, Log: slog.New(slog.DiscardHandler), Version: Build(),
	})
	if err != nil {
		return demo.Node{}, err
	}
	return demo.Node{Admin: admin, HTTP: http, Stop: func() error { return n.Stop(context.Background()) }}, nil
}
