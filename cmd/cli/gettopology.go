package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/routing"
)

// showTopology shows services, subsets and listeners, and the routes between
// them.
func showTopology(cmd *cobra.Command, t *target, name string, g *getFlags, w io.Writer) error {
	r, err := ask[api.TopologyResult](cmd, t, api.MethodTopology, api.TopologyRequest{Service: name, Stale: g.stale})
	if err != nil {
		return err
	}
	switch g.output {
	case "json":
		return printJSON(w, r)
	case "dot":
		_, err := io.WriteString(w, topologyDOT(&r.Topology))
		return err
	}
	printEdges(w, r.Edges)
	if r.Truncated {
		fmt.Fprintf(cmd.ErrOrStderr(), "the output is cut off at %d lines\n", api.MaxTopology)
	}
	return nil
}

// printEdges prints edges as a table.
func printEdges(w io.Writer, edges []routing.TopologyEdge) {
	rows := make([][]string, 0, len(edges))
	for i := range edges {
		e := &edges[i]
		rows = append(rows, []string{nodeText(&e.From), nodeText(&e.To), edgeFor(e), e.Policy, e.Source, shareText(e), problemText(e)})
	}
	printTable(w, []string{"FROM", "TO", "FOR", "ROUTE", "SOURCE", "SHARE", "PROBLEM"}, rows)
}

func nodeText(n *routing.TopologyNode) string { return n.Kind + " " + n.Text() }

// edgeFor says which names or requests take an edge.
func edgeFor(e *routing.TopologyEdge) string {
	text := strings.Join(append(slices.Clone(e.Hosts), e.Requests...), ", ")
	if e.MoreHosts > 0 {
		text += fmt.Sprintf(" and %d more", e.MoreHosts)
	}
	return text
}

func shareText(e *routing.TopologyEdge) string {
	if e.Policy == "" {
		return ""
	}
	return fmt.Sprintf("%.4g %%", e.Share*100)
}

func problemText(e *routing.TopologyEdge) string {
	if e.Closed != "" {
		return "closed: " + e.Closed
	}
	return e.Skipped
}

// topologyDOT returns the topology as a graph for Graphviz.
func topologyDOT(t *routing.Topology) string {
	var b strings.Builder
	b.WriteString("digraph penstock {\n  rankdir=LR;\n  node [shape=box];\n")
	drawn := map[string]bool{}
	node := func(n *routing.TopologyNode, more string) {
		id := nodeID(n)
		if drawn[id] {
			return
		}
		drawn[id] = true
		fmt.Fprintf(&b, "  %s [label=%s%s];\n", quoteDOT(id), quoteDOT(n.Text()+more), shapes[n.Kind])
	}
	for i := range t.Listeners {
		l := &t.Listeners[i]
		node(&routing.TopologyNode{Kind: routing.NodeListener, Name: l.Name}, "\n"+l.Address)
	}
	for i := range t.Services {
		s := &t.Services[i]
		more := fmt.Sprintf("\n%s, %d/%d usable", s.Protocol, s.Usable, s.Endpoints)
		node(&routing.TopologyNode{Kind: routing.NodeService, Name: s.Name}, more)
	}
	for i := range t.Edges {
		e := &t.Edges[i]
		node(&e.From, "")
		node(&e.To, "")
		style := ""
		if e.Share == 0 && e.Policy != "" || e.From.Kind == routing.NodeProxies {
			style = ", style=dashed"
		}
		fmt.Fprintf(&b, "  %s -> %s [label=%s%s];\n", quoteDOT(nodeID(&e.From)), quoteDOT(nodeID(&e.To)), quoteDOT(edgeLabel(e)), style)
	}
	b.WriteString("}\n")
	return b.String()
}

// shapes are the shapes of nodes that are no boxes.
var shapes = map[string]string{
	routing.NodeListener: ", shape=cds",
	routing.NodeSubset:   ", style=rounded",
	routing.NodeProxies:  ", shape=component",
}

func nodeID(n *routing.TopologyNode) string { return n.Kind + "/" + n.Text() }

// maxLabelHosts bounds the names in the label of an edge.
const maxLabelHosts = 3

// edgeLabel returns the text at an edge: the first names, or route and share.
func edgeLabel(e *routing.TopologyEdge) string {
	if e.Policy != "" {
		return strings.Join(slices.DeleteFunc([]string{e.Policy, shareText(e), cmp.Or(problemText(e), edgeFor(e))}, isEmpty), "\n")
	}
	hosts := e.Hosts[:min(len(e.Hosts), maxLabelHosts)]
	text := strings.Join(hosts, "\n")
	if more := len(e.Hosts) - len(hosts) + e.MoreHosts; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return text
}

func isEmpty(s string) bool { return s == "" }

// quoteDOT returns a string of Graphviz's language. A backslash begins an escape
// there, and control characters end up in the drawing.
func quoteDOT(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r == 0x7f:
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
