package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

func rotateCommand(t *target) *cobra.Command {
	what := []string{"ca", "gossip"}
	return &cobra.Command{
		Use:   "rotate ca|gossip",
		Short: "Replace the cluster's CA or gossip key while the cluster runs",
		Long: "With a new CA every node gets a new certificate, and existing tokens stop working, because they contain the digest " +
			"of the old CA: create new ones afterwards, at a node's own socket.",
		Args:      argRange(1, 1, "ca|gossip"),
		ValidArgs: what,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(what, args[0]) {
				return usagef("rotate %s: want %s", args[0], strings.Join(what, " or "))
			}
			if _, err := ask[api.Empty](cmd, t, api.MethodRotate, api.RotateRequest{What: args[0]}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s rotated\n", args[0])
			return nil
		},
	}
}
