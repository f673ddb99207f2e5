package ops

import (
	"context"
	"fmt"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/telemetry"
)

const (
	// trafficAge is how old what is said about traffic may be.
	trafficAge = 5 * time.Second
	// trafficWindow is what it is about.
	trafficWindow = time.Minute
	// Less than failuresLeast connections, or less than failuresShare of them, are no
	// problem: single clients fail for reasons of their own.
	failuresLeast = 5
	failuresShare = 0.05
	// failuresGrave is the share from which a problem is an error.
	failuresGrave = 0.5
)

// ordinaryEnds are the reasons (docs/reasons.md) that are no failure of the cluster or of
// what is behind it. Every other one is.
var ordinaryEnds = map[string]bool{
	"client_fin": true, "upstream_fin": true, "drained": true, "shutdown": true, "endpoint_removed": true, "acme_challenge": true, "identity_revoked": true,
	"idle_timeout": true, "half_closed_timeout": true, "max_age": true, "client_reset": true, "client_gone": true, "permission_revoked": true,
	"closed_by_operator": true,
}

// failures returns which services and listeners had connections that failed in the last
// minute, on all nodes that answer.
func (p *problems) failures(ctx context.Context) (list []api.Problem) {
	query := func(metric string, by ...string) telemetry.Query {
		return telemetry.Query{Metric: metric, By: by, Since: trafficWindow, Step: telemetry.CoarseStep}
	}
	counts := trafficCounts{ended: map[[2]string]map[string]float64{}, routed: map[string]float64{}}
	for _, one := range []struct {
		query telemetry.Query
		add   func(labels []string, n float64)
	}{
		{query("penstock_connections_total", "listener", "service", "result"), counts.addEnded},
		{query("penstock_routed_connections_total", "service"), func(labels []string, n float64) { counts.routed[labels[0]] += n }},
	} {
		// A metric that no node has yet is an error, and no problem.
		r, err := p.history.all(ctx, &api.TelemetryRequest{Queries: []telemetry.Query{one.query}})
		if err != nil || len(r.Frames) != 1 {
			continue
		}
		for _, g := range r.Frames[0].Groups {
			var n float64
			for _, v := range g.Values {
				n += v
			}
			if n > 0 {
				one.add(g.Labels, n)
			}
		}
	}
	return counts.problems()
}

// trafficCounts are the connections of the last minute.
type trafficCounts struct {
	// ended has those that ended by reason, of a service, or of a listener for those that
	// had none: {"Service", name} or {"Listener", name}.
	ended  map[[2]string]map[string]float64
	routed map[string]float64 // those that began, by service
}

// addEnded adds those with the labels listener, service and result.
func (c *trafficCounts) addEnded(labels []string, n float64) {
	about := [2]string{"Service", labels[1]}
	if labels[1] == "" {
		about = [2]string{"Listener", labels[0]}
	}
	if c.ended[about] == nil {
		c.ended[about] = map[string]float64{}
	}
	c.ended[about][labels[2]] += n
}

// problems returns the failures that are many. Those of a service are compared with the
// connections that came to it, those of a listener with the ones that ended without a
// service.
func (c *trafficCounts) problems() (list []api.Problem) {
	for about, reasons := range c.ended {
		var of, failed float64
		for reason, n := range reasons {
			if !ordinaryEnds[reason] {
				failed += n
			}
			of += n
		}
		what := "connections without a service"
		if about[0] == "Service" {
			of, what = max(c.routed[about[1]], failed), "new connections"
		}
		for reason, n := range reasons {
			if ordinaryEnds[reason] || n < failuresLeast || n < failuresShare*of {
				continue
			}
			one := api.Problem{
				Severity: api.SeverityWarning, About: about[0] + "/" + about[1],
				Text: fmt.Sprintf("%.0f %% of %s to %s failed with %s in the last minute (%.0f of %.0f).",
					100*n/of, what, strings.Join(about[:], " "), reason, n, of),
				Command: fmt.Sprintf("penstock logs --%s %s --reason %s --since 1m", strings.ToLower(about[0]), about[1], reason),
			}
			if n >= failuresGrave*of && about[0] == "Service" {
				one.Severity = api.SeverityError
			}
			list = append(list, one)
		}
	}
	return list
}
