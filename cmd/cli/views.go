package cli

import (
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

// A view is what get shows of the state in force rather than of resources.
type view struct {
	names   []string // singular and plural
	outputs []string // that it supports
	show    func(cmd *cobra.Command, t *target, name string, g *getFlags, w io.Writer) error
}

var views = []view{
	{[]string{"topology"}, []string{"table", "json", "dot"}, showTopology},
	{[]string{"split", "splits", "trafficsplit", "trafficsplits"}, []string{"table", "wide", "json", "yaml"}, showSplits},
	{[]string{"policy", "policies"}, []string{"table", "wide", "json", "yaml"}, showPolicies},
}

// viewsHelp describes the views in the help of get.
const viewsHelp = "`get services` adds to each Service how many of its endpoints are usable, where they come from, and its routes; `get " +
	"service NAME` also shows what leads to it and from it, and its endpoints.\n" +
	"`get splits [DESTINATION]` shows the weighted backends in force for each destination and source, with --as smi as " +
	"TrafficSplits; `get policies` is `get routes --effective`; `get topology [SERVICE]` shows listeners, services and the " +
	"routes between them, with -o dot as a graph for Graphviz. With --watch they are shown again when they change.\n"

// viewOf returns the view that KIND names; nil: KIND is none.
func viewOf(kind string) *view {
	for i := range views {
		for _, name := range views[i].names {
			if strings.EqualFold(kind, name) {
				return &views[i]
			}
		}
	}
	return nil
}

// get shows the view, with --watch again whenever it changes.
func (v *view) get(cmd *cobra.Command, t *target, args []string, g *getFlags) error {
	name := ""
	if len(args) == 2 {
		name = args[1]
	}
	switch {
	case len(g.selector) > 0:
		return usagef("-l: %s are no resources and have no labels", v.names[len(v.names)-1])
	case g.effective.all && v.names[0] != "policy":
		return usagef("--all is for policies")
	case g.as != "" && v.names[0] != "split":
		return usagef("--as is for resources and splits")
	}
	if err := v.checkOutput(g.output); err != nil {
		return err
	}
	show := func(w io.Writer) error { return v.show(cmd, t, name, g, w) }
	if !g.watch {
		return show(cmd.OutOrStdout())
	}
	return watchView(cmd, show)
}

func (v *view) checkOutput(output string) error {
	for _, o := range v.outputs {
		if o == output {
			return nil
		}
	}
	return usagef("-o %s: %s is shown as %s", output, v.names[len(v.names)-1], strings.Join(v.outputs, ", "))
}

// viewInterval is the time between two looks with --watch.
const viewInterval = time.Second

// watchView shows something now and whenever it has changed, until Ctrl-C.
func watchView(cmd *cobra.Command, show func(w io.Writer) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ticker := time.NewTicker(viewInterval)
	defer ticker.Stop()
	last := ""
	for {
		var b strings.Builder
		if err := show(&b); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if text := b.String(); text != last {
			if last != "" {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			fmt.Fprint(cmd.OutOrStdout(), text)
			last = text
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showPolicies shows which policy decides for which source.
func showPolicies(cmd *cobra.Command, t *target, name string, g *getFlags, w io.Writer) error {
	list, err := askEffective(cmd, t, api.EffectiveRequest{Destination: name, All: g.effective.all, Stale: g.stale})
	if err != nil {
		return err
	}
	return printEffective(w, list, g.output)
}
