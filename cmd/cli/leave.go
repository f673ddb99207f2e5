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
	"penstock/node/rpc"
)

func leaveCommand(t *target) *cobra.Command {
	var over, limit time.Duration
	cmd := &cobra.Command{
		Use:   "leave [NODE]",
		Short: "Drain a node, remove it from the cluster and stop its process",
		Long: "NODE is the node at --addr by default. The command reports progress and ends when the node has left; Ctrl-C stops " +
			"the command, not the node's departure. A node that finds only after its drain that it cannot leave, because another " +
			"voter has just died, stays in service, and the command reports why.\n" +
			"A node that has left can return only by joining again, with a token and an empty data folder. For a restart, SIGTERM " +
			"is enough.",
		Example:           "  penstock leave n3",
		Args:              argRange(0, 1, "[NODE]"),
		ValidArgsFunction: completeMember(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("--wait-timeout %v: want 0s (do not wait) or more", limit)
			}
			req := api.LeaveRequest{Node: strings.Join(args, "")}
			var err error
			if req.Over, err = parseOver(cmd, over); err != nil {
				return err
			}
			self := true
			if req.Node != "" {
				if self, err = t.isNamed(cmd, req.Node); err != nil {
					return err
				}
			}
			r, err := ask[api.LeaveResult](cmd, t, api.MethodLeave, req)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is leaving: %d connections to close\n", r.Node, r.Connections)
			if limit == 0 {
				return nil
			}
			if err := t.awaitLeft(cmd, leaveAttempt{r.Node, r.ID, self, r.Connections}, limit); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s left\n", r.Node)
			return nil
		},
	}
	overFlag(cmd, &over)
	cmd.Flags().DurationVar(&limit, "wait-timeout", 10*time.Minute, "how long to wait until the node has left; 0s: do not wait")
	return cmd
}

// isNamed reports whether the target node has that name or ID.
func (t *target) isNamed(cmd *cobra.Command, name string) (bool, error) {
	members, err := ask[api.Members](cmd, t, api.MethodMembers, api.Empty{})
	if err != nil {
		return false, err
	}
	m := findMember(*members, name)
	if m == nil {
		return false, nil // the target node reports the unknown name
	}
	asked := ""
	// A sample of top carries the target node's name.
	req := api.TopRequest{Interval: 100 * time.Millisecond, Count: 1}
	err = follow(cmd.Context(), t, api.MethodTop, req, func(s *api.TopSample) error { asked = s.Node; return nil })
	return m.Name == asked, err
}

// leaveAttempt identifies a node that was asked to leave.
type leaveAttempt struct {
	node string
	id   string // of the attempt; "": the node runs an older build
	self bool   // the target node itself leaves, and then stops
	// connections is how many it had to close.
	connections int64
}

// leaveState is how far a leaving node is.
type leaveState struct {
	text string // "": it is no longer a member
	open int64  // connections left
}

// leavePollInterval is the interval at which the command checks a node's
// progress.
const leavePollInterval = 500 * time.Millisecond

// maxPollsAfterLeave is the number of polls for which the command waits for the
// target node to stop, once it has left the cluster.
const maxPollsAfterLeave = 10

// awaitLeft waits until a node is no longer a member, or until the target node
// has stopped if that is the one that leaves. It returns an error if the node
// reports that it stays.
func (t *target) awaitLeft(cmd *cobra.Command, d leaveAttempt, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(leavePollInterval)
	defer ticker.Stop()
	bar := progress.Start(cmd.ErrOrStderr(), "leaving", progress.Ends)
	defer bar.Stop()
	shown, absent := "", 0
	for {
		state, err := t.leaveProgress(cmd, d)
		now := state.text
		if err == nil && now != "" {
			bar.Set(d.connections-state.open, d.connections, now)
		}
		switch {
		case err == nil && now == "":
			// The target node has left but not stopped, or another node answers
			// at its address.
			if absent++; !d.self || absent > maxPollsAfterLeave {
				return nil
			}
		case err == nil && now != shown && bar == nil:
			shown = now
			fmt.Fprintln(cmd.ErrOrStderr(), now)
		case err == nil:
		case d.self && errors.Is(err, rpc.ErrUnreachable):
			return nil
		case !errors.Is(err, rpc.ErrUnreachable):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			text := fmt.Sprintf("%s has not left within %v; it is still leaving, and `penstock members` shows its state", d.node, limit)
			if err != nil { // the node may have left by now
				return fmt.Errorf("%s: %w", text, err)
			}
			return errors.New(text)
		}
	}
}

// leaveProgress describes in a line how far a leaving node is. An error other than an
// unreachable node says why it stays.
func (t *target) leaveProgress(cmd *cobra.Command, d leaveAttempt) (leaveState, error) {
	r, err := ask[api.Members](cmd, t, api.MethodMembers, api.Empty{})
	if err != nil {
		return leaveState{}, err
	}
	m := findMember(*r, d.node)
	if m == nil {
		return leaveState{}, nil
	}
	now := leaveState{fmt.Sprintf("%s is %s: %d connections", d.node, m.State, m.Connections), m.Connections}
	if d.id == "" {
		return now, nil
	}
	s, err := ask[api.Leaving](cmd, t, api.MethodLeaving, api.LeavingRequest{Node: m.ID, ID: d.id})
	if err != nil { // it has stopped, or the target node cannot reach it: the member list tells which
		return now, nil //nolint:nilerr // see above
	}
	switch s.State {
	case api.LeaveFailed:
		return leaveState{}, leaveFailure(d.node, s)
	case api.LeaveUnknown:
		return leaveState{}, fmt.Errorf("%s has not left: it was restarted first, and is still a member", d.node)
	case api.LeaveLeaving:
		return leaveState{fmt.Sprintf("%s is drained and waits for its removal from the cluster", d.node), 0}, nil
	}
	return now, nil
}

// leaveFailure returns the reason why a node did not leave.
func leaveFailure(node string, s *api.Leaving) error {
	if s.Why == nil {
		return fmt.Errorf("%s has not left and stays in service; its log says why", node)
	}
	e := *s.Why
	e.Message = fmt.Sprintf("%s has not left and stays in service: %s", node, e.Message)
	return &e
}
