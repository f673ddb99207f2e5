package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/routing"
)

// simulateFlags holds the flags of simulate.
type simulateFlags struct {
	paths       []string
	output      string
	connections int
	node, to    string
	listener    string
	sni, from   string
	user        string
	alpn        []string
	source      map[string]string
	request     api.HTTPRequest
}

func simulateCommand(t *target) *cobra.Command {
	var s simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate -f FILES",
		Short: "Show where connections would go before and after a change",
		Long: "Simulates connections against a copy of the configuration in force on the node, and against that copy with the files " +
			"applied. Nothing is changed: splits and balancers are copied with their current state, and established connections are " +
			"not touched.\n" +
			"Without --listener and --to, everything that the files may reroute is simulated: each service that they affect, from " +
			"each source that routes distinguish, and each server name of a listener that would lead to another service. Where HTTP " +
			"requests are routed individually, one request per rule is simulated too; --path, --method, --host and --header select " +
			"a specific one.\n" +
			"All simulated connections stay open until the simulation ends, so that balancers that count connections see them; " +
			"every endpoint accepts its share. A host name that the node has not resolved yet has no endpoint.",
		Example: "  penstock simulate -f canary.yaml --connections 10000\n" +
			"  penstock simulate -f canary.yaml --listener edge --sni api.example.com --source service=web\n" +
			"  penstock simulate -f shop.yaml --listener web --path /cart --header x-beta=yes",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, req, err := s.read(cmd)
			if err != nil {
				return err
			}
			r, err := ask[api.SimulateResult](cmd, t, api.MethodSimulate, req)
			if err != nil {
				return l.relocate(err)
			}
			l.printResultWarnings(cmd, r.Warnings)
			if s.output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			printSimulation(cmd.OutOrStdout(), r)
			return nil
		},
	}
	filesFlag(cmd, &s.paths)
	f := cmd.Flags()
	f.IntVar(&s.connections, "connections", 1000, fmt.Sprintf("how many connections of each kind to simulate, 1 to %d", routing.MaxSimulatedConnections))
	f.StringVar(&s.to, "to", "", "simulate connections to this service only")
	f.StringVar(&s.listener, "listener", "", "simulate connections to this listener")
	f.StringVar(&s.sni, "sni", "", "with --listener: server name in their ClientHello (default none)")
	f.StringSliceVar(&s.alpn, "alpn", nil, "with --listener: ALPN protocols in their ClientHello")
	f.StringVar(&s.user, "user", "", "with --listener: user name as which clients of a mysql listener log in")
	f.StringVar(&s.from, "from", "", "with --listener: IP address of the client (default many)")
	f.StringToStringVar(&s.source, "source", nil, "tags of their source, k=v,...")
	requestFlags(cmd, &s.request, "with --listener or --to: ")
	f.StringVar(&s.node, "node", "", "node that accepts the connections, by name or ID (default the node at --addr)")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return t.nodeNames(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	})
	outputFlag(cmd, &s.output, "table", "json")
	return cmd
}

func (s *simulateFlags) read(cmd *cobra.Command) (*loaded, *api.SimulateRequest, error) {
	switch changed := cmd.Flags().Changed; {
	case s.connections < 1 || s.connections > routing.MaxSimulatedConnections:
		return nil, nil, usagef("--connections %d: want 1 to %d", s.connections, routing.MaxSimulatedConnections)
	case s.listener != "" && s.to != "":
		return nil, nil, usagef("--listener simulates connections to a listener, --to connections to a service; use one of them")
	case s.listener == "" && (changed("sni") || changed("alpn") || changed("from") || changed("user")):
		return nil, nil, usagef("--sni, --alpn, --from and --user require --listener")
	case s.listener == "" && s.to == "" && requestGiven(cmd):
		return nil, nil, usagef("--path, --method, --host and --header require --listener or --to")
	}
	l, err := loadFlag(cmd, s.paths)
	if err != nil {
		return nil, nil, err
	}
	if len(l.objects) == 0 {
		return nil, nil, fmt.Errorf("%s: contains no resources", strings.Join(s.paths, ", "))
	}
	req := &api.SimulateRequest{Node: s.node, Documents: l.documents(), Connections: s.connections, Destination: s.to, Tags: s.source}
	if requestGiven(cmd) {
		req.Request = &s.request
	}
	if s.listener != "" {
		req.Connection = &api.ExplainRequest{Listener: s.listener, ALPN: s.alpn, User: s.user, Client: s.from, Tags: s.source}
		if cmd.Flags().Changed("sni") {
			req.Connection.SNI = &s.sni
		}
	}
	return l, req, nil
}

func printSimulation(w io.Writer, r *api.SimulateResult) {
	for _, line := range trafficLines(r) {
		fmt.Fprintln(w, line)
	}
	sim := r.Simulation
	if sim == nil || len(sim.Runs) == 0 {
		if len(r.Words) == 0 {
			fmt.Fprintln(w, "nothing changes for connections")
		}
		return
	}
	for i := range sim.Runs {
		p := &sim.Runs[i]
		if i > 0 || len(r.Words) > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%d %s\n", sim.Connections, simulatedText(p))
		var rows [][]string
		for _, o := range p.Outcomes {
			service := o.Service
			switch {
			case o.Route != "":
				service = "per request, by " + o.Route
			case o.Status != 0:
				service = strings.TrimSpace(fmt.Sprintf("response %d %s", o.Status, o.Location))
			}
			if o.Reason != routing.OK {
				service = strings.TrimSpace(service + " closed (" + string(o.Reason) + ")")
			}
			rows = append(rows, []string{service, o.Subset, o.Endpoint, fmt.Sprint(o.Before), fmt.Sprint(o.After)})
		}
		printTable(w, []string{"SERVICE", "SUBSET", "ENDPOINT", "BEFORE", "AFTER"}, rows)
		if p.MoreOutcomes > 0 {
			fmt.Fprintf(w, "and %d more endpoints, with fewer connections each\n", p.MoreOutcomes)
		}
	}
	if sim.MoreRuns > 0 {
		fmt.Fprintf(w, "\nand %d more; --to or --listener selects one of them\n", sim.MoreRuns)
	}
}

// simulatedText describes the simulated connections: "connections to apps from
// MeshService web".
func simulatedText(p *routing.SimulatedRun) string {
	parts := []string{"connections"}
	if p.Request != "" {
		parts = []string{"requests", p.Request}
	}
	if p.Destination != "" {
		parts = append(parts, "to "+p.Destination)
	}
	if p.Listener != "" {
		parts = append(parts, "at "+p.Listener)
	}
	if p.User != "" {
		parts = append(parts, "of user "+p.User)
	}
	if p.ServerName != "" {
		parts = append(parts, "for "+p.ServerName)
	}
	if p.ALPN != "" {
		parts = append(parts, "with ALPN "+p.ALPN)
	}
	if p.Source != "" {
		parts = append(parts, "from "+p.Source)
	}
	return strings.Join(parts, " ")
}

// diffTraffic describes the effect of a change on traffic; nil if the node runs
// an older version, which cannot simulate.
func diffTraffic(cmd *cobra.Command, t *target, change *api.ApplyRequest) ([]string, error) {
	r, err := ask[api.SimulateResult](cmd, t, api.MethodSimulate, &api.SimulateRequest{Documents: change.Documents, Prune: change.Prune})
	var refusal *api.Error
	switch {
	case errors.As(err, &refusal) && refusal.Code == api.Unknown:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return trafficLines(r), nil
}

// trafficLines returns the lines that describe a change, and names the nodes
// whose connections are not counted.
func trafficLines(r *api.SimulateResult) []string {
	c := r.Counted
	if c == nil || len(c.Missing) == 0 {
		return r.Words
	}
	return append(r.Words, fmt.Sprintf("connections are counted on %d of %d nodes; no answer from %s",
		c.Nodes, c.Of, strings.Join(c.Missing, ", ")))
}
