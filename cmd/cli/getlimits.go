package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

// isLimits reports whether KIND asks for what rate limits do.
func isLimits(kind string) bool {
	return strings.EqualFold(kind, "limits") || strings.EqualFold(kind, "limit")
}

// getLimits shows what the rate limits do on a node, or what one of them does.
func getLimits(cmd *cobra.Command, t *target, limit, output string) error {
	if output != "table" && output != "json" {
		return usagef("-o %s: limits are shown as table or json", output)
	}
	list, err := ask[api.Limits](cmd, t, api.MethodLimits, api.LimitsRequest{Limit: limit})
	if err != nil {
		return err
	}
	if output == "json" {
		return printJSON(cmd.OutOrStdout(), list)
	}
	var rows, fullest [][]string
	for i := range list.Limits {
		l := &list.Limits[i]
		for _, d := range l.Of {
			rows = append(rows, []string{
				l.Limit, l.By, d.Of, countText(d.Allowed), countText(d.Refused), countText(d.Queued), countText(d.Paced),
				fmt.Sprintf("%d/%d", l.Keys, l.MaxKeys), countText(l.Overflows),
			})
		}
		for _, b := range l.Fullest {
			wait := ""
			if b.Wait > 0 {
				wait = b.Wait.Round(time.Millisecond).String()
			}
			fullest = append(fullest, []string{l.Limit, sanitize(b.Key), b.Of, strconv.FormatFloat(b.Used, 'f', 0, 64) + " %", wait})
		}
	}
	out := cmd.OutOrStdout()
	printTable(out, []string{"LIMIT", "BY", "OF", "ALLOWED", "REFUSED", "QUEUED", "PACED", "KEYS", "OVERFLOWS"}, rows)
	if len(fullest) > 0 {
		fmt.Fprintln(out)
		printTable(out, []string{"LIMIT", "FULLEST KEY", "OF", "USED", "WAIT"}, fullest)
	}
	return nil
}

func countText(n uint64) string { return strconv.FormatUint(n, 10) }
