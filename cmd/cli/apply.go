package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"penstock/node"
	"penstock/node/admin"
	"penstock/routing/resource"
)

// filesFlag adds -f.
func filesFlag(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringSliceVarP(into, "filename", "f", nil, "files, folders (*.yaml, *.yml, *.json at any depth), or - for standard input")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// loadFlag loads what -f names; faults in the files are an error.
func loadFlag(cmd *cobra.Command, paths []string) (*loaded, error) {
	if len(paths) == 0 {
		return nil, usagef("%s needs -f with files, folders or -", cmd.CommandPath())
	}
	l, err := load(paths, cmd.InOrStdin(), node.Kinds())
	if err != nil {
		return nil, err
	}
	if len(l.faults) > 0 {
		return nil, l.faults
	}
	return l, nil
}

func checkCommand() *cobra.Command {
	var paths []string
	cmd := &cobra.Command{
		Use:     "check -f FILES",
		Short:   "Validate resource files without a node",
		Example: "  penstock check -f penstock.yaml -f tenants/",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := loadFlag(cmd, paths)
			if err != nil {
				return err
			}
			faults, warnings := resource.ValidateSet(l.objects)
			faults = append(faults, resource.Admit(l.objects, time.Now())...)
			printWarnings(cmd.ErrOrStderr(), warnings)
			if len(faults) > 0 {
				return faults
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d resources, no faults\n", len(l.objects))
			return nil
		},
	}
	filesFlag(cmd, &paths)
	return cmd
}

func printWarnings(w io.Writer, warnings []resource.Fault) {
	for _, f := range warnings {
		fmt.Fprintln(w, "warning: "+f.Error())
	}
}

// sendFiles applies what -f names, or asks what that would change.
func sendFiles(cmd *cobra.Command, t *target, paths []string, dryRun bool) (*admin.ApplyResult, error) {
	l, err := loadFlag(cmd, paths)
	if err != nil {
		return nil, err
	}
	if len(l.objects) == 0 { // whoever wrote the file failed, most likely
		return nil, fmt.Errorf("%s: holds no resource", strings.Join(paths, ", "))
	}
	r, err := ask[admin.ApplyResult](cmd, t, admin.MethodApply, admin.ApplyRequest{Documents: l.documents(), DryRun: dryRun})
	if err != nil {
		return nil, l.relocate(err)
	}
	warnings := make([]resource.Fault, len(r.Warnings))
	for i, f := range r.Warnings {
		warnings[i] = l.locate(f)
	}
	printWarnings(cmd.ErrOrStderr(), warnings)
	return r, nil
}

func applyCommand(t *target) *cobra.Command {
	var paths []string
	var output string
	cmd := &cobra.Command{
		Use:     "apply -f FILES",
		Short:   "Create or change resources: all of them, or none",
		Example: "  penstock apply -f penstock.yaml\n  generate | penstock apply -f -",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := sendFiles(cmd, t, paths, false)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r.Changes)
			}
			for _, c := range r.Changes {
				fmt.Fprintf(cmd.OutOrStdout(), "%s/%s %s\n", c.Kind, c.Name, c.Action)
			}
			return nil
		},
	}
	filesFlag(cmd, &paths)
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func diffCommand(t *target) *cobra.Command {
	var paths []string
	var output string
	cmd := &cobra.Command{
		Use:   "diff -f FILES",
		Short: "Show what apply would change; secrets stay hidden",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := sendFiles(cmd, t, paths, true)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r.Changes)
			}
			for _, c := range r.Changes {
				printDiff(cmd.OutOrStdout(), c)
			}
			return nil
		},
	}
	filesFlag(cmd, &paths)
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func printDiff(w io.Writer, c admin.Change) {
	name := c.Kind + "/" + c.Name
	switch {
	case c.Action == admin.Unchanged:
	case c.Before == c.After:
		fmt.Fprintf(w, "%s: a hidden value changes\n", name)
	default:
		before := name + " (stored)"
		if c.Action == admin.Created {
			before = "/dev/null"
		}
		fmt.Fprintf(w, "%s", diff.Diff(before, []byte(c.Before), name+" (given)", []byte(c.After)))
	}
}
