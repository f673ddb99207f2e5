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
			fmt.Fprintf(cmd.OutOrStdout(), "%s/%s deleted\n", r.Kind, r.Name)
			return w.report(cmd.ErrOrStderr(), committed(r.Index), r.Reached)
		},
	}
	cmd.Flags().Uint64Var(&version, "version", 0, "delete only this version, as get shows it (default: any)")
	w.flags(cmd)
	return cmd
}

func rollbackCommand(t *target) *cobra.Command {
	var w waitFlags
	var to uint64
	var output string
	cmd := &cobra.Command{
		Use:   "rollback KIND NAME",
		Short: "Restore the content that a resource had at an earlier version",
		Long: "A rollback is a change like any other: it is validated, may be refused, gets a version of its own, and appears in " +
			"history.\n" +
			retryHelp + "; check `penstock history` then before you repeat a rollback without --to.",
		Example:           "  penstock rollback service apps\n  penstock rollback service apps --to 12",
		Args:              argRange(2, 2, "KIND NAME"),
		ValidArgsFunction: completeResource(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("to") && to == 0 {
				return usagef("--to 0: want a version; `penstock history %s %s` lists them", args[0], args[1])
			}
			wait, err := w.resolve(cmd)
			if err != nil {
				return err
			}
			req := api.RollbackRequest{ID: newID(), Kind: args[0], Name: args[1], Version: to, Wait: wait}
			r, err := askWithRetries[api.ApplyResult](cmd, t, wait.For, api.MethodRollback, req)
			if err != nil {
				return err
			}
			new(loaded).printResultWarnings(cmd, r)
			if err := printChanges(cmd.OutOrStdout(), r.Changes, output); err != nil {
				return err
			}
			return w.report(cmd.ErrOrStderr(), committedAny(r.Index, r.Changes), r.Reached)
		},
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "version to restore, as history lists it (default the one before the last change)")
	outputFlag(cmd, &output, "text", "json")
	w.flags(cmd)
	return cmd
}
