package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	yaml "go.yaml.in/yaml/v3"

	"penstock/node/api"
)

func sessionsCommand(t *target) *cobra.Command {
	var req api.SessionsRequest
	var output string
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions of MySQL clients, and why they do not move",
		Long: "Lists the sessions of all nodes that have logged in: those that are to move to another server first, the longest wanted " +
			"before the others, with the cause and why it has not happened yet. A node that does not answer is named.\n" +
			"STATE is idle, busy (a command is being answered), transaction, cursor (or long data that waits for its statement), " +
			"replication, held (by what only its server has, with mysql.move: reconnect), or moving. ID is that of the connection on its node, as in `penstock top`, and not CONNECTION_ID().",
		Example: "  penstock sessions --stuck\n  penstock sessions --service tidb --endpoint 10.0.0.7:4000 -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Limit < 1 || req.Limit > api.MaxSessions {
				return usagef("--limit %d: want 1 to %d", req.Limit, api.MaxSessions)
			}
			list, err := ask[api.Sessions](cmd, t, api.MethodSessions, req)
			if err != nil {
				return err
			}
			warnMissing(cmd, list.Missing)
			switch output {
			case "json":
				return printJSON(cmd.OutOrStdout(), list)
			case "yaml":
				return printYAML(cmd.OutOrStdout(), list)
			}
			printSessions(cmd.OutOrStdout(), list)
			return nil
		},
	}
	sessionFilterFlags(cmd, &req.SessionFilter, "endpoint", "only those at this server, by its address")
	cmd.Flags().BoolVar(&req.Stuck, "stuck", false, "only those that are to move and have not")
	cmd.Flags().IntVar(&req.Limit, "limit", 100, fmt.Sprintf("how many to list at most, up to %d", api.MaxSessions))
	outputFlag(cmd, &output, "table", "json", "yaml")
	cmd.AddCommand(sessionsMoveCommand(t))
	return cmd
}

// sessionFilterFlags adds the flags that select sessions; endpoint is the name of the one
// for the server.
func sessionFilterFlags(cmd *cobra.Command, f *api.SessionFilter, endpoint, usage string) {
	flags := cmd.Flags()
	flags.StringVar(&f.Service, "service", "", "only those of this Service")
	flags.StringVar(&f.Listener, "listener", "", "only those of this Listener")
	flags.StringVar(&f.Endpoint, endpoint, "", usage)
	flags.StringVar(&f.User, "user", "", "only those of clients that logged in as this user")
	flags.StringVar(&f.Node, "node", "", "only those of this node, by name or ID (default all nodes)")
	flags.Uint64Var(&f.ID, "id", 0, "only the one with this ID on its node")
}

// warnMissing names the nodes that did not answer.
func warnMissing(cmd *cobra.Command, missing []string) {
	for _, m := range missing {
		fmt.Fprintf(cmd.ErrOrStderr(), "penstock: not included: node %s\n", sanitize(m))
	}
}

// printYAML writes v as YAML with the names of its JSON.
func printYAML(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return err
	}
	useBlockStyle(&root)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return e.Encode(&root)
}

func printSessions(w io.Writer, list *api.Sessions) {
	rows := make([][]string, 0, len(list.Sessions))
	for i := range list.Sessions {
		s := &list.Sessions[i]
		why := s.Why
		if s.Cause == "" && s.Failure != "" {
			why = "last move: " + s.Failure
		}
		rows = append(rows, []string{
			s.Node, strconv.FormatUint(s.ID, 10), s.Client, sanitizeUntrusted(s.User), s.Listener, s.Service, s.Endpoint,
			s.Age.Round(time.Second).String(), s.State, strconv.Itoa(s.Moves), s.Cause, ageText(s.Since), sanitize(why),
		})
	}
	printTable(w, []string{"NODE", "ID", "CLIENT", "USER", "LISTENER", "SERVICE", "ENDPOINT", "AGE", "STATE", "MOVES", "TO MOVE", "SINCE", "WHY NOT"}, rows)
	if left := list.Total - len(list.Sessions); left > 0 {
		fmt.Fprintf(w, "%d of %d sessions are listed; raise --limit, or select fewer\n", len(list.Sessions), list.Total)
	}
}

func sessionsMoveCommand(t *target) *cobra.Command {
	var req api.MoveSessionsRequest
	var output string
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move sessions of MySQL clients to another server",
		Long: "Asks the selected sessions to move, and prints how many have moved, how many stay and why. They move at their next safe " +
			"point, at most mysql.movesPerSecond of a service in a second on each node; what has not happened within --wait still does. " +
			"A move that fails is not tried again. At least one of the flags that select sessions is required.\n" +
			"Without --to balancing chooses a server other than the present one. Sessions of a service with `mysql.move: never` stay.\n" +
			"It is for operators, and the audit log has it.",
		Example: "  penstock sessions move --service tidb --from 10.0.0.7:4000\n" +
			"  penstock sessions move --service tidb --to 10.0.0.9:4000 --count 50 --wait 1m",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case req.Count < 0:
				return usagef("--count %d: want 1 or more", req.Count)
			case req.Wait < 0:
				return usagef("--wait %v: want 0s or more", req.Wait)
			case req.SessionFilter == api.SessionFilter{} && req.Count == 0:
				return usagef("which sessions? Give --service, --listener, --from, --user, --node, --id or --count")
			}
			longer := *t
			longer.timeout += req.Wait
			r, err := ask[api.MovedSessions](cmd, &longer, api.MethodSessionsMove, req)
			if err != nil {
				return err
			}
			warnMissing(cmd, r.Missing)
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			printMoved(cmd.OutOrStdout(), r)
			return nil
		},
	}
	sessionFilterFlags(cmd, &req.SessionFilter, "from", "only those at this server, by its address")
	cmd.Flags().StringVar(&req.To, "to", "", "address of the server to which they move (default: as balancing chooses)")
	cmd.Flags().IntVar(&req.Count, "count", 0, "how many to move (default all)")
	cmd.Flags().DurationVar(&req.Wait, "wait", 10*time.Second, "how long to wait for them")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func printMoved(w io.Writer, r *api.MovedSessions) {
	parts := []string{fmt.Sprintf("%d moved", r.Moved)}
	for _, p := range []struct {
		n    int
		what string
	}{{r.Stayed, "stay"}, {r.Open, "move later"}, {r.Closed, "have ended"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	fmt.Fprintf(w, "%d sessions asked: %s\n", r.Asked, strings.Join(parts, ", "))
	for _, why := range r.Why {
		fmt.Fprintf(w, "  %d: %s\n", why.Count, sanitize(why.Reason))
	}
}
