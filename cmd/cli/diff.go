package cli

import (
	"fmt"
	"io"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"penstock/node/api"
)

func diffCommand(t *target) *cobra.Command {
	var a applyFlags
	cmd := &cobra.Command{
		Use:   "diff -f FILES",
		Short: "Show what apply would change; secrets stay hidden",
		Long: "The diff is followed by its effect on traffic, one line each: the share of new connections that go elsewhere, and " +
			"how many established connections stay. Those are counted on all nodes that answer within two seconds; a last line " +
			"names the others. `penstock simulate -o json` has the same lines, and the nodes.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, req, err := a.request(cmd)
			if err != nil {
				return err
			}
			req.DryRun = true
			r, err := ask[api.ApplyResult](cmd, t, api.MethodApply, req)
			if err != nil {
				return l.relocate(err)
			}
			l.printResultWarnings(cmd, r.Warnings)
			if a.output == "json" {
				return printJSON(cmd.OutOrStdout(), r.Changes)
			}
			w := cmd.OutOrStdout()
			changed := false
			for _, c := range r.Changes {
				printDiff(w, c)
				changed = changed || c.Action != api.Unchanged
			}
			if !changed {
				return nil
			}
			effects, err := diffTraffic(cmd, t, req)
			for _, line := range effects {
				fmt.Fprintln(w, line)
			}
			return err
		},
	}
	a.flags(cmd)
	return cmd
}

func printDiff(w io.Writer, c api.Change) {
	name := c.Kind + "/" + c.Name
	switch {
	case c.Action == api.Unchanged:
	case c.Action == api.Deleted && c.Before == "":
		fmt.Fprintf(w, "%s: deleted\n", name)
	case c.Before == c.After:
		fmt.Fprintf(w, "%s: only hidden values change\n", name)
	default:
		before, after := name+" (stored)", name+" (given)"
		switch c.Action {
		case api.Created:
			before = "/dev/null"
		case api.Deleted:
			after = "/dev/null"
		}
		fmt.Fprintf(w, "%s", diff.Diff(before, []byte(c.Before), after, []byte(c.After)))
	}
}
