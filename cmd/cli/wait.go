package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

// Keywords of --wait.
const (
	waitAll  = "all"
	waitNone = "none"
)

// waitFlags holds the flags that say how many nodes must act on a change before
// the command ends.
type waitFlags struct {
	nodes string // all, none or a number
	limit time.Duration
	// explicit: --wait was set, so too few nodes are a failure.
	explicit bool
	want     int // api.WaitAll or a number of nodes; below 0: none
}

func (w *waitFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.nodes, "wait", waitAll, "how many nodes must act on the change: all (that are up), a number, or none "+
		"(but the node at --addr); if set and not reached, the exit code is 1")
	cmd.Flags().DurationVar(&w.limit, "wait-timeout", 10*time.Second, "how long to wait for them")
	_ = cmd.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions([]string{waitAll, waitNone}, cobra.ShellCompDirectiveNoFileComp))
}

// resolve validates the flags and returns the wait of the request.
func (w *waitFlags) resolve(cmd *cobra.Command) (api.Wait, error) {
	w.explicit = cmd.Flags().Changed("wait")
	if w.limit <= 0 {
		return api.Wait{}, usagef("--wait-timeout %v: want more than 0s; --wait none does not wait", w.limit)
	}
	switch w.nodes {
	case waitAll:
		w.want = api.WaitAll
	case waitNone:
		w.want = -1
	default:
		n, err := strconv.Atoi(w.nodes)
		if err != nil || n < 1 {
			return api.Wait{}, usagef("--wait %s: want all, none or a number of nodes", w.nodes)
		}
		w.want = n
	}
	return api.Wait{Nodes: w.want, For: w.limit}, nil
}

// maxLateNodes bounds the number of nodes that a report names.
const maxLateNodes = 10

// committed describes the outcome of a change for report.
func committed(index uint64) string { return fmt.Sprintf("committed as index %d", index) }

// committedAny is committed for a set of changes, all of which may have been
// no-ops.
func committedAny(index uint64, changes []api.Change) string {
	for _, c := range changes {
		if c.Action != api.Unchanged {
			return committed(index)
		}
	}
	return fmt.Sprintf("nothing to change at index %d", index)
}

// report prints which nodes do not act on a change in time, if fewer act than
// wanted. That is an error only if --wait was set.
func (w *waitFlags) report(out io.Writer, outcome string, r api.Reached) error {
	switch {
	case r.Nodes == 0 && len(r.Late) == 0: // there was nothing to wait for
		return nil
	case w.want < 0, w.want == api.WaitAll && len(r.Late) == 0, w.want > 0 && r.Nodes >= w.want:
		return nil
	}
	up := r.Nodes
	var late []string
	for _, l := range r.Late {
		if l.Node == "" { // the reason concerns no single node, such as too few nodes
			late = append(late, l.Why)
			continue
		}
		up++
		late = append(late, l.Node+": "+l.Why)
	}
	text := fmt.Sprintf("penstock: %s; %d of %d nodes act on it", outcome, r.Nodes, up)
	if w.want > up && up == r.Nodes+len(r.Late) {
		text += fmt.Sprintf(", want %d", w.want)
	}
	if more := len(late) - maxLateNodes; more > 0 {
		late = append(late[:maxLateNodes], fmt.Sprintf("and %d more", more))
	}
	fmt.Fprintln(out, strings.Join(append([]string{text}, late...), "; "))
	if w.explicit {
		return errReported
	}
	return nil
}
