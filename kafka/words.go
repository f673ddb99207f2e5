package kafka

import (
	"fmt"

	"penstock/kafka/model"
	"penstock/routing/resource"
)

// Words tells, a line for each, what changes of virtual clusters do to
// connections, as far as this node has some.
func (r *Room) Words(changes []resource.Change) (lines []string) {
	for i := range changes {
		c := &changes[i]
		if c.Kind != model.KindVirtual {
			continue
		}
		now, ok := r.Table().Virtual(c.Name)
		next, _ := c.Spec.(*model.VirtualCluster)
		switch {
		case c.Delete && !ok, !c.Delete && next == nil:
		case !ok:
			lines = append(lines, "Kafka: the virtual cluster "+c.Name+" takes new connections")
		case c.Delete:
			lines = append(lines, fmt.Sprintf("Kafka: new connections to the virtual cluster %s are closed; %s over %s", c.Name, r.open(now, "sent away"), now.Spec().Drain.Window.D()))
		default:
			lines = append(lines, "Kafka: "+c.Name+": "+r.changed(now, next))
		}
	}
	return lines
}

// changed tells what another version does.
func (r *Room) changed(now *model.Virtual, next *model.VirtualCluster) string {
	old := now.Spec()
	next = next.WithDefaults()
	switch {
	case old.PhysicalClusterRef != next.PhysicalClusterRef:
		return fmt.Sprintf("new connections go to the physical cluster %s; %s over %s", next.PhysicalClusterRef, r.open(now, "sent away"), next.Drain.Window.D())
	case !resource.Same(old.Brokers, next.Brokers):
		return fmt.Sprintf("clients are told of other brokers or addresses; of %s those whose broker is gone are sent away over %s", r.open(now, "open"), next.Drain.Window.D())
	case !resource.Same(old.Filters, next.Filters):
		return "new connections get the new filters; " + r.open(now, "kept") + ", with the new settings where each filter takes them, else as they began"
	}
	return r.open(now, "kept") + ", settings that can change while in use act from the next request on"
}

// open counts the connections of a virtual cluster on this node.
func (r *Room) open(v *model.Virtual, what string) string {
	return fmt.Sprintf("%d connections on this node are %s", r.clusters.of(v.Life()).open.Load(), what)
}
