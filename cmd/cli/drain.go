package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/progress"
	"penstock/node/api"
	"penstock/node/lifecycle"
	"penstock/node/rpc"
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
	var over, limit time.Duration
	var undo, wait bool
	cmd := &cobra.Command{
		Use:   "drain [NODE]",
		Short: "Take a node out of service: stop new connections, then close the others over a window",
		Long: "NODE is the node at --addr by default. It reports not ready, keeps accepting for its --drain-wait, and then closes " +
			"its connections. Its process keeps running, and it stays in the cluster.\n" +
			"With --wait the command ends once the node is drained, and fails if it is put back into service meanwhile; Ctrl-C stops " +
			"the command, not the drain.\n" +
			"--undo puts it back into service.",
		Example:           "  penstock drain n2 --over 30s --wait\n  penstock drain n2 --undo",
		Args:              argRange(0, 1, "[NODE]"),
		ValidArgsFunction: completeMember(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.DrainRequest{Node: strings.Join(args, ""), Undo: undo}
			var err error
			if req.Over, err = parseOver(cmd, over); err != nil {
				return err
			}
			if undo && wait {
				return usagef("--wait: --undo has nothing to wait for; leave it out")
			}
			if limit <= 0 {
				return usagef("--wait-timeout %v: want more than 0s", limit)
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
			if wait {
				return t.awaitDrained(cmd, r, limit)
			}
			return nil
		},
	}
	overFlag(cmd, &over)
	cmd.Flags().BoolVar(&undo, "undo", false, "put it back into service")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the node is drained")
	cmd.Flags().DurationVar(&limit, "wait-timeout", 10*time.Minute, "with --wait: how long to wait")
	return cmd
}

// awaitDrained waits until a node that drains is drained.
func (t *target) awaitDrained(cmd *cobra.Command, d *api.DrainResult, limit time.Duration) error {
	bar := progress.Start(cmd.ErrOrStderr(), "draining "+sanitize(d.Node), progress.Ends)
	defer bar.Stop()
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(leavePollInterval)
	defer ticker.Stop()
	began, lastAnswer := false, time.Now() // a member list may be a moment behind
	for {
		members, err := ask[api.Members](cmd, t, api.MethodMembers, api.Empty{})
		var m *api.Member
		if err == nil {
			lastAnswer = time.Now()
			m = findMember(*members, d.Node)
		}
		switch {
		case err != nil && (!errors.Is(err, rpc.ErrUnreachable) || time.Since(lastAnswer) > t.timeout):
			return err
		case err != nil:
		case m == nil:
			return fmt.Errorf("%s has left the cluster", d.Node)
		case m.State == lifecycle.Phases[lifecycle.Drained]:
			bar.Stop()
			fmt.Fprintf(cmd.OutOrStdout(), "%s is drained\n", d.Node)
			return nil
		case began && m.State == lifecycle.Phases[lifecycle.Serving]:
			return fmt.Errorf("%s is not drained: it was put back into service", d.Node)
		default:
			began = began || m.State == lifecycle.Phases[lifecycle.Draining]
			bar.Set(d.Connections-m.Connections, d.Connections, fmt.Sprintf("%d of %d connections left", m.Connections, d.Connections))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is not drained within %v; it goes on, and `penstock members` shows its state", d.Node, limit)
		}
	}
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
