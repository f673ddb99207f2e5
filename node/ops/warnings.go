package ops

import (
	"fmt"

	"penstock/kafka/model"
	"penstock/node/admin"
	"penstock/routing/resource"
)

import ()

// crowding warns of virtual clusters among some that ask for frames larger than
// all the memory of this node: one that has to be collected would be refused
// whatever maxFrame says. The default is not what anybody asked for.
func (c *changes) crowding(objects []resource.Object) (warnings []admin.Fault) {
	budget := c.data.Engine.Stats().BudgetBulk
	for i := range objects {
		v, ok := objects[i].Spec.(*model.VirtualCluster)
		if ok && int64(v.MaxFrame) > budget {
			warnings = append(warnings, admin.Fault{
				Key: objects[i].String(), Path: "spec.maxFrame", Value: v.MaxFrame.String(),
				Message: "is more than frames may have of the memory budget of node " + c.peers.self.Name + ", " + resource.Size(budget).String() +
					": a frame that a filter wants whole is refused above that",
			})
		}
	}
	return warnings
}

// unplaced warns of virtual clusters among some that have no port for a broker
// that this node knows of their physical cluster.
func (c *changes) unplaced(objects []resource.Object) (warnings []admin.Fault) {
	for i := range objects {
		v, ok := objects[i].Spec.(*model.VirtualCluster)
		if !ok {
			continue
		}
		if path, message, value := c.data.Kafka.Table().WarnUnplaced(v); path != "" {
			warnings = append(warnings, admin.Fault{Key: objects[i].String(), Path: path, Message: message, Value: fmt.Sprint(value)})
		}
	}
	return warnings
}
