package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/admin"
	"penstock/node/rollout"
	"penstock/routing/resource"
)

func rolloutCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Watch and steer what moves the weight of routes over time",
		Long: "A MeshTCPRoute whose spec.rollout has steps begins with the first one when it is applied; " +
			"the leader takes the next ones. What rollout list and status show is asked of all nodes.\n" +
			"`penstock history rollout ROUTE` tells what became of one, when, by whom and why; " +
			"`penstock get rollouts --watch` shows each step as it comes.",
	}
	return family(cmd, rolloutListCommand(t), rolloutStatusCommand(t),
		rolloutDoCommand(t, rollout.Pause, "Keep a rollout at the weight that it has, until it is resumed",
			"It is aborted all the same when too much fails."),
		rolloutDoCommand(t, rollout.Resume, "Let a paused rollout go on",
			"What was over of its step's time before the pause counts."),
		rolloutDoCommand(t, rollout.Rollback, "Give the new backend nothing any more",
			"Established connections stay where they are. What was rolled back or aborted stays so until it is restarted, "+
				"or the route has another rollout.", "abort"),
		rolloutDoCommand(t, rollout.Restart, "Begin a rollout anew, at its first step",
			"Failures before that are not held against it."),
	)
}

func rolloutListCommand(t *target) *cobra.Command {
	var output string
	var stale bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rollouts of all routes",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ask[admin.Rollouts](cmd, t, admin.MethodRollouts, admin.RolloutsRequest{Stale: stale})
			switch {
			case err != nil:
				return err
			case output == "json":
				return printJSON(cmd.OutOrStdout(), list)
			}
			printRollouts(cmd.OutOrStdout(), *list)
			return nil
		},
	}
	staleFlag(cmd, &stale)
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

// printRollouts writes one line per rollout.
func printRollouts(w io.Writer, list []admin.Rollout) {
	rows := make([][]string, len(list))
	for i := range list {
		r := &list[i]
		why := r.Reason
		if r.Held != "" {
			why = "waits: " + r.Held
		}
		rows[i] = []string{
			r.Route, r.Destination, r.Backend, rollout.PhaseText(r.Phase),
			fmt.Sprintf("%d/%d", r.Step, r.Steps), fmt.Sprintf("%d %%", r.Weight), leftText(r), oneLine(why),
		}
	}
	printTable(w, []string{"ROLLOUT", "TO", "BACKEND", "PHASE", "STEP", "WEIGHT", "LEFT", "WHY"}, rows)
}

// leftText returns the time left in the current step; "" if the rollout is
// over.
func leftText(r *admin.Rollout) string {
	if r.Phase != resource.RolloutRunning && r.Phase != resource.RolloutPaused {
		return ""
	}
	return resource.Duration(r.Left.Round(time.Second)).String()
}

func rolloutStatusCommand(t *target) *cobra.Command {
	var output string
	var stale, wait bool
	cmd := &cobra.Command{
		Use:   "status ROUTE",
		Short: "Show how far a rollout has come, and what the nodes see of the new backend",
		Long: "Counts are those within the window of abort, of all nodes that answer; the others are named.\n" +
			"With --wait it is shown when it is over: the code is 0 where it is done, and 1 where it was aborted or rolled back. " +
			"Nodes that do not answer for as long as --timeout end the wait.",
		Example:           "  penstock rollout status canary\n  penstock rollout status canary --wait",
		Args:              argRange(1, 1, "ROUTE"),
		ValidArgsFunction: completeRollout(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait && stale {
				return usagef("--stale: not with --wait, which waits for what the leader does")
			}
			r, err := askRollout(cmd, t, admin.RolloutsRequest{Route: args[0], Stale: stale})
			if wait && (err == nil || !refused(err)) {
				r, err = awaitRollout(cmd, t, args[0])
			}
			if err != nil {
				return err
			}
			if output == "json" {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				printRollout(cmd.OutOrStdout(), r, stale)
			}
			if err == nil && wait && r.Phase != resource.RolloutDone {
				return errReported
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is done, aborted or rolled back")
	staleFlag(cmd, &stale)
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// refused reports whether a node answered in a way that retrying will not
// change.
func refused(err error) bool {
	var refusal *admin.Error
	return errors.As(err, &refusal) &&
		(refusal.Code == admin.NotFound ||
			refusal.Code == admin.Forbidden ||
			refusal.Code == admin.Unauthenticated ||
			refusal.Code == admin.Unknown)
}

func askRollout(cmd *cobra.Command, t *target, req admin.RolloutsRequest) (*admin.Rollout, error) {
	list, err := ask[admin.Rollouts](cmd, t, admin.MethodRollouts, req)
	switch {
	case err != nil:
		return nil, err
	case len(*list) != 1:
		return nil, fmt.Errorf("the node answered with %d rollouts where one was asked for", len(*list))
	}
	return &(*list)[0], nil
}

// lookPause is the pause between two polls of a rollout.
const lookPause = time.Second

// awaitRollout waits until a rollout is over. A change of leader or a node that
// is unreachable for less than --timeout does not end the wait.
func awaitRollout(cmd *cobra.Command, t *target, route string) (*admin.Rollout, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	heard := time.Now()
	for {
		r, err := askRollout(cmd, t, admin.RolloutsRequest{Route: route})
		switch {
		case err == nil && r.Phase != resource.RolloutRunning && r.Phase != resource.RolloutPaused:
			return r, nil
		case err == nil:
			heard = time.Now()
		case refused(err) || time.Since(heard) > t.timeout:
			return nil, err
		}
		timer := time.NewTimer(lookPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Canceled
		}
	}
}

func printRollout(w io.Writer, r *admin.Rollout, stale bool) {
	line := func(what, format string, args ...any) {
		fmt.Fprintf(w, "%-12s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("route", "%s, for connections to %s", r.Route, r.Destination)
	line("backend", "%s gets %d %%", r.Backend, r.Weight)
	since := ""
	if !r.Since.IsZero() {
		since = " since " + timeText(r.Since)
	}
	line("phase", "%s%s", rollout.PhaseText(r.Phase), since)
	step := fmt.Sprintf("%d of %d", r.Step, r.Steps)
	if left := leftText(r); left != "" {
		step += ", " + left + " left"
	}
	line("step", "%s", step)
	if r.Reason != "" {
		line("why", "%s", oneLine(r.Reason))
	}
	if r.Held != "" {
		line("waits", "%s", r.Held)
	}
	if stale {
		return
	}
	line("connects", "%d within %s: %d failed, %d reset", r.Connects, resource.Duration(r.Window), r.Failed, r.Resets)
	line("endpoints", "%d on %d nodes together, %d ejected", r.Endpoints, r.Nodes, r.Ejected)
	for _, s := range r.Silent {
		line("left out", "%s", oneLine(s))
	}
}

func rolloutDoCommand(t *target, do, short, long string, aliases ...string) *cobra.Command {
	var w waiting
	var output string
	cmd := &cobra.Command{
		Use:               do + " ROUTE",
		Aliases:           aliases,
		Short:             short,
		Long:              long + " " + repeats + ".",
		Example:           "  penstock rollout " + do + " canary",
		Args:              argRange(1, 1, "ROUTE"),
		ValidArgsFunction: completeRollout(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			wait, err := w.resolve(cmd)
			if err != nil {
				return err
			}
			req := admin.RolloutRequest{ID: newID(), Do: do, Route: args[0], Wait: wait}
			r, err := askUntilKnown[admin.RolloutResult](cmd, t, wait.For, admin.MethodRollout, req)
			if err != nil {
				return err
			}
			if output == "json" {
				err = printJSON(cmd.OutOrStdout(), r.Rollout)
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "rollout of %s: %s at step %d of %d, %s gets %d %%\n",
					r.Rollout.Route, rollout.PhaseText(r.Rollout.Phase),
					r.Rollout.Step, r.Rollout.Steps, r.Rollout.Backend, r.Rollout.Weight)
			}
			if err != nil {
				return err
			}
			return w.report(cmd.ErrOrStderr(), committed(r.Index), r.Reached)
		},
	}
	outputFlag(cmd, &output, "text", "json")
	w.flags(cmd)
	return cmd
}

// completeRollout completes the names of routes that have a rollout.
func completeRollout(t *target) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		hurried := *t
		hurried.timeout = completing
		list, err := ask[admin.Rollouts](cmd, &hurried, admin.MethodRollouts, admin.RolloutsRequest{Stale: true})
		if len(args) > 0 || err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, r := range *list {
			names = append(names, r.Route)
		}
		return begin(names, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// rolloutRow returns a row of get rollouts.
func rolloutRow(o resource.Object) []string {
	s := o.Spec.(*resource.Rollout)
	return []string{rollout.PhaseText(s.Phase), fmt.Sprint(s.Step), fmt.Sprintf("%d %%", s.Weight), timeText(s.Since), oneLine(s.Reason)}
}

// tellRollouts describes the rollouts of the given routes.
func tellRollouts(w io.Writer, objects []resource.Object) {
	for _, o := range objects {
		if r, ok := o.Spec.(*resource.MeshTCPRoute); ok && r.Rollout != nil {
			fmt.Fprintf(w, "%s: a rollout: %s\n", o.Name, r.RolloutText())
		}
	}
}

// byRollout names the rollout that sets the weights of a source's backends.
func byRollout(p fmt.Stringer) string {
	return " (" + strings.TrimPrefix(p.String(), "weights of ") + ")"
}
