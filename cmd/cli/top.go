package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"penstock/node/api"
)

func topCommand(t *target) *cobra.Command {
	var once bool
	var req api.TopRequest
	var output string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch live connections and rates of the cluster, or of one node",
		Long: "The node at --addr queries all nodes and adds up their numbers; one line per node shows its part, or why it did not " +
			"answer and is not included.\n" +
			"On a terminal the screen is redrawn at each sample, until Ctrl-C. Otherwise, or with --once, lines are printed.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Interval < 100*time.Millisecond {
				return usagef("--interval %v: want 100ms or more", req.Interval)
			}
			if req.Count < 0 {
				return usagef("--count %d: want 1 or more, or 0 until interrupted", req.Count)
			}
			if req.Connections < 0 {
				return usagef("--connections %d: want 0 or more", req.Connections)
			}
			if once {
				req.Count = 1
			}
			req.Cluster = req.Node == ""
			w := cmd.OutOrStdout()
			show := func(s *api.TopSample) error { printSample(w, s); return nil }
			switch {
			case output == "json":
				show = func(s *api.TopSample) error { return printJSON(w, s) }
			case !once && isTerminal(w):
				leave := enterScreen(w)
				defer leave()
				show = func(s *api.TopSample) error { drawSample(w, s); return nil }
			}
			return follow(cmd.Context(), t, api.MethodTop, req, show)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one sample and exit")
	cmd.Flags().IntVar(&req.Count, "count", 0, "print this many samples and exit (default: until interrupted)")
	cmd.Flags().DurationVar(&req.Interval, "interval", time.Second, "time between samples")
	cmd.Flags().IntVar(&req.Connections, "connections", 10, "how many of the latest connections to list")
	cmd.Flags().StringVar(&req.Node, "node", "", "show only this node, by name or ID (default all nodes)")
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// enterScreen switches to the terminal's alternate screen and hides the cursor.
func enterScreen(w io.Writer) (leave func()) {
	fmt.Fprint(w, "\x1b[?1049h\x1b[?25l")
	return func() { fmt.Fprint(w, "\x1b[?25h\x1b[?1049l") }
}

// drawSample redraws the screen in place; clearing it first would flicker.
func drawSample(w io.Writer, s *api.TopSample) {
	var b strings.Builder
	printSample(&b, s)
	height := 24
	if f, ok := w.(*os.File); ok {
		if _, h, err := term.GetSize(int(f.Fd())); err == nil {
			height = h
		}
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(lines) > height-1 {
		lines = append(lines[:height-2], fmt.Sprintf("... %d more", len(lines)-height+2))
	}
	fmt.Fprint(w, "\x1b[H"+strings.Join(lines, "\x1b[K\n")+"\x1b[K\n\x1b[J")
}

func printSample(w io.Writer, s *api.TopSample) {
	var rows [][]string
	if s.Node != "" {
		fmt.Fprintf(w, "%s  node %s  %d connections\n", s.At.Local().Format(time.TimeOnly), s.Node, s.Connections)
	} else {
		printNodes(w, s)
	}
	for _, f := range s.Flows {
		rows = append(rows, []string{
			f.Listener, f.Service, fmt.Sprint(f.Connections), fmt.Sprintf("%.1f", f.NewRate),
			bytesText(f.InRate) + "/s", bytesText(f.OutRate) + "/s",
			fmt.Sprint(f.Total), bytesText(float64(f.BytesIn)), bytesText(float64(f.BytesOut)),
		})
	}
	printTable(w, []string{"LISTENER", "SERVICE", "CONNECTIONS", "NEW/S", "IN", "OUT", "TOTAL", "BYTES IN", "BYTES OUT"}, rows)
	if len(s.VirtualClusters) > 0 {
		rows = nil
		for _, c := range s.VirtualClusters {
			rows = append(rows, []string{c.Name, fmt.Sprintf("%.1f", c.Requests), fmt.Sprintf("%.1f", c.Errors), fmt.Sprintf("%.1f", c.Throttled)})
		}
		fmt.Fprintln(w)
		printTable(w, []string{"VIRTUAL CLUSTER", "REQUESTS/S", "ERRORS/S", "THROTTLED/S"}, rows)
	}
	if len(s.Latest) == 0 {
		return
	}
	rows = nil
	for _, c := range s.Latest {
		rows = append(rows, []string{
			orElse(c.Node, s.Node), c.Client, c.Listener, sanitizeUntrusted(c.SNI), c.Service, c.Endpoint, c.Phase,
			bytesText(float64(c.BytesIn)), bytesText(float64(c.BytesOut)),
			c.Age.Round(time.Millisecond).String(), c.Idle.Round(time.Millisecond).String(),
		})
	}
	fmt.Fprintln(w)
	printTable(w, []string{"NODE", "CLIENT", "LISTENER", "SNI", "SERVICE", "ENDPOINT", "PHASE", "BYTES IN", "BYTES OUT", "AGE", "IDLE"}, rows)
}

// printNodes writes the heading of a cluster sample: one line per node.
func printNodes(w io.Writer, s *api.TopSample) {
	answered := 0
	var rows [][]string
	for _, n := range s.Nodes {
		if n.Error != "" {
			rows = append(rows, []string{n.Name, "", "", "", "", n.Error})
			continue
		}
		answered++
		rows = append(rows, []string{
			n.Name, fmt.Sprint(n.Connections), fmt.Sprintf("%.1f", n.NewRate),
			bytesText(n.InRate) + "/s", bytesText(n.OutRate) + "/s", "",
		})
	}
	fmt.Fprintf(w, "%s  %d of %d nodes  %d connections\n", s.At.Local().Format(time.TimeOnly), answered, len(s.Nodes), s.Connections)
	printTable(w, []string{"NODE", "CONNECTIONS", "NEW/S", "IN", "OUT", "NO ANSWER"}, rows)
	fmt.Fprintln(w)
}
