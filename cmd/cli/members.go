package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

func membersCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the nodes",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask[api.Members](cmd, t, api.MethodMembers, api.Empty{})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			var rows [][]string
			hasLeader := false
			for _, m := range *r {
				hasLeader = hasLeader || m.Role == "leader"
				rows = append(rows, []string{m.Name, m.ID, m.Role, m.State, m.Address, m.Version, strconv.FormatInt(m.Connections, 10)})
			}
			printTable(cmd.OutOrStdout(), []string{"NAME", "ID", "ROLE", "STATE", "ADDRESS", "VERSION", "CONNECTIONS"}, rows)
			if !hasLeader {
				fmt.Fprintln(cmd.ErrOrStderr(), "penstock: no leader; `penstock status` shows why")
			}
			return nil
		},
	}
	outputFlag(cmd, &output, "table", "json")
	return cmd
}
