package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"penstock/routing/resource/validate"
)

// selectorFlag adds -l, a label selector.
func selectorFlag(cmd *cobra.Command, into *map[string]string, meaning string) {
	cmd.Flags().StringToStringVarP(into, "selector", "l", nil, meaning)
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if faults := validate.Labels(*into); len(faults) > 0 {
			return usagef("-l: %s", strings.Join(faults, "; "))
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
}
