package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

// Build returns this build's version: the module's, or the commit if known.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, dirty := info.Main.Version, ""
	if version == "" || version == "(devel)" {
		version = "devel"
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				version = "devel-" + s.Value[:12]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+changes"
			}
		}
	}
	return version + dirty
}

func versionCommand(t *target) *cobra.Command {
	var client bool
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command, and of the node at --addr",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			versions := map[string]string{"client": Build()}
			if !client && cmd.Flags().Changed("addr") {
				r, err := ask[api.Version](cmd, t, api.MethodVersion, api.Empty{})
				if err != nil {
					return err
				}
				versions["node"] = r.Version
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), versions)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "penstock %s\n", versions["client"])
			if v := versions["node"]; v != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "node     %s\n", v)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "this command's version only")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
