package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// getFlags holds the flags of get.
type getFlags struct {
	output   string
	as       string
	watch    bool
	stale    bool
	selector map[string]string

	effective effectiveFlags
}

// getHelp is the help of get.
const getHelp = "The output includes every change that was acknowledged before the request. A node without a leader cannot guarantee " +
	"that: use --stale there to read its own state.\n" +
	"With --watch, existing resources come first, then each change once it acts on the node at --addr, until Ctrl-C; with " +
	"-o json as one object per line, {\"index\", \"put\"} or {\"index\", \"deleted\"}.\n" +
	"`get endpoints [SERVICE]` shows the endpoints that the node at --addr uses: where each comes from and since when, its " +
	"state, health, weight and zone; -o wide adds resolved addresses, connections and tags.\n" +
	viewsHelp +
	"`get proxies [SERVICE]` shows the Envoys and other clients of the nodes' discovery servers: who they are, and whether they " +
	"have accepted all that there is for them; -o wide adds identities, zones, announced endpoints and versions.\n" +
	"`get limits [LIMIT]` shows what the rate limits have decided on the node at --addr since it knows them, how many keys they " +
	"have, and the keys that have used most of their burst: over 100 % someone waits.\n" +
	"`get shares [LIMIT]` shows which node holds what of the rate limits with scope cluster: what its clients want, its share in " +
	"units per second, and how long its lease lasts; budgets without demand are not listed.\n" +
	"With --effective, `get routes` shows the combined effect of all routes: for each destination and source the route that " +
	"decides, its shares, the backends that it skips and why, and the routes that do not decide and why; -o wide lists all " +
	"of the latter."

func getCommand(t *target) *cobra.Command {
	var g getFlags
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show resources; secrets stay hidden",
		Long:  getHelp,
		Example: "  penstock get services\n" +
			"  penstock get routes --effective\n" +
			"  penstock get listener edge -o yaml\n" +
			"  penstock get meshtcproutes -o yaml --as kuma\n" +
			"  penstock get services -l app=shop --watch\n" +
			"  penstock get topology -o dot | dot -Tsvg > topology.svg",
		Args:              argRange(1, 2, "KIND [NAME]"),
		ValidArgsFunction: completeResource(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.GetRequest{Kind: args[0], Stale: g.stale, Labels: g.selector}
			if len(args) == 2 {
				req.Name = args[1]
			}
			shown := viewOf(req.Kind)
			if err := g.checkAs(shown != nil); err != nil {
				return err
			}
			switch {
			case shown != nil:
				return shown.get(cmd, t, args, &g)
			case g.output == "dot":
				return usagef("-o dot is for topology")
			case isEndpoints(req.Kind):
				return getEndpoints(cmd, t, req.Name, g.output)
			case isLimits(req.Kind):
				return getLimits(cmd, t, req.Name, g.output)
			case isShares(req.Kind):
				return getShares(cmd, t, req.Name, g.output)
			case isProxies(req.Kind):
				return getProxies(cmd, t, req.Name, g.output)
			case g.effective.on || g.effective.all:
				return getEffective(cmd, t, args, &g)
			case g.watch && g.stale:
				return usagef("--stale: --watch always shows the state of one node; leave --stale out")
			case req.Name != "" && len(g.selector) > 0:
				return usagef("-l cannot be combined with a NAME")
			case g.watch:
				return watchResources(cmd, t, req, g.output)
			}
			r, err := ask[api.GetResult](cmd, t, api.MethodGet, req)
			if err != nil {
				return err
			}
			if g.as != "" {
				return printAs(cmd.OutOrStdout(), r, g.as)
			}
			if r.Kind == "Service" && (g.output == "table" || g.output == "wide") {
				return printServiceViews(cmd, t, r, &g, req.Name != "")
			}
			return printResources(cmd.OutOrStdout(), r, g.output, req.Name != "")
		},
	}
	cmd.Flags().BoolVarP(&g.watch, "watch", "w", false, "show changes as they happen, until Ctrl-C")
	staleFlag(cmd, &g.stale)
	selectorFlag(cmd, &g.selector, "only resources with these labels, k=v,...")
	g.effective.flags(cmd)
	asFlag(cmd, &g.as)
	outputFlag(cmd, &g.output, "table", "wide", "yaml", "json", "dot")
	return cmd
}

// staleFlag adds --stale, which reads from the target node without asking a
// leader.
func staleFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "stale", false, "read the state of the node at --addr, which may be outdated")
}

// decodeDocument decodes a resource that a node sent.
func decodeDocument(d api.Document) (resource.Object, error) {
	o, err := codec.Restore(d.Data, kinds.All())
	if err != nil {
		err = fmt.Errorf("%s/%s: the node runs a different version than this command: %w", d.Kind, d.Name, err)
	}
	return o, err
}

func printResources(w io.Writer, r *api.GetResult, output string, one bool) error {
	objects := make([]resource.Object, len(r.Documents))
	raw := make([]json.RawMessage, len(r.Documents))
	for i, d := range r.Documents {
		var err error
		if objects[i], err = decodeDocument(d); err != nil {
			return err
		}
		raw[i] = d.Data
	}
	switch {
	case output == "json" && one && len(raw) == 1:
		return printJSON(w, raw[0])
	case output == "json":
		return printJSON(w, raw)
	case output == "yaml":
		for i, o := range objects {
			if i > 0 {
				fmt.Fprintln(w, "---")
			}
			fmt.Fprintf(w, "%s", codec.EncodeYAML(o))
			fmt.Fprintf(w, "%s", statusYAML(r.Documents[i]))
		}
		return nil
	}
	columns := columnsOf(r.Kind, output == "wide").withStatus(r)
	rows := make([][]string, len(objects))
	for i, o := range objects {
		rows[i] = columns.row(o)
	}
	printTable(w, columns.heading, rows)
	return nil
}

// columns are the table columns of a kind.
type columns struct {
	heading []string
	row     func(resource.Object) []string
}

func columnsOf(kind string, wide bool) columns {
	own := ownColumns(kind)
	if !wide {
		return columns{append([]string{"NAME"}, own.heading...), func(o resource.Object) []string {
			return append([]string{o.Name}, own.row(o)...)
		}}
	}
	return columns{append(append([]string{"NAME"}, own.heading...), "VERSION", "LABELS"), func(o resource.Object) []string {
		return append(append([]string{o.Name}, own.row(o)...), fmt.Sprint(o.Version), labelsText(o.Labels))
	}}
}

func labelsText(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, k+"="+labels[k])
	}
	return strings.Join(parts, ",")
}

// ownColumns returns the columns specific to a kind.
func ownColumns(kind string) columns {
	switch kind {
	case "Listener":
		return columns{[]string{"ADDRESS", "PROTOCOL", "TLS", "NAMES", "SERVICE"}, listenerRow}
	case "Service":
		return columns{[]string{"PROTOCOL", "BALANCING", "ENDPOINTS", "CHECK"}, serviceRow}
	case "MeshTCPRoute":
		return columns{[]string{"SOURCE", "TO", "BACKENDS"}, routeRow}
	case "MeshHTTPRoute":
		return columns{[]string{"SOURCE", "TO", "RULES", "BACKENDS"}, httpRouteRow}
	case "Certificate":
		return columns{[]string{"NAMES", "EXPIRES"}, certificateRow}
	case resource.KindRollout:
		return columns{[]string{"PHASE", "STEP", "WEIGHT", "SINCE", "WHY"}, rolloutRow}
	case "Host":
		return columns{[]string{"LISTENER", "NAMES", "ALPN", "SERVICE"}, hostRow}
	case resource.KindTelemetry:
		return columns{[]string{"ENDPOINT", "PROTOCOL", "TLS", "SENDS"}, telemetryRow}
	}
	return kafkaColumns(kind)
}

func listenerRow(o resource.Object) []string {
	l := o.Spec.(*resource.Listener)
	names, mode := 0, ""
	for _, h := range l.Hosts {
		names += len(h.Names)
	}
	if l.TLS != nil {
		mode = orElse(l.TLS.Mode, "passthrough")
		if l.TLS.StartTLS != "" {
			mode += "," + l.TLS.StartTLS
		}
	}
	return []string{l.Address, orElse(l.Protocol, "tcp"), mode, fmt.Sprint(names), l.Service}
}

func serviceRow(o resource.Object) []string {
	s := o.Spec.(*resource.Service)
	check := ""
	if s.HealthCheck != nil {
		check = orElse(s.HealthCheck.Type, "tcp")
	}
	return []string{orElse(s.Protocol, "tcp"), orElse(s.Balancing.Policy, "roundRobin"), fmt.Sprint(len(s.Endpoints)), check}
}

func routeRow(o resource.Object) []string {
	var to, backends []string
	r := o.Spec.(*resource.MeshTCPRoute)
	for _, d := range r.To {
		to = append(to, resource.SubsetText(d.TargetRef.Name, d.TargetRef.Tags))
		for _, r := range d.Rules {
			backends = append(backends, backendTexts(r.Default.BackendRefs)...)
		}
	}
	return []string{sourceText(r.TargetRef), strings.Join(to, ", "), strings.Join(backends, ", ")}
}

// sourceText describes the sources that a route applies to, as --effective
// does: "Mesh", "MeshService web", "MeshSubset {zone=a}".
func sourceText(r *resource.TargetRef) string {
	if r == nil {
		return "Mesh"
	}
	return resource.SubsetText(strings.TrimSpace(r.Kind+" "+r.Name), r.Tags)
}

func hostRow(o resource.Object) []string {
	h := o.Spec.(*resource.Host)
	return []string{h.Listener, strings.Join(h.Names, ","), strings.Join(h.ALPN, ","), h.Service}
}

func telemetryRow(o resource.Object) []string {
	t := o.Spec.(*resource.Telemetry)
	secure, sends := "yes", []string{}
	if t.OTLP.Plain() {
		secure = "no"
	}
	if s := t.Traces; s != nil {
		sends = append(sends, fmt.Sprintf("traces (%v %%)", 100*resource.Share(s.Sample, resource.DefaultSample)))
	}
	if t.Logs != nil {
		sends = append(sends, "logs")
	}
	if t.Metrics != nil {
		sends = append(sends, "metrics")
	}
	return []string{t.OTLP.Endpoint, orElse(t.OTLP.Protocol, resource.OTLPGRPC), secure, strings.Join(sends, ", ")}
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
