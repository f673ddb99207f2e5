package cli

import (
	"github.com/spf13/cobra"

	"penstock/node/api"
)

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
			new(loaded).printResultWarnings(cmd, r.Warnings)
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
