package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

func logsCommand(t *target) *cobra.Command {
	var req api.LogsRequest
	var since, connection, output string
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the last lines of the logs of all nodes",
		Long: "The lines are those that the nodes have in memory (--log-memory of penstock start): of their own logs, and of the access " +
			"log. Failures are there with any --access-log. They are in order of time, by the clocks of the nodes; -o json has all values, " +
			"which clients may have chosen. Lines have addresses of clients.\n" +
			"With --follow, new lines are printed until Ctrl-C.",
		Example: "  penstock logs --reason no_route --since 10m\n  penstock logs --follow --service shop\n  penstock logs --own --level warn\n" +
			"  penstock logs --connection n1/4711",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Since, err = sinceTime(since, time.Now()); err != nil {
				return err
			}
			if err := setConnection(&req, connection); err != nil {
				return err
			}
			p := logsPrinter{w: cmd.OutOrStdout(), errors: cmd.ErrOrStderr(), json: output == "json", follow: req.Follow}
			if err := follow(cmd.Context(), t, api.MethodLogs, req, p.item); err != nil {
				return err
			}
			return p.end()
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&req.Follow, "follow", "f", false, "go on with new lines; -o json then prints one object per line")
	f.StringVar(&since, "since", "", "only lines of this time and later: 10m, 24h, or 2026-01-31T08:00:00Z")
	f.StringVar(&req.Node, "node", "", "only lines of this node, by name or ID")
	f.StringVar(&req.Service, "service", "", "only lines about this service")
	f.StringVar(&req.Listener, "listener", "", "only lines about this listener")
	f.StringVar(&req.Reason, "reason", "", "only connections and requests that ended for this reason")
	f.StringVar(&req.Level, "level", "", "only lines of this level or above: debug, info, warn or error; the access log has info")
	f.StringVar(&connection, "connection", "", "only lines about this connection: its ID, or NODE/ID")
	f.StringVar(&req.Text, "text", "", "only lines whose message or a value contains this, in any case")
	f.BoolVar(&req.Access, "access", false, "only lines about connections and requests")
	f.BoolVar(&req.Own, "own", false, "only the nodes' own lines")
	f.IntVar(&req.Limit, "limit", 200, fmt.Sprintf("the last lines, 1 to %d", api.MaxLogs))
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

// setConnection selects a connection: "ID" or "NODE/ID".
func setConnection(req *api.LogsRequest, text string) error {
	if text == "" {
		return nil
	}
	id := text
	if node, rest, ok := strings.Cut(text, "/"); ok {
		if req.Node != "" && req.Node != node {
			return usagef("--connection %s: is of node %s, but --node is %s", sanitizeUntrusted(text), sanitizeUntrusted(node), sanitizeUntrusted(req.Node))
		}
		req.Node, id = node, rest
	}
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil || n == 0 {
		return usagef("--connection %s: want the ID of a connection, or NODE/ID, such as n1/4711", sanitizeUntrusted(text))
	}
	req.Connection = n
	return nil
}

// logsPrinter prints the items of the logs.
type logsPrinter struct {
	w, errors    io.Writer
	json, follow bool
	entries      []api.LogEntry // as JSON without follow: until the end
	headed       bool
}

func (p *logsPrinter) item(i *api.LogsItem) error {
	for _, m := range i.Missing {
		fmt.Fprintf(p.errors, "warning: the lines of this node are missing: %s\n", sanitize(m))
	}
	if i.Lost > 0 {
		fmt.Fprintf(p.errors, "warning: about %d lines came too fast and are missing\n", i.Lost)
	}
	if p.json && !p.follow {
		p.entries = append(p.entries, i.Entries...)
		return nil
	}
	for k := range i.Entries {
		if err := p.line(&i.Entries[k]); err != nil {
			return err
		}
	}
	return nil
}

// line prints one line.
func (p *logsPrinter) line(e *api.LogEntry) error {
	if p.json {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.w, "%s\n", b)
		return err
	}
	if !p.headed {
		p.headed = true
		fmt.Fprintf(p.w, "%-24s   %-12s   %-5s   %s\n", "TIME", "NODE", "LEVEL", "LINE")
	}
	_, err := fmt.Fprintf(p.w, "%-24s   %-12s   %-5s   %s\n", e.At.UTC().Format("2006-01-02T15:04:05.000Z"), sanitize(e.Node), sanitize(e.Level), lineText(e))
	return err
}

// lineText returns the message and the values of a line.
func lineText(e *api.LogEntry) string {
	var b strings.Builder
	b.WriteString(sanitize(e.Message))
	for _, a := range e.Attrs {
		value := a.Value
		if value == "" || strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '=' }) >= 0 {
			value = strconv.QuoteToASCII(value)
		}
		b.WriteByte(' ')
		b.WriteString(sanitize(a.Key))
		b.WriteByte('=')
		b.WriteString(value)
	}
	return b.String()
}

// end prints what is printed at once.
func (p *logsPrinter) end() error {
	if !p.json || p.follow {
		return nil
	}
	if p.entries == nil {
		p.entries = []api.LogEntry{}
	}
	return printJSON(p.w, p.entries)
}
