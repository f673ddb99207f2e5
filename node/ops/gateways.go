package ops

import (
	"encoding/json"
	"time"

	"penstock/netio"
	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// maxProblems bounds the Gateway API problems that status lists.
const maxProblems = 100

// Gateways computes the state of Gateway API objects on a node: their status
// field, and the problems that the status method lists.
type Gateways struct {
	Node   string // name of the node
	Bind   string // host of listeners whose address has none
	Engine *netio.Engine
}

// problems describes what is not in force of the Gateway API objects.
func (g *Gateways) problems(set *validate.Set) (list []string) {
	var statuses *gateway.Statuses
	for _, kind := range []string{gateway.KindGateway, gateway.KindTLSRoute, gateway.KindTCPRoute} {
		if set.Count(kind) == 0 {
			continue
		}
		if statuses == nil {
			statuses = gateway.NewStatuses(set, g.failed())
		}
		for o := range set.All(kind) {
			for _, text := range gateway.Problems(statuses.Status(&o, 0, time.Time{})) {
				if len(list) == maxProblems {
					return append(list, "and more")
				}
				list = append(list, o.String()+": "+text)
			}
		}
	}
	return list
}

// failed returns the errors of the Gateways' listeners that this node cannot open.
func (g *Gateways) failed() gateway.ListenFailure {
	failed := map[string]string{}
	for _, l := range g.Engine.Listeners() {
		if l.Err != nil && gateway.IsListener(l.Name) {
			failed[l.Name] = g.Node + ": " + l.Err.Error()
		}
	}
	return func(listener string) string { return failed[listener] }
}

// Status returns a function that computes the status of a Gateway API object, as
// JSON, at the time of the call to Status: from the objects in set, and from
// whether this node listens on their addresses.
func (g *Gateways) Status(set *validate.Set) func(o *resource.Object, since time.Time) []byte {
	statuses := gateway.NewStatuses(set, g.failed()).WithBindAddress(g.Bind)
	return func(o *resource.Object, since time.Time) []byte {
		status := statuses.Status(o, o.Version, since)
		if status == nil {
			return nil
		}
		text, err := json.Marshal(status)
		if err != nil {
			return nil // cannot happen: texts and numbers only
		}
		return text
	}
}
