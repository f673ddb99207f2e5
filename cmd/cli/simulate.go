package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/admin"
	"penstock/routing"
)

// simulating holds the flags of simulate.
type simulating struct {
	paths       []string
	output      string
	connections int
	node, to    string
	listener    string
	sni, from   string
	alpn        []string
	source      map[string]string
	request     admin.HTTPRequest
}

func simulateCommand(t *target) *cobra.Command {
	var s simulating
	cmd := &cobra.Command{
		Use:   "simulate -f FILES",
		Short: "Show where connections would go before a change and after it",
		Long: "Connections are played against a copy of what is in force on the node asked, " +
			"and against the same with the files applied. Nothing is changed: neither splits and balancers, " +
			"which the copies continue where they are, nor connections there are.\n" +
			"Without --listener and --to, whatever the files may lead elsewhere is played: each service that they touch, " +
			"from each source that routes tell apart, and each name of a listener that would lead to another service. " +
			"Where requests of HTTP are routed one by one, one for each rule is played as well; " +
			"--path and its like play a certain one.\n" +
			"All connections of a play stay open until it ends, so that balancers which go by connections see them; " +
			"every endpoint takes what it gets. A host name that the node has not looked up yet has no endpoint.",
		Example: "  penstock simulate -f canary.yaml --connections 10000\n" +
			"  penstock simulate -f canary.yaml --listener edge --sni api.example.com --source service=web\n" +
			"  penstock simulate -f shop.yaml --listener web --path /cart --header x-beta=yes",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, req, err := s.read(cmd)
			if err != nil {
				return err
			}
			r, err := ask[admin.SimulateResult](cmd, t, admin.MethodSimulate, req)
			if err != nil {
				return l.relocate(err)
			}
			if s.output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			printSimulation(cmd.OutOrStdout(), r)
			return nil
		},
	}
	filesFlag(cmd, &s.paths)
	f := cmd.Flags()
	f.IntVar(&s.connections, "connections", 1000, fmt.Sprintf("how many to play of each kind, 1 to %d", routing.MaxPlayed))
	f.StringVar(&s.to, "to", "", "play connections to this service alone")
	f.StringVar(&s.listener, "listener", "", "play connections that come to this listener")
	f.StringVar(&s.sni, "sni", "", "with --listener: server name of their ClientHello (default none)")
	f.StringSliceVar(&s.alpn, "alpn", nil, "with --listener: protocols that they offer")
	f.StringVar(&s.from, "from", "", "with --listener: IP address that they come from (default many)")
	f.StringToStringVar(&s.source, "source", nil, "tags of their source, k=v,...")
	requestFlags(cmd, &s.request, "with --listener or --to: ")
	f.StringVar(&s.node, "node", "", "the node that they come to, by name or ID; default the one asked")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return t.members(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	})
	outputFlag(cmd, &s.output, "table", "json")
	return cmd
}

func (s *simulating) read(cmd *cobra.Command) (*loaded, *admin.SimulateRequest, error) {
	switch given := cmd.Flags().Changed; {
	case s.connections < 1 || s.connections > routing.MaxPlayed:
		return nil, nil, usagef("--connections %d: want 1 to %d", s.connections, routing.MaxPlayed)
	case s.listener != "" && s.to != "":
		return nil, nil, usagef("--listener plays what comes to a listener, --to what is for a service; give one of them")
	case s.listener == "" && (given("sni") || given("alpn") || given("from")):
		return nil, nil, usagef("--sni, --alpn and --from go with --listener")
	case s.listener == "" && s.to == "" && requestGiven(cmd):
		return nil, nil, usagef("--path, --method, --host and --header go with --listener or --to")
	}
	l, err := loadFlag(cmd, s.paths)
	if err != nil {
		return nil, nil, err
	}
	if len(l.objects) == 0 {
		return nil, nil, fmt.Errorf("%s: holds no resource", strings.Join(s.paths, ", "))
	}
	req := &admin.SimulateRequest{Node: s.node, Documents: l.documents(), Connections: s.connections, Destination: s.to, Tags: s.source}
	if requestGiven(cmd) {
		req.Request = &s.request
	}
	if s.listener != "" {
		req.Connection = &admin.ExplainRequest{Listener: s.listener, ALPN: s.alpn, Client: s.from, Tags: s.source}
		if cmd.Flags().Changed("sni") {
			req.Connection.SNI = &s.sni
		}
	}
	return l, req, nil
}

func printSimulation(w io.Writer, r *admin.SimulateResult) {
	for _, line := range trafficLines(r) {
		fmt.Fprintln(w, line)
	}
	sim := r.Simulation
	if sim == nil || len(sim.Plays) == 0 {
		if len(r.Words) == 0 {
			fmt.Fprintln(w, "nothing changes for connections")
		}
		return
	}
	for i := range sim.Plays {
		p := &sim.Plays[i]
		if i > 0 || len(r.Words) > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%d %s\n", sim.Connections, playedText(p))
		var rows [][]string
		for _, o := range p.Outcomes {
			service := o.Service
			switch {
			case o.Route != "":
				service = "request by request, by " + o.Route
			case o.Status != 0:
				service = strings.TrimSpace(fmt.Sprintf("answered %d %s", o.Status, o.Location))
			}
			if o.Reason != routing.OK {
				service = strings.TrimSpace(service + " closed (" + string(o.Reason) + ")")
			}
			rows = append(rows, []string{service, o.Subset, o.Endpoint, fmt.Sprint(o.Before), fmt.Sprint(o.After)})
		}
		printTable(w, []string{"SERVICE", "SUBSET", "ENDPOINT", "BEFORE", "AFTER"}, rows)
		if p.MoreOutcomes > 0 {
			fmt.Fprintf(w, "and %d endpoints more, with fewer connections each\n", p.MoreOutcomes)
		}
	}
	if sim.MorePlays > 0 {
		fmt.Fprintf(w, "\nand %d more; --to or --listener plays one of them\n", sim.MorePlays)
	}
}

// playedText describes the simulated connections: "connections to apps from
// MeshService web".
func playedText(p *routing.SimulatedMove) string {
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

// traffic describes the effect of a change on traffic; nil if the node runs an
// older version, which cannot simulate.
func traffic(cmd *cobra.Command, t *target, change *admin.ApplyRequest) ([]string, error) {
	r, err := ask[admin.SimulateResult](cmd, t, admin.MethodSimulate, &admin.SimulateRequest{Documents: change.Documents, Prune: change.Prune})
	var refusal *admin.Error
	switch {
	case errors.As(err, &refusal) && refusal.Code == admin.Unknown:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return trafficLines(r), nil
}

// trafficLines returns the lines that describe a change, and names the nodes
// whose connections are not counted.
func trafficLines(r *admin.SimulateResult) []string {
	c := r.Counted
	if c == nil || len(c.Missing) == 0 {
		return r.Words
	}
	return append(r.Words, fmt.Sprintf("connections are those of %d of %d nodes; no answer from %s",
		c.Nodes, c.Of, strings.Join(c.Missing, ", ")))
}
