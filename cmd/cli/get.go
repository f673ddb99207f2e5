package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node"
	"penstock/node/admin"
	"penstock/routing/resource"
)

func getCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "get KIND [NAME]",
		Short:   "Show resources; secrets stay hidden",
		Example: "  penstock get services\n  penstock get listener edge -o yaml",
		Args:    argRange(1, 2, "KIND [NAME]"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var kinds []string
			if len(args) == 0 {
				for _, k := range node.Kinds() {
					kinds = append(kinds, k.Plural)
				}
			}
			return kinds, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req := admin.GetRequest{Kind: args[0]}
			if len(args) == 2 {
				req.Name = args[1]
			}
			r, err := ask[admin.GetResult](cmd, t, admin.MethodGet, req)
			if err != nil {
				return err
			}
			return printResources(cmd.OutOrStdout(), r, output, req.Name != "")
		},
	}
	outputFlag(cmd, &output, "table", "yaml", "json")
	return cmd
}

func printResources(w io.Writer, r *admin.GetResult, output string, one bool) error {
	objects := make([]resource.Object, len(r.Documents))
	raw := make([]json.RawMessage, len(r.Documents))
	for i, d := range r.Documents {
		o, err := resource.Restore(d.Data, node.Kinds())
		if err != nil {
			return fmt.Errorf("%s/%s: the node is of another version than this command: %w", d.Kind, d.Name, err)
		}
		objects[i], raw[i] = o, d.Data
	}
	switch {
	case output == "json" && one:
		return printJSON(w, raw[0])
	case output == "json":
		return printJSON(w, raw)
	case output == "yaml":
		for i, o := range objects {
			if i > 0 {
				fmt.Fprintln(w, "---")
			}
			fmt.Fprintf(w, "%s", resource.EncodeYAML(o))
		}
		return nil
	}
	columns := columnsOf(r.Kind)
	rows := make([][]string, len(objects))
	for i, o := range objects {
		rows[i] = append([]string{o.Name}, columns.row(o)...)
	}
	printTable(w, append([]string{"NAME"}, columns.heading...), rows)
	return nil
}

// columns are what a table tells of a kind beside the name.
type columns struct {
	heading []string
	row     func(resource.Object) []string
}

func columnsOf(kind string) columns {
	switch kind {
	case "Listener":
		return columns{[]string{"ADDRESS", "PROTOCOL", "TLS", "NAMES", "SERVICE"}, listenerRow}
	case "Service":
		return columns{[]string{"PROTOCOL", "BALANCING", "ENDPOINTS", "CHECK"}, serviceRow}
	case "MeshTCPRoute":
		return columns{[]string{"TO", "BACKENDS"}, routeRow}
	case "Certificate":
		return columns{[]string{"NAMES", "EXPIRES"}, certificateRow}
	case "Host":
		return columns{[]string{"LISTENER", "NAMES", "ALPN", "SERVICE"}, hostRow}
	}
	return columns{nil, func(resource.Object) []string { return nil }}
}

func listenerRow(o resource.Object) []string {
	l := o.Spec.(*resource.Listener)
	names, mode := 0, ""
	for _, h := range l.Hosts {
		names += len(h.Names)
	}
	if l.TLS != nil {
		mode = orElse(l.TLS.Mode, "passthrough")
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
	for _, d := range o.Spec.(*resource.MeshTCPRoute).To {
		to = append(to, d.TargetRef.Name)
		for _, r := range d.Rules {
			for _, b := range r.Default.BackendRefs {
				weight := 1
				if b.Weight != nil {
					weight = *b.Weight
				}
				text := fmt.Sprintf("%s:%d", b.Name, weight)
				if len(b.Tags) > 0 {
					text = fmt.Sprintf("%s%s:%d", b.Name, strings.TrimPrefix(fmt.Sprint(b.Tags), "map"), weight)
				}
				backends = append(backends, text)
			}
		}
	}
	return []string{strings.Join(to, ","), strings.Join(backends, " ")}
}

func certificateRow(o resource.Object) []string {
	leaf, err := o.Spec.(*resource.Certificate).Leaf()
	if err != nil {
		return []string{"", ""}
	}
	return []string{strings.Join(leaf.DNSNames, ","), leaf.NotAfter.UTC().Format(time.DateOnly)}
}

func hostRow(o resource.Object) []string {
	h := o.Spec.(*resource.Host)
	return []string{h.Listener, strings.Join(h.Names, ","), strings.Join(h.ALPN, ","), h.Service}
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
