package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/admin"
	"penstock/routing"
)

func deleteCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use:     "delete KIND NAME",
		Short:   "Delete a resource; refused while another one uses it",
		Example: "  penstock delete service apps",
		Args:    argRange(2, 2, "KIND NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[admin.DeleteResult](cmd, t, admin.MethodDelete, admin.DeleteRequest{Kind: args[0], Name: args[1]})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s/%s deleted\n", r.Kind, r.Name)
			return nil
		},
	}
}

func explainCommand(t *target) *cobra.Command {
	var req admin.ExplainRequest
	var sni, output, node string
	cmd := &cobra.Command{
		Use:   "explain --listener L",
		Short: "Show the decision for a connection, step by step",
		Long: "Walks the very steps that a connection takes (listener, destination, policy, weights, endpoints) and says what each one saw.\n" +
			"Without --sni the hello has no server name.",
		Example: "  penstock explain --listener edge --sni api.example.com",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Listener == "" {
				return usagef("explain needs --listener; `penstock get listeners` lists them")
			}
			if cmd.Flags().Changed("sni") {
				req.SNI = &sni
			}
			if err := checkNode(cmd, t, node); err != nil {
				return err
			}
			r, err := ask[routing.Explanation](cmd, t, admin.MethodExplain, req)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), r.Text())
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Listener, "listener", "", "the listener that it comes to")
	f.StringVar(&sni, "sni", "", "server name of its ClientHello")
	f.StringSliceVar(&req.ALPN, "alpn", nil, "protocols that it offers")
	f.StringVar(&req.Client, "client", "", "IP address that it comes from")
	f.StringToStringVar(&req.Tags, "source", nil, "further tags of its source, k=v,...")
	f.StringVar(&node, "node", "", "the node that it comes to; default the one asked")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// checkNode makes sure that the node asked is the one meant.
func checkNode(cmd *cobra.Command, t *target, name string) error {
	if name == "" {
		return nil
	}
	members, err := ask[admin.Members](cmd, t, admin.MethodMembers, admin.Empty{})
	if err != nil {
		return err
	}
	for _, m := range *members {
		if m.Name == name || m.ID == name {
			return nil
		}
	}
	return fmt.Errorf("there is no node %q; `penstock members` lists them", name)
}

func membersCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the nodes",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask[admin.Members](cmd, t, admin.MethodMembers, admin.Empty{})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			var rows [][]string
			for _, m := range *r {
				rows = append(rows, []string{m.Name, m.ID, m.Role, m.State, m.Address, m.Version, strconv.FormatInt(m.Connections, 10)})
			}
			printTable(cmd.OutOrStdout(), []string{"NAME", "ID", "ROLE", "STATE", "ADDRESS", "VERSION", "CONNECTIONS"}, rows)
			return nil
		},
	}
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func statusCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, listeners, services and their health",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask[admin.Status](cmd, t, admin.MethodStatus, admin.Empty{})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			printStatus(cmd, r)
			return nil
		},
	}
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func printStatus(cmd *cobra.Command, s *admin.Status) {
	w := cmd.OutOrStdout()
	var rows [][]string
	for _, n := range s.Nodes {
		rows = append(rows, []string{n.Name, n.Role, n.State, fmt.Sprint(n.AppliedIndex), fmt.Sprint(n.Resources), fmt.Sprint(n.Connections), n.Uptime, n.Version})
	}
	printTable(w, []string{"NODE", "ROLE", "STATE", "APPLIED", "RESOURCES", "CONNECTIONS", "UPTIME", "VERSION"}, rows)
	if len(s.Listeners) > 0 {
		rows = nil
		for _, l := range s.Listeners {
			rows = append(rows, []string{l.Name, l.Address, l.State, fmt.Sprint(l.Connections), fmt.Sprint(l.Total), l.Error})
		}
		fmt.Fprintln(w)
		printTable(w, []string{"LISTENER", "ADDRESS", "STATE", "CONNECTIONS", "TOTAL", "ERROR"}, rows)
	}
	if len(s.Services) > 0 {
		rows = nil
		for _, svc := range s.Services {
			rows = append(rows, []string{svc.Name, "", svc.State, fmt.Sprint(svc.Connections), ""})
			for _, e := range svc.Endpoints {
				rows = append(rows, []string{"", endpointText(e), e.Health, fmt.Sprint(e.Connections), e.Error})
			}
		}
		fmt.Fprintln(w)
		printTable(w, []string{"SERVICE", "ENDPOINT", "HEALTH", "CONNECTIONS", "ERROR"}, rows)
	}
}

func endpointText(e admin.EndpointStatus) string {
	if e.Resolved == "" || e.Resolved == e.Address {
		return e.Address
	}
	return e.Address + " (" + e.Resolved + ")"
}

func drainCommand(t *target) *cobra.Command {
	var over time.Duration
	cmd := &cobra.Command{
		Use:   "drain [NODE]",
		Short: "Take a node out of service: no new connections, then close the others over a window",
		Args:  argRange(0, 1, "[NODE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := admin.DrainRequest{Node: strings.Join(args, "")}
			if cmd.Flags().Changed("over") {
				if over < 0 {
					return usagef("--over %v: want 0s or more", over)
				}
				req.Over = &over
			}
			r, err := ask[admin.DrainResult](cmd, t, admin.MethodDrain, req)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s drains: %d connections, closed over %s\n", r.Node, r.Connections, r.Over)
			return nil
		},
	}
	cmd.Flags().DurationVar(&over, "over", 0, "window in which connections are closed (default the node's --drain-timeout)")
	return cmd
}

func versionCommand(t *target) *cobra.Command {
	var client bool
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command, and of the node that --addr names",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			versions := map[string]string{"client": Build()}
			if !client && cmd.Flags().Changed("addr") {
				r, err := ask[admin.Version](cmd, t, admin.MethodVersion, admin.Empty{})
				if err != nil {
					return err
				}
				versions["node"] = r.Version
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), versions)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "penstock %s\n", versions["client"])
			if v := versions["node"]; v != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "node     %s\n", v)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "this command's version only")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
