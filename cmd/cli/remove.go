package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

func removeCommand(t *target) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Remove a lost node from the cluster",
		Long: "For a node that is lost for good; a node that is up leaves with `penstock leave`. Its certificate is no longer " +
			"accepted afterwards, so it cannot come back under its ID.\n" +
			"Refused while the node is up, and if the remaining voters would lack a majority; --force overrides both.",
		Args:              argRange(1, 1, "NODE"),
		ValidArgsFunction: completeMember(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := ask[api.Empty](cmd, t, api.MethodRemove, api.RemoveRequest{Node: args[0], Force: force}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s removed\n", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove it even if it is up or too few voters may remain")
	return cmd
}
