package ops

import (
	"encoding/json"
	"time"

	"penstock/netio"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// maxProblems bounds what status tells of the Gateway API.
const maxProblems = 100

// Gateways tells how the objects of the Gateway API do on a node: the status that
// others read off them, and the problems that status lists.
type Gateways struct {
	Node   string // name of the node
	Bind   string // host of listeners whose address has none
	Engine *netio.Engine
}

// problems says what of the Gateway API's objects does not act, in words.
func (g *Gateways) problems(set *resource.Set) (words []string) {
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
				if len(words) == maxProblems {
					return append(words, "and more")
				}
				words = append(words, o.String()+": "+text)
			}
		}
	}
	return words
}

// failed says which listeners of Gateways this node cannot have.
func (g *Gateways) failed() gateway.ListenFailure {
	failed := map[string]string{}
	for _, l := range g.Engine.Listeners() {
		if l.Err != nil && gateway.IsListener(l.Name) {
			failed[l.Name] = g.Node + ": " + l.Err.Error()
		}
	}
	return func(listener string) string { return failed[listener] }
}

// Status tells the status of objects of the Gateway API as of a moment:
// what follows from the objects, and whether this node listens where they say.
func (g *Gateways) Status(set *resource.Set) func(o *resource.Object, since time.Time) []byte {
	statuses := gateway.NewStatuses(set, g.failed()).WithBindAddress(g.Bind)
	return func(o *resource.Object, since time.Time) []byte {
		status := statuses.Status(o, o.Version, since)
		if status == nil {
			return nil
		}
		text, err := json.Marshal(status)
		if err != nil {
			return nil // texts and numbers alone
		}
		return text
	}
}
