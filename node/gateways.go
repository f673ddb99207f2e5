package node

import (
	"encoding/json"
	"time"

	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// maxProblems bounds what status tells of the Gateway API.
const maxProblems = 100

// gatewayProblems says what of the Gateway API's objects does not act, in words.
func (n *Node) gatewayProblems() (words []string) {
	set, _ := n.catalog.InForce()
	var statuses *gateway.Statuses
	for _, kind := range []string{gateway.KindGateway, gateway.KindTLSRoute, gateway.KindTCPRoute} {
		if set.Count(kind) == 0 {
			continue
		}
		if statuses == nil {
			statuses = gateway.NewStatuses(set, n.failedGateways())
		}
		for o := range set.All(kind) {
			for _, text := range gateway.Problems(statuses.Of(&o, 0, time.Time{})) {
				if len(words) == maxProblems {
					return append(words, "and more")
				}
				words = append(words, o.String()+": "+text)
			}
		}
	}
	return words
}

// failedGateways says which listeners of Gateways this node cannot have.
func (n *Node) failedGateways() gateway.Failed {
	failed := map[string]string{}
	for _, l := range n.data.Engine.Listeners() {
		if l.Err != nil && gateway.IsListener(l.Name) {
			failed[l.Name] = n.cfg.Name + ": " + l.Err.Error()
		}
	}
	return func(listener string) string { return failed[listener] }
}

// gatewayStatus tells the status of objects of the Gateway API as of a moment:
// what follows from the objects, and whether this node listens where they say.
func (n *Node) gatewayStatus(set *resource.Set) func(o *resource.Object, since time.Time) []byte {
	statuses := gateway.NewStatuses(set, n.failedGateways()).At(n.cfg.Bind)
	return func(o *resource.Object, since time.Time) []byte {
		status := statuses.Of(o, o.Version, since)
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
