package cli

import "github.com/spf13/cobra"

func kubernetesCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "kubernetes",
		Short: "Print what Penstock needs on Kubernetes",
	}, kubernetesCRDsCommand())
}
