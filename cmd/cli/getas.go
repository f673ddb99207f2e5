package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/routing/formats"
)

// asFlag adds --as, which selects a foreign resource format.
func asFlag(cmd *cobra.Command, into *string) {
	names := formats.Names()
	cmd.Flags().StringVar(into, "as", "", "with -o yaml: format of the resources: "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// checkAs checks --as. Views of the state in force need no -o yaml.
func (g *getFlags) checkAs(view bool) error {
	switch {
	case g.as == "":
		return nil
	case !slices.Contains(formats.Names(), g.as):
		return usagef("--as %s: want one of %s", g.as, strings.Join(formats.Names(), ", "))
	case view:
		return nil
	case g.output != "yaml" || g.watch || g.effective.on || g.effective.all:
		return usagef("--as works only with -o yaml")
	}
	return nil
}

// printAs writes resources in a foreign format, all of them or none.
func printAs(w io.Writer, r *api.GetResult, format string) error {
	var out strings.Builder
	for i, d := range r.Documents {
		o, err := decodeDocument(d)
		if err != nil {
			return err
		}
		text, err := formats.Encode(format, o)
		if err != nil {
			return err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
		if format == "gateway" {
			out.WriteString(statusYAML(d))
		}
	}
	_, err := fmt.Fprint(w, out.String())
	return err
}
