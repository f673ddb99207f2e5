package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

func statusCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, listeners, services and their health",
		Long: "If the node at --addr has no leader, it says so first and shows what it knows; the exit code is still 0, because it " +
			"serves traffic.\n" +
			"Shows that node's listeners, those that failed on other nodes, and the services as that node sees them. LAG is the " +
			"number of changes that a node does not act on yet. WARNING lines at the end show what a node is about to run out of.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask[api.Status](cmd, t, api.MethodStatus, api.Empty{})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			printStatus(cmd.OutOrStdout(), r)
			return nil
		},
	}
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func printStatus(w io.Writer, s *api.Status) {
	switch {
	case s.Alone != "":
		fmt.Fprintf(w, "ALONE: %s\n\n", s.Alone)
	case s.Leader == "":
		fmt.Fprintf(w, "NO LEADER: changes are refused, traffic is served\n\n")
	}
	var rows [][]string
	for _, n := range s.Nodes {
		rows = append(rows, []string{
			n.Name, n.Role, n.State,
			fmt.Sprint(n.AppliedIndex), fmt.Sprint(n.Lag), fmt.Sprint(n.Resources), fmt.Sprint(n.Connections),
			n.Address, n.Uptime, n.Version,
		})
	}
	printTable(w, []string{"NODE", "ROLE", "STATE", "APPLIED", "LAG", "RESOURCES", "CONNECTIONS", "ADDRESS", "UPTIME", "VERSION"}, rows)
	printListeners(w, s)
	printServices(w, s.Services)
	if len(s.Providers) > 0 {
		fmt.Fprintln(w)
		printProviders(w, s.Providers)
	}
	printProxies(w, s.Proxies)
	if len(s.Rollouts) > 0 {
		fmt.Fprintln(w)
		printRollouts(w, s.Rollouts)
	}
	printVirtualClusters(w, s.VirtualClusters)
	if len(s.NotAccepted) > 0 {
		fmt.Fprintln(w)
	}
	for _, text := range s.NotAccepted {
		fmt.Fprintln(w, text)
	}
	if len(s.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	for _, text := range s.Warnings {
		fmt.Fprintln(w, "WARNING: "+text)
	}
}

func printVirtualClusters(w io.Writer, clusters []api.VirtualClusterStatus) {
	if len(clusters) == 0 {
		return
	}
	var rows [][]string
	for _, c := range clusters {
		rows = append(rows, []string{c.Name, "", "", c.PhysicalCluster, "", c.Error})
		for _, b := range c.Brokers {
			rows = append(rows, []string{"", b.Name, b.Endpoint, b.Address, fmt.Sprint(b.Connections), b.Error})
		}
	}
	fmt.Fprintln(w)
	printTable(w, []string{"VIRTUAL CLUSTER", "BROKER", "ENDPOINT", "PHYSICAL", "CONNECTIONS", "ERROR"}, rows)
}

// printListeners adds a NODE column if there is more than one node.
func printListeners(w io.Writer, s *api.Status) {
	if len(s.Listeners) == 0 {
		return
	}
	heading := []string{"LISTENER", "ADDRESS", "STATE", "CONNECTIONS", "TOTAL", "ERROR"}
	several := len(s.Nodes) > 1
	if several {
		heading = append([]string{"LISTENER", "NODE"}, heading[1:]...)
	}
	var rows [][]string
	for _, l := range s.Listeners {
		row := []string{l.Name}
		if several {
			row = append(row, l.Node)
		}
		rows = append(rows, append(row,
			l.Address, l.State, fmt.Sprint(l.Connections), fmt.Sprint(l.Total),
			strings.ReplaceAll(l.Error, "\n", "; ")))
	}
	fmt.Fprintln(w)
	printTable(w, heading, rows)
}

func printServices(w io.Writer, services []api.ServiceStatus) {
	if len(services) == 0 {
		return
	}
	var rows [][]string
	for _, svc := range services {
		rows = append(rows, []string{svc.Name, "", svc.State, fmt.Sprint(svc.Connections), "", ""})
		for _, e := range svc.Endpoints {
			reason := strings.TrimPrefix(e.Reason+"; "+e.Load, "; ")
			rows = append(rows, []string{"", endpointText(e), e.Health, fmt.Sprint(e.Connections), e.Error, strings.TrimSuffix(reason, "; ")})
		}
	}
	fmt.Fprintln(w)
	printTable(w, []string{"SERVICE", "ENDPOINT", "HEALTH", "CONNECTIONS", "ERROR", "REASON"}, rows)
}

func endpointText(e api.EndpointStatus) string {
	if e.Resolved == "" || e.Resolved == e.Address {
		return e.Address
	}
	return e.Address + " (" + e.Resolved + ")"
}
