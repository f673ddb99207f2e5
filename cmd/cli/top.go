package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"penstock/cmd/top"
	"penstock/node/api"
	"penstock/node/rpc"
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
			"On a terminal it fills the screen: ? lists the keys, q quits. If the node at --addr dies, it goes on with another one; " +
			"that needs a token, as any node on another machine does. NO_COLOR and the locale are respected.\n" +
			"Elsewhere, or with --once or --count, samples are printed as lines; with -o json, one line per sample.",
		Example: "  penstock top\n  penstock top --node n2\n  penstock top -o json --interval 10s | jq -c '[.at, .connections]'",
		Args:    noArgs,
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
				// One line per sample, for programs that read lines.
				enc := json.NewEncoder(w)
				enc.SetEscapeHTML(false)
				show = func(s *api.TopSample) error { return enc.Encode(s) }
			case req.Count == 0 && isTerminal(w) && top.Usable():
				return t.fullScreen(cmd.Context(), req)
			}
			return follow(cmd.Context(), t, api.MethodTop, req, show)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one sample and exit")
	cmd.Flags().IntVar(&req.Count, "count", 0, "print this many samples and exit (default: until interrupted)")
	cmd.Flags().DurationVar(&req.Interval, "interval", time.Second, "time between samples")
	cmd.Flags().IntVar(&req.Connections, "connections", 10, "how many of the latest connections to print")
	cmd.Flags().StringVar(&req.Node, "node", "", "only this node, by name or ID (default all nodes)")
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// fullScreen shows the cluster on the whole terminal.
func (t *target) fullScreen(ctx context.Context, req api.TopRequest) error {
	return top.Run(ctx, top.Config{
		Addr: t.address(), Node: req.Node, Interval: req.Interval,
		Dial: func(ctx context.Context, addr string) (*rpc.Client, error) {
			other := *t
			other.addr = orElse(addr, t.addr)
			return other.dial(ctx)
		},
	})
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
