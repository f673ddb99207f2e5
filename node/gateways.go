package node

import (
	"encoding/json"
	"time"

	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// gatewayStatus tells the status of objects of the Gateway API as of a moment:
// what follows from the objects, and whether this node listens where they say.
func (n *Node) gatewayStatus(set *resource.Set) func(o *resource.Object, since time.Time) []byte {
	failed := map[string]string{}
	for _, l := range n.engine.Listeners() {
		if l.Err != nil && gateway.IsListener(l.Name) {
			failed[l.Name] = n.cfg.Name + ": " + l.Err.Error()
		}
	}
	statuses := gateway.NewStatuses(set, func(listener string) string { return failed[listener] })
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
