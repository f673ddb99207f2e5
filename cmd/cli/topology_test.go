package cli

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing"
)

// unquoteDOT reads a string of Graphviz's language and returns what follows it.
func unquoteDOT(t *rapid.T, s string) (rest string) {
	if s == "" || s[0] != '"' {
		t.Fatalf("%q is no string", s)
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[i+1:]
		case '\n', 0:
			t.Fatalf("a control character in %q", s)
		}
	}
	t.Fatalf("%q has no end", s)
	return ""
}

// Whatever the names, each line of a graph is a node or an edge.
func TestDOTIsValidWithAnyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String()
		node := func(label string) routing.TopologyNode {
			n := routing.TopologyNode{Kind: rapid.SampledFrom([]string{"listener", "service", "subset"}).Draw(t, label), Name: name.Draw(t, "name")}
			if rapid.Bool().Draw(t, "tagged") {
				n.Tags = map[string]string{name.Draw(t, "key"): name.Draw(t, "value")}
			}
			return n
		}
		g := routing.Topology{
			Services:  []routing.TopologyService{{Name: name.Draw(t, "service"), Protocol: "tcp"}},
			Listeners: []routing.TopologyListener{{Name: name.Draw(t, "listener"), Address: name.Draw(t, "address")}},
			Edges:     []routing.TopologyEdge{{From: node("from"), To: node("to"), Hosts: []string{name.Draw(t, "host")}, Policy: name.Draw(t, "policy")}},
		}
		lines := strings.Split(strings.TrimSuffix(topologyDOT(&g), "\n"), "\n")
		edges := 0
		for _, line := range lines[3 : len(lines)-1] {
			rest := unquoteDOT(t, strings.TrimPrefix(line, "  "))
			if to, ok := strings.CutPrefix(rest, " -> "); ok {
				edges++
				rest = unquoteDOT(t, to)
			}
			label, ok := strings.CutPrefix(rest, " [label=")
			if !ok {
				t.Fatalf("line %q has no label", line)
			}
			if rest = unquoteDOT(t, label); !strings.HasSuffix(rest, "];") || strings.Contains(rest, `"`) {
				t.Fatalf("line %q ends with %q", line, rest)
			}
		}
		if edges != 1 || lines[len(lines)-1] != "}" {
			t.Fatalf("the graph is\n%s", strings.Join(lines, "\n"))
		}
	})
}
