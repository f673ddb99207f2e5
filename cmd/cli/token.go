package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/node/trust"
)

// tokenRoles are the roles that a token can have.
var tokenRoles = []string{
	string(api.RoleJoin), string(api.RoleReader), string(api.RoleOperator), string(api.RoleAdmin), string(api.RoleIssuer),
}

func tokenCommand(t *target) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "token",
		Short: "Create and revoke tokens, which admit nodes and people",
		Long:  "A token is a secret: whoever has it may do what its role allows. Set it in PENSTOCK_TOKEN to hide it from process lists.",
	}, tokenCreateCommand(t), tokenListCommand(t), tokenRevokeCommand(t), tokenNewCommand())
}

func tokenCreateCommand(t *target) *cobra.Command {
	var req api.TokenCreateRequest
	var role, output string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a token and print it; it is never shown again",
		Long: "Roles: join lets nodes join; reader allows get, history, explain, simulate, status, members and top; operator adds " +
			"drain, sessions move and connections close; admin allows everything. issuer allows nothing but issuing, listing and revoking the certificates of workloads " +
			"whose SPIFFE path matches --path.\n" +
			"The token contains the digest of the cluster's CA, so a command or a node needs nothing else but an address.",
		Example: "  penstock token create\n  PENSTOCK_TOKEN=$(penstock token create --role reader --name dashboard --ttl 720h)\n" +
			"  penstock token create --role issuer --path '/ns/shop/**'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(tokenRoles, role) {
				return usagef("--role %s: want one of %s", role, strings.Join(tokenRoles, ", "))
			}
			if req.TTL <= 0 {
				return usagef("--ttl %v: want more than 0s", req.TTL)
			}
			if (role == string(api.RoleIssuer)) != (req.Path != "") {
				return usagef("--path: give the role issuer the SPIFFE paths for which it may issue, such as '/ns/shop/**', and other roles none")
			}
			req.Role = api.Role(role)
			r, err := ask[api.TokenCreated](cmd, t, api.MethodTokenNew, req)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			fmt.Fprintln(cmd.OutOrStdout(), r.Token)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Name, "name", "", "name of its holder in history and logs (default its role)")
	f.StringVar(&role, "role", string(api.RoleJoin), "what it allows: "+strings.Join(tokenRoles, ", "))
	f.StringVar(&req.Path, "path", "", "issuer: SPIFFE paths for which it may issue; * is any part of a segment, ** at the end any segments")
	f.DurationVar(&req.TTL, "ttl", 24*time.Hour, "how long it is valid")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(tokenRoles, cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func tokenListCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens, without their secrets",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask[api.Tokens](cmd, t, api.MethodTokens, api.Empty{})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			var rows [][]string
			for _, k := range *r {
				rows = append(rows, []string{k.ID, sanitize(k.Name), string(k.Role), k.State, timeText(k.Expires), timeText(k.Created), sanitize(k.By)})
			}
			printTable(cmd.OutOrStdout(), []string{"ID", "NAME", "ROLE", "STATE", "EXPIRES", "CREATED", "BY"}, rows)
			return nil
		},
	}
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func tokenRevokeCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID|NAME",
		Short: "Revoke a token; nodes that joined with it stay",
		Args:  argRange(1, 1, "ID|NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := ask[api.Empty](cmd, t, api.MethodRevoke, api.TokenRevokeRequest{Token: args[0]}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s revoked\n", args[0])
			return nil
		},
	}
}

func tokenNewCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new",
		Short: "Create a secret for start --expect and print it; needs no node",
		Long: "Give the same secret to all nodes that are to form one cluster. It does not authenticate commands: `penstock token " +
			"create` at a node's own socket creates tokens for those.",
		Example: "  penstock token new",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), trust.NewExpectToken().Reveal())
			return nil
		},
	}
}
