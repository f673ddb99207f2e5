package cli

import (
	yaml "go.yaml.in/yaml/v3"

	"github.com/spf13/cobra"

	"penstock/node/kinds"
	"penstock/routing/formats/crd"
	"penstock/routing/gateway"
)

// kubernetesFlags are the flags of the mode that reads resources from Kubernetes.
func (s *settings) kubernetesFlags(cmd *cobra.Command) {
	f, k := cmd.Flags(), &s.node.Kubernetes
	f.BoolVar(&k.Enabled, "kubernetes-resources", false, "apply the resources that are objects of Kubernetes; set it on all nodes")
	f.StringVar(&k.Kubeconfig, "kubernetes-kubeconfig", "", "kubeconfig for --kubernetes-resources (default the pod's service account)")
	f.StringSliceVar(&k.Namespaces, "kubernetes-namespaces", nil, "namespaces whose objects are applied (default all)")
	f.StringVar(&k.Selector, "kubernetes-selector", "", "label selector of the objects that are applied; those of the Gateway API are "+
		"selected by their class")
	f.StringVar(&k.Controller, "kubernetes-controller", gateway.Controller, "controllerName of the GatewayClasses whose Gateways are applied")
	_ = cmd.MarkFlagFilename("kubernetes-kubeconfig")
}

func kubernetesCRDsCommand() *cobra.Command {
	namespace, account := "penstock", "penstock"
	cmd := &cobra.Command{
		Use:   "crds",
		Short: "Print the custom resource definitions and the rights for --kubernetes-resources",
		Long: "The definitions are those of Penstock's kinds; those of the Gateway API and of Kuma come from there. The rights are a " +
			"ClusterRole and its binding to the service account of the nodes.",
		Example: "  penstock kubernetes crds | kubectl apply --server-side -f -",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e := yaml.NewEncoder(cmd.OutOrStdout())
			e.SetIndent(2)
			for _, o := range append(crd.Definitions(kinds.All()), crd.Rights(kinds.All(), namespace, account)...) {
				if err := e.Encode(o); err != nil {
					return err
				}
			}
			return e.Close()
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", namespace, "namespace of the service account")
	cmd.Flags().StringVar(&account, "service-account", account, "service account of the nodes")
	return cmd
}
