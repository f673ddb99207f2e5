package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/routing/resource"
)

// filesFlag adds -f.
func filesFlag(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringSliceVarP(into, "filename", "f", nil, "files, folders (*.yaml, *.yml, *.json, *.toml at any depth), or - for standard input")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// loadFlag loads the files given with -f and returns their faults as an error.
func loadFlag(cmd *cobra.Command, paths []string) (*loaded, error) {
	if len(paths) == 0 {
		return nil, usagef("%s needs -f with files, folders or -", cmd.CommandPath())
	}
	l, err := load(paths, cmd.InOrStdin(), kinds.All())
	if err != nil {
		return nil, err
	}
	printWarnings(cmd.ErrOrStderr(), l.warnings)
	if len(l.faults) > 0 {
		return nil, l.faults
	}
	return l, nil
}

func printWarnings(w io.Writer, warnings []resource.Fault) {
	for _, f := range warnings {
		fmt.Fprintln(w, "warning: "+f.Error())
	}
}

// applyFlags holds the flags that apply and diff share.
type applyFlags struct {
	paths    []string
	output   string
	prune    bool
	selector map[string]string
}

func (a *applyFlags) flags(cmd *cobra.Command) {
	filesFlag(cmd, &a.paths)
	cmd.Flags().BoolVar(&a.prune, "prune", false, "delete resources that have the labels of -l and are not in the files")
	selectorFlag(cmd, &a.selector, "with --prune: labels of the resources that may be deleted, k=v,...")
	outputFlag(cmd, &a.output, "text", "json")
}

// request reads the files given with -f into an ApplyRequest.
func (a *applyFlags) request(cmd *cobra.Command) (*loaded, *api.ApplyRequest, error) {
	switch {
	case a.prune && len(a.selector) == 0:
		return nil, nil, usagef("--prune needs -l, the labels of the resources that may be deleted")
	case !a.prune && len(a.selector) > 0:
		return nil, nil, usagef("-l selects what --prune may delete; use both or neither")
	}
	l, err := loadFlag(cmd, a.paths)
	if err != nil {
		return nil, nil, err
	}
	if len(l.objects) == 0 { // most likely the program that wrote the file failed
		return nil, nil, fmt.Errorf("%s: contains no resources", strings.Join(a.paths, ", "))
	}
	return l, &api.ApplyRequest{Documents: l.documents(), Prune: a.selector}, nil
}

// printResultWarnings prints the warnings in a node's answer.
func (l *loaded) printResultWarnings(cmd *cobra.Command, list []api.Fault) {
	warnings := make([]resource.Fault, len(list))
	for i, f := range list {
		warnings[i] = l.locate(f)
	}
	printWarnings(cmd.ErrOrStderr(), warnings)
}

func applyCommand(t *target) *cobra.Command {
	var a applyFlags
	var w waitFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILES",
		Short: "Create or change resources, all or none of them",
		Long: "Returns once as many nodes as --wait requires act on the change. A resource with a version field, as get prints it, " +
			"is refused if someone changed it since that version.\n" +
			"The change has an ID: if the connection breaks, apply retries within --timeout, and the change is made at most once. " +
			"If its outcome is still unknown then, the exit code is 3; applying the same files again is safe.",
		Example: "  penstock apply -f penstock.yaml\n  generate | penstock apply -f - --prune -l app=shop",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, req, err := a.request(cmd)
			if err != nil {
				return err
			}
			if req.Wait, err = w.resolve(cmd); err != nil {
				return err
			}
			req.ID = newID()
			r, err := askWithRetries[api.ApplyResult](cmd, t, req.Wait.For, api.MethodApply, req)
			if err != nil {
				return l.relocate(err)
			}
			l.printResultWarnings(cmd, r.Warnings)
			if err := printChanges(cmd.OutOrStdout(), r.Changes, a.output); err != nil {
				return err
			}
			return w.report(cmd.ErrOrStderr(), committedAny(r.Index, r.Changes), r.Reached)
		},
	}
	a.flags(cmd)
	w.flags(cmd)
	return cmd
}

func printChanges(w io.Writer, changes []api.Change, output string) error {
	if output == "json" {
		return printJSON(w, changes)
	}
	for _, c := range changes {
		fmt.Fprintf(w, "%s/%s %s\n", c.Kind, c.Name, c.Action)
	}
	return nil
}
