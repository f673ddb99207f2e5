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

// clearWarnings warns of collectors that are reached without TLS on other machines, as the
// user asked for.
func clearWarnings(objects []resource.Object) (warnings []api.Fault) {
	for i := range objects {
		t, ok := objects[i].Spec.(*resource.Telemetry)
		if !ok || !t.OTLP.Insecure {
			continue
		}
		target, err := resource.ParseOTLPEndpoint(t.OTLP.Endpoint)
		if err != nil || target.OnThisMachine() {
			continue
		}
		what := "what it sends"
		if len(t.OTLP.Headers) > 0 {
			what += ", with the values of its headers,"
		}
		warnings = append(warnings, api.Fault{
			Key: objects[i].String(), Path: "spec.otlp.insecure",
			Message: what + " can be read by everybody on the way to " + target.Host + ": prefer tls",
		})
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
