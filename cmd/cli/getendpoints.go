package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
)

// isEndpoints reports whether KIND asks for endpoints, which are no resources.
func isEndpoints(kind string) bool {
	return strings.EqualFold(kind, "endpoints") || strings.EqualFold(kind, "endpoint")
}

// getEndpoints shows the endpoints of a service, or of all.
func getEndpoints(cmd *cobra.Command, t *target, service, output string) error {
	if output != "table" && output != "wide" && output != "json" {
		return usagef("-o %s: endpoints are shown as table, wide or json", output)
	}
	list, err := ask[api.Endpoints](cmd, t, api.MethodEndpoints, api.EndpointsRequest{Service: service})
	if err != nil {
		return err
	}
	if output == "json" {
		return printJSON(cmd.OutOrStdout(), list)
	}
	printEndpoints(cmd.OutOrStdout(), *list, output)
	return nil
}

// printEndpoints prints endpoints as a table.
func printEndpoints(w io.Writer, list api.Endpoints, output string) {
	heading := []string{"SERVICE", "ADDRESS", "SOURCE", "SINCE", "STATE", "HEALTH", "WEIGHT", "PRIORITY", "ZONE"}
	if output == "wide" {
		heading = append(heading, "RESOLVED", "CONNECTIONS", "LOAD", "TAGS")
	}
	rows := make([][]string, 0, len(list))
	for _, e := range list {
		row := []string{
			e.Service, e.Address, strings.Join(append([]string{e.Source}, e.AlsoFrom...), ","), ageText(e.Since), e.State, e.Health,
			strconv.Itoa(e.Weight), priorityText(e), e.Zone,
		}
		if output == "wide" {
			row = append(row, e.Resolved, connectionsText(e), e.Load, tagText(e.Tags))
		}
		rows = append(rows, row)
	}
	printTable(w, heading, rows)
}

// connectionsText shows connections and their bound.
func connectionsText(e api.Endpoint) string {
	n := strconv.FormatInt(e.Connections, 10)
	if e.Bound > 0 {
		n += "/" + strconv.Itoa(e.Bound)
	}
	return n
}

// priorityText shows a priority and its share of the connections.
func priorityText(e api.Endpoint) string {
	text := strconv.Itoa(e.Priority)
	if e.Backup {
		text = "backup " + text
	}
	return fmt.Sprintf("%s (%.4g %%)", text, e.LevelShare)
}

// ageText shows how long ago a time is.
func ageText(at *time.Time) string {
	if at == nil {
		return ""
	}
	return time.Since(*at).Round(time.Second).String()
}

// tagText shows tags, sorted.
func tagText(tags map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, sanitize(fmt.Sprintf("%s=%s", k, tags[k])))
	}
	return strings.Join(parts, ",")
}
