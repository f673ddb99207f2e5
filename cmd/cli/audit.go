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

func auditCommand(t *target) *cobra.Command {
	var req api.AuditRequest
	var since, output string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed what in the cluster, and what permissions denied",
		Long: "The lines are in order of time. What was done is the same on every node. What was refused or denied is asked of all nodes; " +
			"one line stands for all that is alike, with the time of the last and the number of them.\n" +
			"With --follow, new lines are printed until Ctrl-C, and a line again when its number has grown.",
		Example: "  penstock audit --since 1h\n  penstock audit --follow -o json | jq 'select(.outcome == \"denied\")'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Since, err = sinceTime(since, time.Now()); err != nil {
				return err
			}
			p := auditPrinter{w: cmd.OutOrStdout(), errors: cmd.ErrOrStderr(), json: output == "json", follow: req.Follow}
			if err := follow(cmd.Context(), t, api.MethodAudit, req, p.item); err != nil {
				return err
			}
			return p.end()
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&req.Follow, "follow", "f", false, "go on with new lines; -o json then prints one object per line")
	f.StringVar(&since, "since", "", "only lines of this time and later: 30m, 24h, or 2026-01-31T08:00:00Z")
	f.StringVar(&req.Node, "node", "", "only what this node did, refused or denied, by name or ID")
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

// sinceTime parses a time, or a duration before now; "" is the zero time.
func sinceTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return at, usagef("--since %s: want a duration such as 30m, or a time such as 2026-01-31T08:00:00Z", s)
	}
	return at, nil
}

// auditPrinter prints the items of the audit log.
type auditPrinter struct {
	w, errors    io.Writer
	json, follow bool
	entries      []api.AuditEntry // without follow: until the end
	headed       bool
}

func (p *auditPrinter) item(i *api.AuditItem) error {
	for _, m := range i.Missing {
		fmt.Fprintf(p.errors, "warning: what this node refused and denied is missing: %s\n", sanitize(m))
	}
	if !p.follow {
		p.entries = append(p.entries, i.Entries...)
		return nil
	}
	if !p.json {
		p.table(i.Entries)
		return nil
	}
	for k := range i.Entries {
		b, err := json.Marshal(&i.Entries[k])
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.w, "%s\n", b); err != nil {
			return err
		}
	}
	return nil
}

// end prints what is printed at once.
func (p *auditPrinter) end() error {
	if p.json && !p.follow {
		if p.entries == nil {
			p.entries = []api.AuditEntry{}
		}
		return printJSON(p.w, p.entries)
	}
	p.table(p.entries)
	return nil
}

func (p *auditPrinter) table(entries []api.AuditEntry) {
	if len(entries) == 0 && (p.follow || p.headed) {
		return
	}
	var header []string
	if !p.headed {
		header = []string{"TIME", "NODE", "WHO", "ROLE", "FROM", "ACT", "WHAT", "OUTCOME", "COUNT"}
		p.headed = true
	}
	rows := make([][]string, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		rows = append(rows, []string{
			timeText(e.At), sanitize(e.Node), sanitize(e.Who), sanitize(e.Role), sanitize(e.From), sanitize(e.Act), whatText(e),
			outcomeText(e), strconv.FormatUint(e.Count, 10),
		})
	}
	printTable(p.w, header, rows)
}

// whatText returns the destination, with the last request of those that the line counts.
func whatText(e *api.AuditEntry) string {
	if e.Request == "" {
		return sanitize(e.What)
	}
	return sanitize(e.What) + ": " + sanitize(e.Request)
}

// outcomeText returns the outcome with its reason.
func outcomeText(e *api.AuditEntry) string {
	switch {
	case e.Error != "":
		return e.Outcome + ": " + strings.Join(strings.Fields(sanitize(e.Error)), " ")
	case e.Rule != "":
		return e.Outcome + " by " + sanitize(e.Rule)
	}
	return e.Outcome
}
