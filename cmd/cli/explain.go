package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"penstock/node/admin"
	"penstock/routing"
)

func explainCommand(t *target) *cobra.Command {
	var req admin.ExplainRequest
	var request admin.HTTPRequest
	var sni, output string
	cmd := &cobra.Command{
		Use:   "explain --listener L",
		Short: "Show the decision for a connection, step by step",
		Long: "Walks the very steps that a connection takes (listener, destination, policy, weights, endpoints) and says what each one saw.\n" +
			"Without --sni the hello has no server name. With --path the decision is about one request of HTTP: its rule, match, " +
			"backend and endpoint, or the answer.",
		Example: "  penstock explain --listener edge --sni api.example.com\n" +
			"  penstock explain --listener web --method GET --path /cart?page=2 --header x-beta=yes",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Listener == "" {
				return usagef("explain needs --listener; `penstock get listeners` lists them")
			}
			if cmd.Flags().Changed("sni") {
				req.SNI = &sni
			}
			if requestGiven(cmd) {
				req.Request = &request
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
	requestFlags(cmd, &request, "")
	f.StringVar(&req.Node, "node", "", "the node that it comes to, by name or ID; default the one asked")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return t.members(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	})
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// requestFlags adds the flags that describe an HTTP request; when prefixes
// their help texts.
func requestFlags(cmd *cobra.Command, r *admin.HTTPRequest, when string) {
	f := cmd.Flags()
	f.StringVar(&r.Path, "path", "", when+"of a request of HTTP: its path, with a query where there is one (default /)")
	f.StringVar(&r.Method, "method", "", when+"of a request of HTTP: its method (default GET)")
	f.StringVar(&r.Host, "host", "", when+"of a request of HTTP: the host that it asks for (default the server name)")
	f.StringToStringVar(&r.Headers, "header", nil, when+"of a request of HTTP: its headers, k=v,...")
}

// requestGiven reports whether any of the flags of requestFlags is set.
func requestGiven(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"path", "method", "host", "header"}, cmd.Flags().Changed)
}
