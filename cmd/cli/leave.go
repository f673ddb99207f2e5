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

func leaveCommand(t *target) *cobra.Command {
	var over, limit time.Duration
	cmd := &cobra.Command{
		Use:   "leave [NODE]",
		Short: "Drain a node, take it out of the cluster and end its process",
		Long: "The node is the one asked, or the one named. The command says how far it is and ends when the node has left; " +
			"Ctrl-C ends the command, not the leaving. A node that finds out only after its drain that it cannot leave, " +
			"because another voter has just died, serves on, and the command says why.\n" +
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
			if err := t.awaitLeft(cmd, departing{r.Node, r.ID, self}, limit); err != nil {
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

// departing is a node that was asked to leave.
type departing struct {
	node string
	id   string // of the attempt; "": of a node of an older build
	self bool   // it is the node asked, which ends
}

// leavePoll is how often a command looks how far a node is.
const leavePoll = 500 * time.Millisecond

// leaveTail is how often it looks whether the node asked has ended, after it
// was out of the cluster.
const leaveTail = 10

// awaitLeft waits until a node is no member any more or, where it is the node
// asked, has ended; or until it says that it stays.
func (t *target) awaitLeft(cmd *cobra.Command, d departing, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(leavePoll)
	defer ticker.Stop()
	told, gone := "", 0
	for {
		now, err := t.departure(cmd, d)
		switch {
		case err == nil && now == "":
			// The node asked has still to end, unless another answers there now.
			if gone++; !d.self || gone > leaveTail {
				return nil
			}
		case err == nil && now != told:
			told = now
			fmt.Fprintln(cmd.ErrOrStderr(), now)
		case err == nil:
		case d.self && errors.Is(err, admin.ErrUnreachable):
			return nil
		case !errors.Is(err, admin.ErrUnreachable):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			text := fmt.Sprintf("%s has not left within %v; it goes on, and `penstock members` shows how far it is", d.node, limit)
			if err != nil { // whether it has by now is not known
				return fmt.Errorf("%s: %w", text, err)
			}
			return errors.New(text)
		}
	}
}

// departure tells in a line how far a node that leaves is; "": it is no
// member any more. An error that is no want of an answer says why it stays.
func (t *target) departure(cmd *cobra.Command, d departing) (string, error) {
	r, err := ask[admin.Members](cmd, t, admin.MethodMembers, admin.Empty{})
	if err != nil {
		return "", err
	}
	m := find(*r, d.node)
	if m == nil {
		return "", nil
	}
	now := fmt.Sprintf("%s is %s: %d connections", d.node, m.State, m.Connections)
	if d.id == "" {
		return now, nil
	}
	s, err := ask[admin.Leaving](cmd, t, admin.MethodLeaving, admin.LeavingRequest{Node: m.ID, ID: d.id})
	if err != nil { // it has ended, or is not in reach of the node asked: the members say which
		return now, nil //nolint:nilerr // see above
	}
	switch s.State {
	case admin.LeaveFailed:
		return "", why(d.node, s)
	case admin.LeaveUnknown:
		return "", fmt.Errorf("%s has not left: it was started anew before it could; it is a member still", d.node)
	case admin.LeaveLeaving:
		return fmt.Sprintf("%s is drained, and waits for the others to go on without it", d.node), nil
	}
	return now, nil
}

// why is what kept a node from leaving.
func why(node string, s *admin.Leaving) error {
	if s.Why == nil {
		return fmt.Errorf("%s has not left, and serves on; its log says why", node)
	}
	e := *s.Why
	e.Message = fmt.Sprintf("%s has not left, and serves on: %s", node, e.Message)
	return &e
}
