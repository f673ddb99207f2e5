package cli

import (
	"strings"

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
	var secrets []string
	cmd := &cobra.Command{
		Use:   "crds",
		Short: "Print the custom resource definitions and the rights for --kubernetes-resources",
		Long: "The definitions are those of Penstock's kinds; those of the Gateway API and of Kuma come from there. The rights are a " +
			"ClusterRole and its binding to the service account of the nodes. They do not include Secrets: --secret adds a Role for one.",
		Example: "  penstock kubernetes crds | kubectl apply --server-side -f -\n" +
			"  penstock kubernetes crds --secret shop/web-tls --secret blog/* | kubectl apply --server-side -f -",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			named, err := parseSecrets(secrets)
			if err != nil {
				return err
			}
			objects := append(crd.Definitions(kinds.All()), crd.Rights(kinds.All(), namespace, account)...)
			e := yaml.NewEncoder(cmd.OutOrStdout())
			e.SetIndent(2)
			for _, o := range append(objects, crd.SecretRights(named, namespace, account)...) {
				if err := e.Encode(o); err != nil {
					return err
				}
			}
			return e.Close()
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", namespace, "namespace of the service account")
	cmd.Flags().StringVar(&account, "service-account", account, "service account of the nodes")
	cmd.Flags().StringArrayVar(&secrets, "secret", nil, "Secret that the nodes may read, NAMESPACE/NAME, or NAMESPACE/* for all; may be repeated")
	return cmd
}

// parseSecrets returns the names of --secret by namespace; none: all of the namespace.
func parseSecrets(list []string) (map[string][]string, error) {
	named, all := map[string][]string{}, map[string]bool{}
	for _, text := range list {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok || namespace == "" || name == "" || strings.ContainsAny(namespace, "*/") || name != "*" && strings.ContainsAny(name, "*/") {
			return nil, usagef("--secret %s: want NAMESPACE/NAME or NAMESPACE/*, such as shop/web-tls", text)
		}
		all[namespace] = all[namespace] || name == "*"
		named[namespace] = append(named[namespace], name)
	}
	for namespace := range all {
		if all[namespace] {
			named[namespace] = nil
		}
	}
	return named, nil
}
