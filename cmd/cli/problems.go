package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

func problemsCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "problems",
		Short: "Show what is wrong in the cluster now, and which command tells more",
		Long: "Each line is one problem: with a node, an endpoint, a listener, a certificate, a rollout or a limit, or connections that " +
			"failed in the last minute. The gravest come first: an error means that clients are refused or the configuration cannot be " +
			"changed, a warning that it may come to that.\n" +
			"All nodes are asked; a last line names those that did not answer. The exit code is 0 whatever there is: -o json is for scripts.",
		Example: "  penstock problems\n  penstock problems -o json | jq -e '[.problems[] | select(.severity == \"error\")] == []'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask[api.Problems](cmd, t, api.MethodProblems, api.Empty{})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			printProblems(cmd.OutOrStdout(), r)
			return nil
		},
	}
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func printProblems(w io.Writer, r *api.Problems) {
	if len(r.Problems) == 0 {
		fmt.Fprintln(w, "no problems")
	} else {
		rows := make([][]string, len(r.Problems))
		for i, p := range r.Problems {
			rows[i] = []string{p.Severity, p.About, sanitize(p.Text), p.Command}
		}
		printTable(w, []string{"SEVERITY", "ABOUT", "PROBLEM", "MORE"}, rows)
	}
	if r.More > 0 {
		fmt.Fprintf(w, "and %d more\n", r.More)
	}
	for _, m := range r.Missing {
		fmt.Fprintln(w, "missing: "+sanitize(m))
	}
}
