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

	"penstock/cmd/progress"
	"penstock/node/api"
	"penstock/node/rollout"
	"penstock/routing/resource"
)

func rolloutCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Watch and control the rollouts of routes",
		Long: "A rollout moves the weight of a MeshTCPRoute over time, in the steps of its spec.rollout. The first step starts when " +
			"the route is applied; the leader starts the following ones. The list and status commands query all nodes.\n" +
			"`penstock history rollout ROUTE` shows its changes: when, by whom and why; `penstock get rollouts --watch` shows each " +
			"step as it happens.",
	}
	return commandGroup(cmd, rolloutListCommand(t), rolloutStatusCommand(t),
		rolloutActionCommand(t, rollout.Pause, "Hold a rollout at its current weight until it is resumed",
			"It is still aborted if too many connects fail or too many endpoints are ejected."),
		rolloutActionCommand(t, rollout.Resume, "Resume a paused rollout",
			"The time that its step had run before the pause counts."),
		rolloutActionCommand(t, rollout.Rollback, "Set the weight of the new backend to 0 %",
			"Established connections stay where they are. A rollout that was rolled back or aborted stays so until it is restarted "+
				"or the route gets another rollout.", "abort"),
		rolloutActionCommand(t, rollout.Restart, "Restart a rollout at its first step",
			"Earlier failures do not count."),
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
			list, err := ask[api.Rollouts](cmd, t, api.MethodRollouts, api.RolloutsRequest{Stale: stale})
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
func printRollouts(w io.Writer, list []api.Rollout) {
	rows := make([][]string, len(list))
	for i := range list {
		r := &list[i]
		why := r.Reason
		if r.Held != "" {
			why = "waiting: " + r.Held
		}
		rows[i] = []string{
			r.Route, r.Destination, r.Backend, rollout.PhaseText(r.Phase),
			fmt.Sprintf("%d/%d", r.Step, r.Steps), fmt.Sprintf("%d %%", r.Weight), leftText(r), sanitize(why),
		}
	}
	printTable(w, []string{"ROLLOUT", "TO", "BACKEND", "PHASE", "STEP", "WEIGHT", "LEFT", "WHY"}, rows)
}

// leftText returns the time left in the current step; "" if the rollout is
// over.
func leftText(r *api.Rollout) string {
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
		Short: "Show the progress of a rollout, and how the nodes see the new backend",
		Long: "Counts cover the window of spec.rollout.abort, on all nodes that answer; the others are named.\n" +
			"With --wait, prints the status once the rollout is over; the exit code is 0 if it is done, and 1 if it was aborted or " +
			"rolled back. The wait fails if no node answers for --timeout.",
		Example:           "  penstock rollout status canary\n  penstock rollout status canary --wait",
		Args:              argRange(1, 1, "ROUTE"),
		ValidArgsFunction: completeRollout(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait && stale {
				return usagef("--stale: cannot be combined with --wait, which follows the leader")
			}
			r, err := askRollout(cmd, t, api.RolloutsRequest{Route: args[0], Stale: stale})
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
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the rollout is done, aborted or rolled back")
	staleFlag(cmd, &stale)
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// refused reports whether a node answered in a way that retrying will not
// change.
func refused(err error) bool {
	var refusal *api.Error
	return errors.As(err, &refusal) &&
		(refusal.Code == api.NotFound ||
			refusal.Code == api.Forbidden ||
			refusal.Code == api.Unauthenticated ||
			refusal.Code == api.Unknown)
}

func askRollout(cmd *cobra.Command, t *target, req api.RolloutsRequest) (*api.Rollout, error) {
	list, err := ask[api.Rollouts](cmd, t, api.MethodRollouts, req)
	switch {
	case err != nil:
		return nil, err
	case len(*list) != 1:
		return nil, fmt.Errorf("the node returned %d rollouts, want 1", len(*list))
	}
	return &(*list)[0], nil
}

// rolloutPollInterval is the pause between two polls of a rollout.
const rolloutPollInterval = time.Second

// awaitRollout waits until a rollout is over. A change of leader or a node that
// is unreachable for less than --timeout does not end the wait.
func awaitRollout(cmd *cobra.Command, t *target, route string) (*api.Rollout, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bar := progress.Start(cmd.ErrOrStderr(), "rollout "+sanitize(route), progress.Handled)
	defer bar.Stop()
	lastAnswer := time.Now()
	for {
		r, err := askRollout(cmd, t, api.RolloutsRequest{Route: route})
		switch {
		case err == nil && r.Phase != resource.RolloutRunning && r.Phase != resource.RolloutPaused:
			return r, nil
		case err == nil:
			lastAnswer = time.Now()
			bar.Set(int64(r.Step), int64(r.Steps), rolloutText(r))
		case refused(err) || time.Since(lastAnswer) > t.timeout:
			return nil, err
		}
		timer := time.NewTimer(rolloutPollInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Canceled
		}
	}
}

// rolloutText says how far a rollout is.
func rolloutText(r *api.Rollout) string {
	text := fmt.Sprintf("%s, step %d of %d, %d %%, %s left", rollout.PhaseText(r.Phase), r.Step, r.Steps, r.Weight, leftText(r))
	if r.Held != "" {
		text += ", waits: " + sanitize(r.Held)
	}
	return text
}

func printRollout(w io.Writer, r *api.Rollout, stale bool) {
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
		line("why", "%s", sanitize(r.Reason))
	}
	if r.Held != "" {
		line("waits", "%s", r.Held)
	}
	if stale {
		return
	}
	line("connects", "%d within %s: %d failed, %d reset", r.Connects, resource.Duration(r.Window), r.Failed, r.Resets)
	line("endpoints", "%d in total on %d nodes, %d ejected", r.Endpoints, r.Nodes, r.Ejected)
	for _, s := range r.Silent {
		line("left out", "%s", sanitize(s))
	}
}

func rolloutActionCommand(t *target, do, short, long string, aliases ...string) *cobra.Command {
	var w waitFlags
	var output string
	cmd := &cobra.Command{
		Use:               do + " ROUTE",
		Aliases:           aliases,
		Short:             short,
		Long:              long + " " + retryHelp + ".",
		Example:           "  penstock rollout " + do + " canary",
		Args:              argRange(1, 1, "ROUTE"),
		ValidArgsFunction: completeRollout(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			wait, err := w.resolve(cmd)
			if err != nil {
				return err
			}
			req := api.RolloutRequest{ID: newID(), Do: do, Route: args[0], Wait: wait}
			r, err := askWithRetries[api.RolloutResult](cmd, t, wait.For, api.MethodRollout, req)
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
		quick := *t
		quick.timeout = completionTimeout
		list, err := ask[api.Rollouts](cmd, &quick, api.MethodRollouts, api.RolloutsRequest{Stale: true})
		if len(args) > 0 || err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, r := range *list {
			names = append(names, r.Route)
		}
		return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// rolloutRow returns a row of get rollouts.
func rolloutRow(o resource.Object) []string {
	s := o.Spec.(*resource.Rollout)
	return []string{rollout.PhaseText(s.Phase), fmt.Sprint(s.Step), fmt.Sprintf("%d %%", s.Weight), timeText(s.Since), sanitize(s.Reason)}
}

// printRolloutPlans describes the rollouts of the given routes.
func printRolloutPlans(w io.Writer, objects []resource.Object) {
	for _, o := range objects {
		if r, ok := o.Spec.(*resource.MeshTCPRoute); ok && r.Rollout != nil {
			fmt.Fprintf(w, "%s: rollout: %s\n", o.Name, r.RolloutText())
		}
	}
}

// rolloutSuffix names the rollout that sets the weights of a source's backends.
func rolloutSuffix(p fmt.Stringer) string {
	return " (" + strings.TrimPrefix(p.String(), "weights of ") + ")"
}
