package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

// retryHelp is the help text about retries under a change ID.
const retryHelp = "The change has an ID: if the connection breaks, the command retries within --timeout, and the change is made at " +
	"most once. If its outcome is still unknown then, the exit code is 3"

func deleteCommand(t *target) *cobra.Command {
	var w waitFlags
	var version uint64
	cmd := &cobra.Command{
		Use:               "delete KIND NAME",
		Short:             "Delete a resource; refused while another one uses it",
		Long:              retryHelp + ".",
		Example:           "  penstock delete service apps",
		Args:              argRange(2, 2, "KIND NAME"),
		ValidArgsFunction: completeResource(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			wait, err := w.resolve(cmd)
			if err != nil {
				return err
			}
			req := api.DeleteRequest{Kind: args[0], Name: args[1], ID: newID(), Version: version, Wait: wait}
			r, err := askWithRetries[api.DeleteResult](cmd, t, wait.For, api.MethodDelete, req)
			if err != nil {
				return err
			}
			new(loaded).printResultWarnings(cmd, r.Warnings)
			fmt.Fprintf(cmd.OutOrStdout(), "%s/%s deleted\n", r.Kind, r.Name)
			return w.report(cmd.ErrOrStderr(), committed(r.Index), r.Reached)
		},
	}
	cmd.Flags().Uint64Var(&version, "version", 0, "delete only this version, as get shows it (default: any)")
	w.flags(cmd)
	return cmd
}
