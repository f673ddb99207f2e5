package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/admin"
)

// overFlag adds --over, the window in which connections are closed.
func overFlag(cmd *cobra.Command, into *time.Duration) {
	cmd.Flags().DurationVar(into, "over", 0, "window in which connections are closed (default the node's --drain-timeout)")
}

// given gives the value of --over, nil where it was left out.
func given(cmd *cobra.Command, over time.Duration) (*time.Duration, error) {
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
		Short: "Take a node out of service: no new connections, then close the others over a window",
		Long: "The node is the one asked, or the one named. It says that it is not ready, accepts for its --drain-wait, and then closes. The process stays and the node stays in the cluster.\n" +
			"--undo puts it back into service.",
		Example:           "  penstock drain n2 --over 30s\n  penstock drain n2 --undo",
		Args:              argRange(0, 1, "[NODE]"),
		ValidArgsFunction: completeMember(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := admin.DrainRequest{Node: strings.Join(args, ""), Undo: undo}
			var err error
			if req.Over, err = given(cmd, over); err != nil {
				return err
			}
			if undo && req.Over != nil {
				return usagef("--over: --undo closes nothing; leave it out")
			}
			r, err := ask[admin.DrainResult](cmd, t, admin.MethodDrain, req)
			if err != nil {
				return err
			}
			if undo {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is back in service\n", r.Node)
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s drains: %d connections, closed over %s\n", r.Node, r.Connections, r.Over)
			return nil
		},
	}
	overFlag(cmd, &over)
	cmd.Flags().BoolVar(&undo, "undo", false, "put it back into service")
	return cmd
}

func leaveCommand(t *target) *cobra.Command {
	var over, limit time.Duration
	cmd := &cobra.Command{
		Use:   "leave [NODE]",
		Short: "Drain a node, take it out of the cluster and end its process",
		Long: "The node is the one asked, or the one named. The command says how far it is and ends when the node has left; Ctrl-C ends the command, not the leaving.\n" +
			"A node that left does not come back by itself: it joins anew, with a token and an empty data folder. For a restart, SIGTERM is enough.",
		Example:           "  penstock leave n3",
		Args:              argRange(0, 1, "[NODE]"),
		ValidArgsFunction: completeMember(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("--wait-timeout %v: want 0s (do not wait) or more", limit)
			}
			req := admin.LeaveRequest{Node: strings.Join(args, "")}
			var err error
			if req.Over, err = given(cmd, over); err != nil {
				return err
			}
			self := true
			if req.Node != "" {
				if self, err = t.isNamed(cmd, req.Node); err != nil {
					return err
				}
			}
			r, err := ask[admin.LeaveResult](cmd, t, admin.MethodLeave, req)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s leaves: %d connections to close\n", r.Node, r.Connections)
			if limit == 0 {
				return nil
			}
			if err := t.awaitLeft(cmd, r.Node, self, limit); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s left\n", r.Node)
			return nil
		},
	}
	overFlag(cmd, &over)
	cmd.Flags().DurationVar(&limit, "wait-timeout", 10*time.Minute, "how long to wait until it has left; 0s: do not wait")
	return cmd
}

// isNamed tells whether the node asked has that name or ID.
func (t *target) isNamed(cmd *cobra.Command, name string) (bool, error) {
	members, err := ask[admin.Members](cmd, t, admin.MethodMembers, admin.Empty{})
	if err != nil {
		return false, err
	}
	m := find(*members, name)
	if m == nil {
		return false, nil // the node asked will say so
	}
	asked := ""
	// A sample of top is by the node asked, and says its name.
	req := admin.TopRequest{Interval: 100 * time.Millisecond, Count: 1}
	err = follow(cmd.Context(), t, admin.MethodTop, req, func(s *admin.TopSample) error { asked = s.Node; return nil })
	return m.Name == asked, err
}

// leavePoll is how often a command looks how far a node is.
const leavePoll = 500 * time.Millisecond

// leaveTail is how often it looks whether the node asked has ended, after it
// was out of the cluster.
const leaveTail = 10

// awaitLeft waits until a node is no member any more or, where it is the node
// asked, has ended.
func (t *target) awaitLeft(cmd *cobra.Command, node string, self bool, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(leavePoll)
	defer ticker.Stop()
	told, gone := "", 0
	for {
		r, err := ask[admin.Members](cmd, t, admin.MethodMembers, admin.Empty{})
		switch {
		case err == nil:
			m := find(*r, node)
			if m == nil {
				// The node asked has still to end, unless another answers there now.
				if gone++; !self || gone > leaveTail {
					return nil
				}
				break
			}
			if now := fmt.Sprintf("%s is %s: %d connections", node, m.State, m.Connections); now != told {
				told = now
				fmt.Fprintln(cmd.ErrOrStderr(), now)
			}
		case self && errors.Is(err, admin.ErrUnreachable):
			return nil
		case !errors.Is(err, admin.ErrUnreachable):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s has not left within %v; it goes on, and `penstock members` shows how far it is", node, limit)
		}
	}
}

// find gives the member of that name or ID, nil where there is none.
func find(members admin.Members, node string) *admin.Member {
	for i, m := range members {
		if m.Name == node || m.ID == node {
			return &members[i]
		}
	}
	return nil
}

func removeCommand(t *target) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a node that will not come back out of the cluster",
		Long: "For a node that is gone for good; one that is up leaves with `penstock leave`. Its certificate is worth nothing afterwards, so it cannot come back under its ID.\n" +
			"Refused while the node is up, and where the voters that remain could not decide; --force does it all the same.",
		Args:              argRange(1, 1, "NODE"),
		ValidArgsFunction: completeMember(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := ask[admin.Empty](cmd, t, admin.MethodRemove, admin.RemoveRequest{Node: args[0], Force: force}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s removed\n", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "although it is up, or although too few voters may remain")
	return cmd
}
