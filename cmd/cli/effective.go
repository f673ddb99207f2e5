package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/node/rpc"
	"penstock/routing"
	"penstock/routing/resource"
)

// effectiveFlags are the flags of get for effective routes.
type effectiveFlags struct{ on, all bool }

func (e *effectiveFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.on, "effective", false, "for routes: show for each destination, or for NAME, which route decides for "+
		"each source, and why the others do not")
	cmd.Flags().BoolVar(&e.all, "all", false, "with --effective: include services without routes")
}

// getEffective prints the effective routes on the target node.
func getEffective(cmd *cobra.Command, t *target, args []string, g *getFlags) error {
	kind, err := resource.FindKind(kinds.All(), args[0])
	switch {
	case !g.effective.on:
		return usagef("--all requires --effective")
	case !strings.EqualFold(args[0], "routes") && !strings.EqualFold(args[0], "route") &&
		(err != nil || kind.Name != "MeshTCPRoute" && kind.Name != "MeshHTTPRoute"):
		return usagef("--effective is for routes: penstock get routes --effective [DESTINATION]")
	case g.watch || len(g.selector) > 0:
		return usagef("--effective cannot be combined with --watch or -l")
	}
	req := api.EffectiveRequest{All: g.effective.all, Stale: g.stale}
	if len(args) == 2 {
		req.Destination = args[1]
	}
	list, err := askEffective(cmd, t, req)
	if err != nil {
		return err
	}
	return printEffective(cmd.OutOrStdout(), list, g.output)
}

// askEffective requests pages until the list is complete.
func askEffective(cmd *cobra.Command, t *target, req api.EffectiveRequest) ([]routing.Effective, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
	defer cancel()
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	list := []routing.Effective{}
	for {
		r, err := rpc.Call[api.EffectiveResult](ctx, c, api.MethodEffective, req)
		if err != nil {
			return nil, err
		}
		for _, e := range r.Destinations {
			if last := len(list) - 1; last >= 0 && list[last].Destination == e.Destination { // a destination may span pages
				list[last].Sources = append(list[last].Sources, e.Sources...)
				list[last].Requests = append(list[last].Requests, e.Requests...)
				continue
			}
			list = append(list, e)
		}
		if r.More == nil {
			return list, nil
		}
		req.After, req.Stale = *r.More, true // the first page already waited for the leader
	}
}

func printEffective(w io.Writer, list []routing.Effective, output string) error {
	switch output {
	case "json":
		return printJSON(w, list)
	case "yaml":
		enc := yaml.NewEncoder(w)
		enc.SetIndent(2)
		return enc.Encode(list)
	}
	listed := 3
	if output == "wide" {
		listed = -1
	}
	var rows [][]string
	for _, e := range list {
		if e.Missing {
			rows = append(rows, []string{e.Destination, "", "", "no such service", fmt.Sprintf("%d routes", e.Policies)})
		}
		for i := range e.Sources {
			s := &e.Sources[i]
			rows = append(rows, []string{e.Destination, s.Source, s.Policy, effectiveBackends(s), losers(s, listed)})
		}
		for i := range e.Requests {
			rows = append(rows, requestRows(&e, &e.Requests[i], listed)...)
		}
	}
	printTable(w, []string{"DESTINATION", "SOURCE", "ROUTE", "BACKENDS", "OTHERS"}, rows)
	return nil
}

// requestRows returns one row per rule that routes the requests of a source;
// only the first row names the losers.
func requestRows(e *routing.Effective, s *routing.EffectiveSource, listed int) (rows [][]string) {
	source := s.Source + ", http"
	row := func(text string) {
		others := ""
		if len(rows) == 0 {
			others = losers(s, listed)
		}
		rows = append(rows, []string{e.Destination, source, s.Policy, text, others})
	}
	switch {
	case e.NoRequests != "":
		row("not in effect: " + e.NoRequests)
		return rows
	case s.Never != "":
		row("never: " + s.Never)
		return rows
	}
	rest := true // whether some requests match no rule
	for i := range s.Rules {
		row(s.Rules[i].Text())
		rest = rest && !slices.Contains(s.Rules[i].Requests, routing.AllRequests)
	}
	if s.MoreRules > 0 {
		row(fmt.Sprintf("and %d more rules", s.MoreRules))
	}
	if rest {
		row(fmt.Sprintf("all others: %s 100 %%", e.Destination))
	}
	return rows
}

// effectiveBackends describes where the connections of a source go.
func effectiveBackends(s *routing.EffectiveSource) string {
	if s.Never != "" {
		return "never: " + s.Never
	}
	var parts []string
	for i := range s.Backends {
		b := &s.Backends[i]
		name := resource.SubsetText(b.Service, b.Tags)
		if b.Skipped != "" {
			parts = append(parts, fmt.Sprintf("not %s (%s)", name, b.Skipped))
			continue
		}
		if parts = append(parts, fmt.Sprintf("%s %.4g %%", name, b.Share*100)); b.Closed != "" {
			parts[len(parts)-1] += " closed (" + b.Closed + ")"
		}
	}
	if s.Reason != routing.OK {
		parts = slices.Insert(parts, 0, fmt.Sprintf("closed (%s)", s.Reason))
	}
	text := strings.Join(parts, ", ")
	if s.Rollout != nil {
		text += rolloutSuffix(s.Rollout)
	}
	return text
}

// losers describes why other routes do not decide, and which routes decide for
// a part of the sources. listed bounds how many; -1: all that were sent.
func losers(s *routing.EffectiveSource, listed int) string {
	var parts []string
	for _, l := range s.Losers {
		parts = append(parts, l.Policy+": "+l.Why)
	}
	for _, p := range s.Except {
		parts = append(parts, fmt.Sprintf("%s: decides if the source is also %s", p.Policy, p.Source))
	}
	all := len(parts) + s.MoreLosers + s.MoreExcept
	if listed >= 0 && len(parts) > listed {
		parts = parts[:listed]
	}
	if more := all - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}
