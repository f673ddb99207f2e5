package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/routing"
)

func explainCommand(t *target) *cobra.Command {
	var req api.ExplainRequest
	var request api.HTTPRequest
	var sni, output string
	cmd := &cobra.Command{
		Use:   "explain --listener L",
		Short: "Show the decision for a connection, step by step",
		Long: "Takes the same steps as a real connection (listener, destination, policy, weights, endpoints) and prints what each " +
			"one found.\n" +
			"Without --sni the ClientHello has no server name. With --path, --method, --host or --header the decision is about one " +
			"HTTP request: its rule, match, backend and endpoint, or the direct response.",
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
			r, err := ask[routing.Explanation](cmd, t, api.MethodExplain, req)
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
	f.StringVar(&req.Listener, "listener", "", "listener that accepts the connection")
	f.StringVar(&sni, "sni", "", "server name in its ClientHello")
	f.StringSliceVar(&req.ALPN, "alpn", nil, "ALPN protocols in its ClientHello")
	f.StringVar(&req.Client, "client", "", "IP address of the client")
	f.StringToStringVar(&req.Tags, "source", nil, "additional tags of its source, k=v,...")
	requestFlags(cmd, &request, "")
	f.StringVar(&req.Node, "node", "", "node that accepts the connection, by name or ID (default the node at --addr)")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return t.nodeNames(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	})
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// requestFlags adds the flags that describe an HTTP request; when prefixes
// their help texts.
func requestFlags(cmd *cobra.Command, r *api.HTTPRequest, when string) {
	f := cmd.Flags()
	f.StringVar(&r.Path, "path", "", when+"path of an HTTP request, with its query if any (default /)")
	f.StringVar(&r.Method, "method", "", when+"method of an HTTP request (default GET)")
	f.StringVar(&r.Host, "host", "", when+"host of an HTTP request (default the server name)")
	f.StringToStringVar(&r.Headers, "header", nil, when+"headers of an HTTP request, k=v,...")
}

// requestGiven reports whether any of the flags of requestFlags is set.
func requestGiven(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"path", "method", "host", "header"}, cmd.Flags().Changed)
}
