package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/routing"
)

// addServiceState adds to the columns of services what is in force: how many
// endpoints are usable, their sources, and the routes.
func addServiceState(c columns, rows [][]string, services []routing.TopologyService) columns {
	at, end := slices.Index(c.heading, "ENDPOINTS"), slices.Index(c.heading, "CHECK")+1
	byName := map[string]*routing.TopologyService{}
	for i := range services {
		byName[services[i].Name] = &services[i]
	}
	for i, row := range rows {
		s := byName[row[0]]
		if s == nil { // the node is behind
			rows[i] = slices.Insert(row, end, "", "")
			continue
		}
		row[at] = fmt.Sprintf("%d/%d", s.Usable, s.Endpoints)
		rows[i] = slices.Insert(row, end, strings.Join(s.Sources, ","), strings.Join(s.Policies, ","))
	}
	c.heading = slices.Insert(c.heading, end, "FROM", "ROUTES")
	return c
}

// printServiceViews shows services with what is in force; one service with what
// leads to it and from it, and its endpoints.
func printServiceViews(cmd *cobra.Command, t *target, r *api.GetResult, g *getFlags, one bool) error {
	req := api.TopologyRequest{Stale: g.stale, ServicesOnly: !one}
	if one && len(r.Documents) == 1 {
		req.Service = r.Documents[0].Name
	}
	topology, err := ask[api.TopologyResult](cmd, t, api.MethodTopology, req)
	var refusal *api.Error
	switch {
	case errors.As(err, &refusal) && refusal.Code == api.Unknown: // a node of an older version
		return printResources(cmd.OutOrStdout(), r, g.output, one)
	case err != nil:
		return err
	}
	c := columnsOf(r.Kind, g.output == "wide")
	rows := make([][]string, len(r.Documents))
	for i, d := range r.Documents {
		o, err := decodeDocument(d)
		if err != nil {
			return err
		}
		rows[i] = c.row(o)
	}
	w := cmd.OutOrStdout()
	printTable(w, addServiceState(c, rows, topology.Services).heading, rows)
	if !one {
		return nil
	}
	return printService(cmd, t, w, req.Service, topology.Edges, g.output)
}

// printService shows the edges and the endpoints of a service.
func printService(cmd *cobra.Command, t *target, w io.Writer, name string, edges []routing.TopologyEdge, output string) error {
	if len(edges) > 0 {
		fmt.Fprintln(w)
		printEdges(w, edges)
	}
	list, err := ask[api.Endpoints](cmd, t, api.MethodEndpoints, api.EndpointsRequest{Service: name})
	if err != nil || len(*list) == 0 {
		return err
	}
	fmt.Fprintln(w)
	printEndpoints(w, *list, output)
	return nil
}
