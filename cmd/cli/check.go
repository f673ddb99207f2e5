package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"penstock/routing/resource/validate"
)

func checkCommand() *cobra.Command {
	var paths []string
	cmd := &cobra.Command{
		Use:     "check -f FILES",
		Short:   "Validate resource files without a node",
		Example: "  penstock check -f penstock.yaml -f tenants/",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := loadFlag(cmd, paths)
			if err != nil {
				return err
			}
			faults, warnings := validate.Objects(l.objects)
			faults = append(faults, validate.Admit(l.objects, time.Now())...)
			printWarnings(cmd.ErrOrStderr(), warnings)
			if len(faults) > 0 {
				return faults
			}
			printRolloutPlans(cmd.OutOrStdout(), l.objects)
			fmt.Fprintf(cmd.OutOrStdout(), "%d resources, no faults\n", len(l.objects))
			return nil
		},
	}
	filesFlag(cmd, &paths)
	return cmd
}
