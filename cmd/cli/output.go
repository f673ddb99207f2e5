package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"penstock/cmd/plaintext"
)

// outputFlag adds -o with the given formats; the first is the default.
func outputFlag(cmd *cobra.Command, into *string, formats ...string) {
	cmd.Flags().StringVarP(into, "output", "o", formats[0], "format: "+strings.Join(formats, ", "))
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, *into) {
			return usagef("-o %s: want one of %s", *into, strings.Join(formats, ", "))
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// printJSON writes v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable writes rows in columns below a heading; "" becomes "-".
func printTable(w io.Writer, heading []string, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if heading != nil {
		fmt.Fprintln(tw, strings.Join(heading, "\t"))
	}
	for _, row := range rows {
		for i, cell := range row {
			if cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
}

// sanitizeUntrusted makes text from an untrusted client safe for a terminal.
func sanitizeUntrusted(s string) string { return plaintext.Untrusted(s) }

// sanitize makes text from an operator safe for a terminal.
func sanitize(s string) string { return plaintext.Line(s) }

// bytesText formats a number of bytes in decimal units.
func bytesText(n float64) string { return plaintext.Bytes(n) }
