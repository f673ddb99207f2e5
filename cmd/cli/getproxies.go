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

// isProxies reports whether KIND asks for the clients of the discovery servers.
func isProxies(kind string) bool {
	return strings.EqualFold(kind, "proxies") || strings.EqualFold(kind, "proxy")
}

// getProxies shows the proxies of a service, or of all, on all nodes.
func getProxies(cmd *cobra.Command, t *target, service, output string) error {
	if output != "table" && output != "wide" && output != "json" {
		return usagef("-o %s: proxies are shown as table, wide or json", output)
	}
	list, err := ask[api.Proxies](cmd, t, api.MethodProxies, api.ProxiesRequest{Service: service})
	if err != nil {
		return err
	}
	if output == "json" {
		return printJSON(cmd.OutOrStdout(), list)
	}
	heading := []string{"SERVICE", "NODE", "ADDRESS", "CLIENT", "SINCE", "STATE"}
	if output == "wide" {
		heading = append(heading, "IDENTITY", "ID", "ZONE", "ANNOUNCED", "VERSIONS")
	}
	rows := make([][]string, 0, len(list.Proxies))
	for i := range list.Proxies {
		p := &list.Proxies[i]
		row := []string{p.Service, p.Node, p.Address, p.Agent, ageText(&p.Since), proxyState(p)}
		if output == "wide" {
			row = append(row, p.Identity, p.ID, p.Zone, p.Announced, versionsText(p))
		}
		rows = append(rows, row)
	}
	printTable(cmd.OutOrStdout(), heading, rows)
	for _, node := range list.Silent {
		fmt.Fprintf(cmd.OutOrStdout(), "node %s did not answer: its proxies are missing\n", node)
	}
	return nil
}

// proxyState says what is wrong with a proxy, and otherwise that it is up to
// date.
func proxyState(p *api.Proxy) string {
	var wrong []string
	for i := range p.Types {
		switch t := &p.Types[i]; {
		case t.Refusing:
			text := "refuses " + t.Type
			if t.RejectedAt != nil {
				text += " since " + ageText(t.RejectedAt)
			}
			wrong = append(wrong, text+": "+sanitize(t.Rejected))
		case t.Behind != nil:
			wrong = append(wrong, t.Type+" behind for "+time.Since(*t.Behind).Round(time.Millisecond).String())
		}
	}
	if len(wrong) == 0 {
		return "ok"
	}
	return strings.Join(wrong, "; ")
}

// versionsText shows the version of each type that a proxy has, and the one that
// it was sent if that is another one.
func versionsText(p *api.Proxy) string {
	parts := make([]string, 0, len(p.Types))
	for i := range p.Types {
		t := &p.Types[i]
		text := t.Type + "=" + orElse(sanitize(t.Accepted), "none")
		if t.Sent != "" && t.Sent != t.Accepted {
			text += " (sent " + t.Sent + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}

// printProxies shows how many proxies are connected to each node, and what is
// wrong with some.
func printProxies(w io.Writer, nodes []api.ProxiesStatus) {
	if len(nodes) == 0 {
		return
	}
	fmt.Fprintln(w)
	var rows [][]string
	for i := range nodes {
		n := &nodes[i]
		rows = append(rows, []string{n.Node, "", strconv.Itoa(n.Connected), strconv.Itoa(n.Refusing), strconv.Itoa(n.Behind), ""})
		for j := range n.Problems {
			p := &n.Problems[j]
			rows = append(rows, []string{"  " + p.Address, p.Service, "", "", "", proxyState(p)})
		}
	}
	printTable(w, []string{"PROXIES", "SERVICE", "CONNECTED", "REFUSING", "BEHIND", "PROBLEM"}, rows)
}
