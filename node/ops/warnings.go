package ops

import (
	"fmt"

	"penstock/kafka/model"
	"penstock/node/api"
	"penstock/routing/resource"
)

// maxFrameWarnings warns of virtual clusters whose explicit maxFrame exceeds the memory
// budget of this node: it would refuse such a frame if the frame has to be
// collected. The default of maxFrame causes no warning.
func (c *changes) maxFrameWarnings(objects []resource.Object) (warnings []api.Fault) {
	budget := c.data.Engine.Stats().BudgetBulk
	for i := range objects {
		v, ok := objects[i].Spec.(*model.VirtualCluster)
		if ok && int64(v.MaxFrame) > budget {
			warnings = append(warnings, api.Fault{
				Key: objects[i].String(), Path: "spec.maxFrame", Value: v.MaxFrame.String(),
				Message: "exceeds the share of frames in the memory budget of node " + c.peers.self.Name + ", " + resource.Size(budget).String() +
					": a larger frame that a filter needs whole is refused",
			})
		}
	}
	return warnings
}

// unplacedWarnings warns of virtual clusters without a port for one of the brokers that
// this node knows in their physical cluster.
func (c *changes) unplacedWarnings(objects []resource.Object) (warnings []api.Fault) {
	for i := range objects {
		v, ok := objects[i].Spec.(*model.VirtualCluster)
		if !ok {
			continue
		}
		if path, message, value := c.data.Kafka.Table().WarnUnmapped(v); path != "" {
			warnings = append(warnings, api.Fault{Key: objects[i].String(), Path: path, Message: message, Value: fmt.Sprint(value)})
		}
	}
	return warnings
}
