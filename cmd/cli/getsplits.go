package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"penstock/node/api"
	"penstock/routing"
	"penstock/routing/formats"
	"penstock/routing/formats/smi"
	"penstock/routing/resource"
)

// split is one backend of a route that is in force.
type split struct {
	Destination string            `json:"destination" yaml:"destination"`
	Source      string            `json:"source" yaml:"source"`
	Route       string            `json:"route" yaml:"route"`
	Requests    []string          `json:"requests,omitempty" yaml:"requests,omitempty"`
	Service     string            `json:"service" yaml:"service"`
	Tags        map[string]string `json:"tags,omitempty" yaml:"tags,omitempty"`
	Weight      int               `json:"weight" yaml:"weight"`
	Share       float64           `json:"share" yaml:"share"`
	Problem     string            `json:"problem,omitempty" yaml:"problem,omitempty"`
}

// showSplits shows the weighted backends in force, for each destination and
// source.
func showSplits(cmd *cobra.Command, t *target, name string, g *getFlags, w io.Writer) error {
	list, err := askEffective(cmd, t, api.EffectiveRequest{Destination: name, Stale: g.stale})
	if err != nil {
		return err
	}
	if g.as != "" {
		return printSplitsAs(w, list, g.as)
	}
	splits := splitsOf(list)
	switch g.output {
	case "json":
		return printJSON(w, splits)
	case "yaml":
		enc := yaml.NewEncoder(w)
		enc.SetIndent(2)
		return enc.Encode(splits)
	}
	rows := make([][]string, 0, len(splits))
	for i := range splits {
		s := &splits[i]
		rows = append(rows, []string{
			s.Destination, s.Source, s.Route, strings.Join(s.Requests, ", "), resource.SubsetText(s.Service, s.Tags),
			fmt.Sprint(s.Weight), fmt.Sprintf("%.4g %%", s.Share*100), s.Problem,
		})
	}
	printTable(w, []string{"DESTINATION", "SOURCE", "ROUTE", "REQUESTS", "BACKEND", "WEIGHT", "SHARE", "PROBLEM"}, rows)
	return nil
}

// splitsOf lists the backends of all routes that decide for a source.
func splitsOf(list []routing.Effective) []split {
	splits := []split{}
	for i := range list {
		e := &list[i]
		add := func(s *routing.EffectiveSource, requests []string, backends []routing.EffectiveBackend) {
			for j := range backends {
				b := &backends[j]
				one := split{
					Destination: e.Destination, Source: s.Source, Route: s.Policy, Requests: requests,
					Service: b.Service, Tags: b.Tags, Weight: b.Weight, Share: b.Share, Problem: b.Skipped,
				}
				if b.Closed != "" {
					one.Problem = "closed: " + b.Closed
				}
				splits = append(splits, one)
			}
		}
		for j := range e.Sources {
			if s := &e.Sources[j]; s.Policy != "" {
				add(s, nil, s.Backends)
			}
		}
		for j := range e.Requests {
			s := &e.Requests[j]
			for k := range s.Rules {
				add(s, s.Rules[k].Requests, s.Rules[k].Backends)
			}
		}
	}
	return splits
}

// printSplitsAs prints the splits in force for all sources in another format. A
// comment names those that the format cannot express.
func printSplitsAs(w io.Writer, list []routing.Effective, format string) error {
	printed := false
	for i := range list {
		e := &list[i]
		for j := range e.Sources {
			s := &e.Sources[j]
			if s.Policy == "" {
				continue
			}
			text, err := encodeSplit(e.Destination, s, format)
			if errors.Is(err, smi.ErrNotSplit) {
				fmt.Fprintf(w, "# %v\n", err)
				continue
			}
			if err != nil {
				return err
			}
			if printed {
				fmt.Fprintln(w, "---")
			}
			printed = true
			fmt.Fprintf(w, "%s", text)
		}
	}
	return nil
}

func encodeSplit(destination string, s *routing.EffectiveSource, format string) ([]byte, error) {
	key := resource.Key{Kind: "MeshTCPRoute", Name: s.Policy}
	if s.Source != "Mesh" || strings.Contains(destination, "/") {
		return nil, fmt.Errorf("%s %w: it is for %s to %s", key, smi.ErrNotSplit, s.Source, destination)
	}
	rule := resource.RouteRule{}
	for i := range s.Backends {
		b := &s.Backends[i]
		ref := resource.BackendRef{Kind: "MeshService", Name: b.Service, Tags: b.Tags, Weight: &b.Weight}
		if len(b.Tags) > 0 {
			ref.Kind = "MeshServiceSubset"
		}
		rule.Default.BackendRefs = append(rule.Default.BackendRefs, ref)
	}
	to := resource.RouteTo{TargetRef: resource.TargetRef{Kind: "MeshService", Name: destination}, Rules: []resource.RouteRule{rule}}
	return formats.Encode(format, resource.Object{Key: key, Spec: &resource.MeshTCPRoute{To: []resource.RouteTo{to}}})
}
