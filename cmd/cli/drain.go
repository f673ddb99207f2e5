package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

// overFlag adds --over, the window in which connections are closed.
func overFlag(cmd *cobra.Command, into *time.Duration) {
	cmd.Flags().DurationVar(into, "over", 0, "window in which connections are closed (default the node's --drain-timeout)")
}

// parseOver returns the value of --over, or nil if it is not set.
func parseOver(cmd *cobra.Command, over time.Duration) (*time.Duration, error) {
	if !cmd.Flags().Changed("over") {
		return nil, nil
	}
	if over < 0 {
		return nil, usagef("--over %v: want 0s or more", over)
	}
	return &over, nil
}

func drainCommand(t *target) *cobra.Command {
	var over time.Duration
	var undo bool
	cmd := &cobra.Command{
		Use:   "drain [NODE]",
		Short: "Take a node out of service: stop new connections, then close the others over a window",
		Long: "NODE is the node at --addr by default. It reports not ready, keeps accepting for its --drain-wait, and then closes " +
			"its connections. Its process keeps running, and it stays in the cluster.\n" +
			"--undo puts it back into service.",
		Example:           "  penstock drain n2 --over 30s\n  penstock drain n2 --undo",
		Args:              argRange(0, 1, "[NODE]"),
		ValidArgsFunction: completeMember(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.DrainRequest{Node: strings.Join(args, ""), Undo: undo}
			var err error
			if req.Over, err = parseOver(cmd, over); err != nil {
				return err
			}
			if undo && req.Over != nil {
				return usagef("--over: --undo closes nothing; leave it out")
			}
			r, err := ask[api.DrainResult](cmd, t, api.MethodDrain, req)
			if err != nil {
				return err
			}
			if undo {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is back in service\n", r.Node)
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is draining: %d connections to close over %s\n", r.Node, r.Connections, r.Over)
			return nil
		},
	}
	overFlag(cmd, &over)
	cmd.Flags().BoolVar(&undo, "undo", false, "put it back into service")
	return cmd
}

// findMember returns the member with that name or ID, or nil.
func findMember(members api.Members, node string) *api.Member {
	for i, m := range members {
		if m.Name == node || m.ID == node {
			return &members[i]
		}
	}
	return nil
}
