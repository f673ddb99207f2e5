package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/routing"
	"penstock/routing/resource"
)

func explainCommand(t *target) *cobra.Command {
	var req api.ExplainRequest
	var request api.HTTPRequest
	var kafkaRequest api.KafkaRequest
	var sni, identity, output string
	cmd := &cobra.Command{
		Use:   "explain --listener L",
		Short: "Show the decision for a connection, step by step",
		Long: "Takes the same steps as a real connection (listener, destination, policy, weights, endpoints) and prints what each " +
			"one found.\n" +
			"Without --sni the ClientHello has no server name. With --path, --method, --host or --header the decision is about one " +
			"HTTP request: its rule, match, backend and endpoint, or the direct response.\n" +
			"With --user the client of a mysql listener logs in as that user; without it, as none.\n" +
			"With --principal, --client-id, --operation, --topic, --group or --transactional-id it is about one request to Kafka: the " +
			"permissions and rate limits that apply. --operation is a word of a TrafficPermission, such as produce; without a topic, " +
			"group or transactional id it is on the cluster.",
		Example: "  penstock explain --listener edge --sni api.example.com\n" +
			"  penstock explain --listener web --method GET --path /cart?page=2 --header x-beta=yes\n" +
			"  penstock explain --listener db --user report_daily --sni db.example.com\n" +
			"  penstock explain --listener edge --identity spiffe://example.org/ns/a/sa/web\n" +
			"  penstock explain --listener kafka --sni bootstrap.shop.example --principal User:alice --operation produce --topic orders",
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
			if anyChanged(cmd, "principal", "client-id", "operation", "topic", "group", "transactional-id") {
				req.Kafka = &kafkaRequest
			}
			if err := addIdentity(&req, identity); err != nil {
				return err
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
	f.StringVar(&req.User, "user", "", "user name as which a client of a mysql listener logs in")
	f.StringVar(&req.Client, "client", "", "IP address of the client")
	f.StringToStringVar(&req.Tags, "source", nil, "additional tags of its source, k=v,...")
	f.StringVar(&identity, "identity", "", "SPIFFE ID that the client proves in its TLS handshake")
	requestFlags(cmd, &request, "")
	kafkaFlags(cmd, &kafkaRequest)
	f.StringVar(&req.Node, "node", "", "node that accepts the connection, by name or ID (default the node at --addr)")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return t.nodeNames(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	})
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// kafkaFlags adds the flags that describe a request to Kafka.
func kafkaFlags(cmd *cobra.Command, r *api.KafkaRequest) {
	f := cmd.Flags()
	f.StringVar(&r.Principal, "principal", "User:ANONYMOUS", "Kafka principal of the client, as a broker confirms it")
	f.StringVar(&r.ClientID, "client-id", "", "client id of a request to Kafka")
	f.StringVar(&r.Operation, "operation", "", "operation of a request to Kafka (default describe)")
	f.StringVar(&r.Topic, "topic", "", "topic of a request to Kafka")
	f.StringVar(&r.Group, "group", "", "group of a request to Kafka")
	f.StringVar(&r.TransactionalID, "transactional-id", "", "transactional id of a request to Kafka")
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
	return anyChanged(cmd, "path", "method", "host", "header")
}

// anyChanged reports whether any of some flags is set.
func anyChanged(cmd *cobra.Command, flags ...string) bool {
	return slices.ContainsFunc(flags, cmd.Flags().Changed)
}

// addIdentity adds the tags of a client that proves a SPIFFE ID, as a node makes them: the
// ID, and its last segment as the service.
func addIdentity(req *api.ExplainRequest, id string) error {
	if id == "" {
		return nil
	}
	if _, err := resource.ParseSPIFFEID(id); err != nil {
		return usagef("--identity %s: %v", id, err)
	}
	tags := map[string]string{"spiffe": id, "service": id[strings.LastIndexByte(id, '/')+1:]}
	maps.Copy(tags, req.Tags)
	req.Tags = tags
	return nil
}
