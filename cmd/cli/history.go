package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"penstock/node/api"
)

func historyCommand(t *target) *cobra.Command {
	var output string
	var diffs, stale bool
	cmd := &cobra.Command{
		Use:               "history KIND NAME",
		Short:             "Show the changes of a resource: when, by whom, and what changed",
		Long:              "The newest change comes first. Deleted resources have a history too. Secrets stay hidden.",
		Example:           "  penstock history service apps --diff",
		Args:              argRange(2, 2, "KIND NAME"),
		ValidArgsFunction: completeResource(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if diffs && output != "table" {
				return usagef("--diff: cannot be combined with -o %s", output)
			}
			r, err := ask[api.HistoryResult](cmd, t, api.MethodHistory, api.HistoryRequest{Kind: args[0], Name: args[1], Stale: stale})
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch {
			case output == "json":
				return printJSON(w, r.Revisions)
			case output == "yaml":
				printRevisions(w, r.Revisions)
			case diffs:
				printHistory(w, r)
			default:
				var rows [][]string
				for _, v := range r.Revisions {
					rows = append(rows, []string{strconv.FormatUint(v.Version, 10), timeText(v.At), sanitize(v.Who), actionText(v)})
				}
				printTable(w, []string{"VERSION", "WHEN", "WHO", "WHAT"}, rows)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&diffs, "diff", false, "show each change as a diff")
	staleFlag(cmd, &stale)
	outputFlag(cmd, &output, "table", "yaml", "json")
	return cmd
}

// actionText describes the action of a revision.
func actionText(v api.Revision) string {
	text := sanitize(v.What)
	if v.Deleted && v.What != "delete" {
		text += " (deleted)"
	}
	return text
}

// printRevisions writes each revision as a YAML document.
func printRevisions(w io.Writer, revisions []api.Revision) {
	for i, v := range revisions {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		fmt.Fprintf(w, "# %s\n%s", revisionHeadline(v), v.YAML)
	}
}

func revisionHeadline(v api.Revision) string {
	return fmt.Sprintf("version %d, %s, %s: %s", v.Version, timeText(v.At), orElse(sanitize(v.Who), "unknown"), actionText(v))
}

// printHistory writes each change as a diff to the revision before it.
func printHistory(w io.Writer, r *api.HistoryResult) {
	name := r.Kind + "/" + r.Name
	for i, v := range r.Revisions {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, revisionHeadline(v))
		before, old := "/dev/null", ""
		if i+1 < len(r.Revisions) {
			if previous := r.Revisions[i+1]; !previous.Deleted {
				before, old = fmt.Sprintf("%s (version %d)", name, previous.Version), previous.YAML
			}
		} else {
			fmt.Fprintln(w, "the oldest version kept, in full")
		}
		after := fmt.Sprintf("%s (version %d)", name, v.Version)
		switch {
		case v.Deleted:
			after = "/dev/null"
		case v.YAML == old:
			fmt.Fprintln(w, "only hidden values changed")
			continue
		}
		fmt.Fprintf(w, "%s", diff.Diff(before, []byte(old), after, []byte(v.YAML)))
	}
}

// timeText formats a time as RFC 3339 in UTC; "" for the zero time.
func timeText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
