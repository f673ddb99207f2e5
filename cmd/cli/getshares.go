package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

// isShares reports whether KIND asks for the shares of rate limits with scope cluster.
func isShares(kind string) bool {
	return strings.EqualFold(kind, "shares") || strings.EqualFold(kind, "share")
}

// getShares shows which node holds what of the rate limits with scope cluster, or of
// one of them.
func getShares(cmd *cobra.Command, t *target, limit, output string) error {
	if output != "table" && output != "json" {
		return usagef("-o %s: shares are shown as table or json", output)
	}
	list, err := ask[api.Shares](cmd, t, api.MethodShares, api.SharesRequest{Limit: limit})
	if err != nil {
		return err
	}
	if output == "json" {
		return printJSON(cmd.OutOrStdout(), list)
	}
	var rows [][]string
	for i := range list.Budgets {
		b := &list.Budgets[i]
		for _, s := range b.Shares {
			rows = append(rows, []string{
				b.Limit, b.Dimension, orElse(sanitize(b.Key), "-"), rateText(b.Budget), s.Node, rateText(s.Want), rateText(s.Share), leaseText(s.Left),
			})
		}
	}
	printTable(cmd.OutOrStdout(), []string{"LIMIT", "DIMENSION", "KEY", "BUDGET/S", "NODE", "WANTS/S", "SHARE/S", "LEASE"}, rows)
	if list.More > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%d more budgets are left out: name a limit\n", list.More)
	}
	return nil
}

// rateText shows a rate with three digits.
func rateText(perSecond float64) string {
	if perSecond >= 1000 {
		return strconv.FormatFloat(perSecond, 'f', 0, 64)
	}
	return strconv.FormatFloat(perSecond, 'g', 3, 64)
}

// leaseText shows how long a lease lasts.
func leaseText(left time.Duration) string {
	if left <= 0 {
		return "ended"
	}
	return left.Round(10 * time.Millisecond).String()
}
