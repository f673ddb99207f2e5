package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

func connectionsCommand(t *target) *cobra.Command {
	var req api.ConnectionsRequest
	var output string
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "List the connections of clients: open ones, or those that have ended",
		Long: "Lists the open connections of all nodes, the newest first. With --ended, --failures or --reason it lists those that have " +
			"ended, as far as the nodes remember them: each the last 4096 failures, and the last 4096 that ended as they should. " +
			"--failures leaves out those that ended by a FIN. A node that does not answer is named.\n" +
			"CLIENT is the address, WHO the name that the client goes by: its identity, user, client ID or server name. " +
			"`penstock trace NODE/ID` shows what one connection did.",
		Example: "  penstock connections --service apps --sort bytes --limit 20\n" +
			"  penstock connections --client 10.1.0.0/16 -o json\n  penstock connections --failures --reason connect_refused",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Limit < 1 || req.Limit > api.MaxConnections {
				return usagef("--limit %d: want 1 to %d", req.Limit, api.MaxConnections)
			}
			if !slices.Contains(connectionSorts, req.Sort) {
				return usagef("--sort %s: want %s", sanitize(req.Sort), strings.Join(connectionSorts, ", "))
			}
			req.Ended = req.Ended || req.Failures || req.Reason != ""
			list, err := ask[api.Connections](cmd, t, api.MethodConnections, req)
			if err != nil {
				return err
			}
			warnMissing(cmd, list.Missing)
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), list)
			}
			printConnections(cmd.OutOrStdout(), list, req.Ended)
			return nil
		},
	}
	connectionFilterFlags(cmd, t, &req.ConnectionFilter)
	f := cmd.Flags()
	f.BoolVar(&req.Ended, "ended", false, "those that have ended")
	f.BoolVar(&req.Failures, "failures", false, "those that ended otherwise than by a FIN")
	f.StringVar(&req.Reason, "reason", "", "those that ended for this reason, such as connect_refused")
	f.StringVar(&req.Sort, "sort", api.SortNewest, "what comes first: "+strings.Join(connectionSorts, ", "))
	f.IntVar(&req.Limit, "limit", 100, fmt.Sprintf("how many to list at most, up to %d", api.MaxConnections))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(connectionSorts, cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd, &output, "table", "json")
	cmd.AddCommand(connectionsCloseCommand(t))
	return cmd
}

var connectionSorts = []string{api.SortNewest, api.SortAge, api.SortIdle, api.SortBytes}

// connectionFilterFlags adds the flags that select connections.
func connectionFilterFlags(cmd *cobra.Command, t *target, f *api.ConnectionFilter) {
	flags := cmd.Flags()
	flags.StringVar(&f.Listener, "listener", "", "only those of this Listener")
	flags.StringVar(&f.Service, "service", "", "only those of this Service or VirtualCluster")
	flags.StringVar(&f.Endpoint, "endpoint", "", "only those at this endpoint, by its address")
	flags.StringVar(&f.Client, "client", "", "only those from this IP address or network")
	flags.StringVar(&f.Who, "who", "", "only those of this server name, identity, user, Kafka principal or client ID")
	flags.StringVar(&f.Node, "node", "", "only those of this node, by name or ID (default all nodes)")
	flags.Uint64Var(&f.ID, "id", 0, "only the one with this ID on its node")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return t.nodeNames(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	})
}

func printConnections(w io.Writer, list *api.Connections, ended bool) {
	heading := []string{"NODE", "ID", "CLIENT", "WHO", "LISTENER", "SERVICE", "ENDPOINT", "PHASE", "IN", "OUT", "AGE", "IDLE"}
	if ended {
		heading = []string{"NODE", "ID", "CLIENT", "WHO", "LISTENER", "SERVICE", "ENDPOINT", "IN", "OUT", "LASTED", "ENDED", "REASON", "ERROR"}
	}
	rows := make([][]string, 0, len(list.Connections))
	for i := range list.Connections {
		c := &list.Connections[i]
		row := []string{
			c.Node, strconv.FormatUint(c.ID, 10), c.Client, sanitizeUntrusted(whoOf(c)), c.Listener, c.Service, c.Endpoint,
		}
		in, out := bytesText(float64(c.BytesIn)), bytesText(float64(c.BytesOut))
		if ended {
			row = append(row, in, out, roundTime(c.Age), c.Ended.Format(time.TimeOnly), c.Reason, sanitize(c.Error))
		} else {
			row = append(row, c.Phase, in, out, roundTime(c.Age), roundTime(c.Idle))
		}
		rows = append(rows, row)
	}
	printTable(w, heading, rows)
	if left := list.Total - len(list.Connections); left > 0 {
		fmt.Fprintf(w, "%d of %d connections are listed; raise --limit, or select fewer\n", len(list.Connections), list.Total)
	}
}

// whoOf returns the most telling name of a client.
func whoOf(c *api.Connection) string {
	for _, who := range []string{c.Identity, c.User, c.ClientID} {
		if who != "" {
			return who
		}
	}
	return c.SNI
}

// roundTime formats a time with the precision that people read.
func roundTime(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func connectionsCloseCommand(t *target) *cobra.Command {
	var req api.CloseConnectionsRequest
	var output string
	cmd := &cobra.Command{
		Use:   "close",
		Short: "Close connections of clients",
		Long: "Closes the selected connections on all nodes, with the reason closed_by_operator, and prints how many they are. " +
			"At least one of the flags that select connections is required; to close all of a node, use `penstock drain`.\n" +
			"With --over they are closed evenly over that time, the most idle first, and each between two messages or requests, " +
			"if there is such a moment before the time is over. Without it they are closed at once.\n" +
			"It is for operators, and the audit log has it.",
		Example: "  penstock connections close --node n1 --id 4711\n  penstock connections close --endpoint 10.0.0.7:5432 --over 1m",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case req.ConnectionFilter == api.ConnectionFilter{}:
				return usagef("which connections? Give --listener, --service, --endpoint, --client, --who, --node or --id")
			case req.Over < 0 || req.Over > api.MaxCloseWindow:
				return usagef("--over %v: want 0s to %v", req.Over, api.MaxCloseWindow)
			}
			r, err := ask[api.ClosedConnections](cmd, t, api.MethodConnectionsClose, req)
			if err != nil {
				return err
			}
			warnMissing(cmd, r.Missing)
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			what := "connections are"
			if r.Closing == 1 {
				what = "connection is"
			}
			text := fmt.Sprintf("%d %s closed", r.Closing, what)
			if req.Over > 0 && r.Closing > 0 {
				text += fmt.Sprintf(" within %v", req.Over)
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
			return nil
		},
	}
	connectionFilterFlags(cmd, t, &req.ConnectionFilter)
	cmd.Flags().DurationVar(&req.Over, "over", 0, "time over which they are closed (default at once)")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func traceCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "trace CONNECTION",
		Short: "Show what one connection did, and the decision for it",
		Long: "Shows when the connection was accepted, identified, decided and connected, when its first bytes came, and why it ended; " +
			"then the decision for such a connection, step by step, as the node decides now: `penstock explain` with its listener, " +
			"client, server name, identity and user. It may differ from what the connection got when it came. ALPN is not known any more.\n" +
			"CONNECTION is NODE/ID as `penstock connections` lists them, or the ID alone if only one node knows it. A connection that has " +
			"ended is shown as long as its node remembers it.",
		Example: "  penstock trace n1/4711\n  penstock trace 4711 -o json",
		Args:    argRange(1, 1, "CONNECTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := connectionOf(args[0])
			if err != nil {
				return err
			}
			r, err := ask[api.Trace](cmd, t, api.MethodTrace, req)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return printTrace(cmd.OutOrStdout(), r)
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return withPrefix(t.connectionNames(cmd), prefix), cobra.ShellCompDirectiveNoFileComp
	}
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// connectionNames completes CONNECTION with the newest ones.
func (t *target) connectionNames(cmd *cobra.Command) []string {
	quick := *t
	quick.timeout = completionTimeout
	list, err := ask[api.Connections](cmd, &quick, api.MethodConnections, api.ConnectionsRequest{Limit: 100})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Connections {
		names = append(names, fmt.Sprintf("%s/%d", list.Connections[i].Node, list.Connections[i].ID))
	}
	return names
}

// connectionOf parses NODE/ID or ID.
func connectionOf(text string) (api.TraceRequest, error) {
	node, number, found := strings.Cut(text, "/")
	if !found {
		node, number = "", text
	}
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil || id == 0 || found && node == "" {
		return api.TraceRequest{}, usagef("connection %s: want NODE/ID or ID, as penstock connections lists them", sanitize(text))
	}
	return api.TraceRequest{Node: node, ID: id}, nil
}

func printTrace(w io.Writer, r *api.Trace) error {
	c := &r.Connection
	state := c.Phase
	if c.Reason != "" {
		state = "ended"
	}
	fmt.Fprintf(w, "%s/%d from %s, %s, %s in, %s out\n\n", c.Node, c.ID, orElse(c.Client, "a unix socket"), state,
		bytesText(float64(c.BytesIn)), bytesText(float64(c.BytesOut)))
	rows := make([][]string, 0, len(r.Events))
	for i := range r.Events {
		e := &r.Events[i]
		rows = append(rows, []string{e.At.Local().Format("2006-01-02 15:04:05.000"), roundTime(e.After), e.Name, sanitize(e.Text)})
	}
	printTable(w, []string{"TIME", "AFTER", "EVENT", "WHAT"}, rows)
	for i := range r.Logs {
		if i == 0 {
			fmt.Fprintln(w, "\nIn the log:")
		}
		e := &r.Logs[i]
		line := e.At.Local().Format("15:04:05.000") + " " + e.Level + " " + e.Message
		for _, a := range e.Attrs {
			line += " " + a.Key + "=" + a.Value
		}
		fmt.Fprintf(w, "  %s\n", sanitize(line))
	}
	if r.Decision == nil {
		_, err := fmt.Fprintln(w, "\nThe node cannot decide about such a connection now: its listener is gone.")
		return err
	}
	fmt.Fprintln(w, "\nThe decision for such a connection now:")
	for line := range strings.Lines(r.Decision.Text()) { // which has what the client said
		if _, err := fmt.Fprintln(w, sanitize(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}
