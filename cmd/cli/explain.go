package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"penstock/node/admin"
	"penstock/routing"
)

func explainCommand(t *target) *cobra.Command {
	var req admin.ExplainRequest
	var sni, output string
	cmd := &cobra.Command{
		Use:   "explain --listener L",
		Short: "Show the decision for a connection, step by step",
		Long: "Walks the very steps that a connection takes (listener, destination, policy, weights, endpoints) and says what each one saw.\n" +
			"Without --sni the hello has no server name.",
		Example: "  penstock explain --listener edge --sni api.example.com",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Listener == "" {
				return usagef("explain needs --listener; `penstock get listeners` lists them")
			}
			if cmd.Flags().Changed("sni") {
				req.SNI = &sni
			}
			r, err := ask[routing.Explanation](cmd, t, admin.MethodExplain, req)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), r.Text())
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Listener, "listener", "", "the listener that it comes to")
	f.StringVar(&sni, "sni", "", "server name of its ClientHello")
	f.StringSliceVar(&req.ALPN, "alpn", nil, "protocols that it offers")
	f.StringVar(&req.Client, "client", "", "IP address that it comes from")
	f.StringToStringVar(&req.Tags, "source", nil, "further tags of its source, k=v,...")
	f.StringVar(&req.Node, "node", "", "the node that it comes to, by name or ID; default the one asked")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return t.members(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	})
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
