package kafka

import (
	"fmt"
	"slices"
	"strings"

	"penstock/kafka/model"
	"penstock/routing/resource"
)

// ActiveElsewhere returns how many connections a virtual cluster has on other nodes.
type ActiveElsewhere func(cluster string) int64

// DiffSummary says what changes of clusters do to connections, a line for each
// change that does something. elsewhere may be nil: there are no other nodes.
func (r *Proxy) DiffSummary(changes []resource.Change, elsewhere ActiveElsewhere) (lines []string) {
	if elsewhere == nil {
		elsewhere = func(string) int64 { return 0 }
	}
	for i := range changes {
		line := ""
		switch c := &changes[i]; c.Kind {
		case model.KindVirtual:
			line = r.summarizeVirtual(c, elsewhere)
		case model.KindPhysical:
			line = r.summarizePhysical(c, elsewhere)
		}
		if line != "" {
			lines = append(lines, "Kafka: "+line)
		}
	}
	return lines
}

// summarizeVirtual says what a change of a virtual cluster does; "": nothing.
func (r *Proxy) summarizeVirtual(c *resource.Change, elsewhere ActiveElsewhere) string {
	now, ok := r.Table().Virtual(c.Name)
	next, _ := c.Spec.(*model.VirtualCluster)
	switch {
	case c.Delete && !ok, !c.Delete && next == nil:
		return ""
	case !ok:
		return "the virtual cluster " + c.Name + " accepts new connections"
	}
	active := r.activeConnections(now, elsewhere)
	if c.Delete {
		return fmt.Sprintf("new connections to the virtual cluster %s are closed; %s over %s",
			c.Name, connectionsAre(active, "drained"), now.Spec().Drain.Window.D())
	}
	return c.Name + ": " + summarizeUpdate(now.Spec(), next.WithDefaults(), active)
}

// summarizeUpdate says what another version of a virtual cluster does.
func summarizeUpdate(old, next *model.VirtualCluster, active int64) string {
	switch {
	case old.PhysicalClusterRef != next.PhysicalClusterRef:
		return fmt.Sprintf("new connections go to the physical cluster %s; %s over %s",
			next.PhysicalClusterRef, connectionsAre(active, "drained"), next.Drain.Window.D())
	case !resource.Same(old.Brokers, next.Brokers):
		return fmt.Sprintf("clients see other brokers or addresses; of %d connections, those whose broker is gone are drained over %s",
			active, next.Drain.Window.D())
	case !resource.Same(old.Filters, next.Filters):
		return "new connections get the new filters; " + connectionsAre(active, "kept") + keptFilters
	}
	return connectionsAre(active, "kept") + ", settings that can change during use apply from the next request on"
}

// keptFilters says which filters the connections have that are kept.
const keptFilters = ", with the new filter settings if every filter accepts the change, otherwise with the old ones"

// summarizePhysical says what another version of a physical cluster does to the
// virtual clusters that refer to it; "": there are none. It cannot be deleted
// while there are.
func (r *Proxy) summarizePhysical(c *resource.Change, elsewhere ActiveElsewhere) string {
	now, ok := r.Table().Physical(c.Name)
	next, _ := c.Spec.(*model.PhysicalCluster)
	if !ok || c.Delete || next == nil {
		return ""
	}
	active, names := int64(0), []string(nil)
	for v := range r.Table().Virtuals() {
		if v.Physical().State() == now.State() {
			names, active = append(names, v.Name()), active+r.activeConnections(v, elsewhere)
		}
	}
	if len(names) == 0 {
		return ""
	}
	old, kept := now.Spec(), connectionsAre(active, "kept")
	next = next.WithDefaults()
	var effects []string
	if !resource.Same(old.Brokers, next.Brokers) || !resource.Same(old.Bootstrap, next.Bootstrap) ||
		!resource.Same(old.TLS, next.TLS) || !resource.Same(old.Connect, next.Connect) {
		effects = append(effects, "new connections to brokers use the new settings")
	}
	if !resource.Same(old.Filters, next.Filters) {
		effects = append(effects, "new connections get the new filters")
		kept += keptFilters
	}
	if !resource.Same(old.Discovery, next.Discovery) {
		effects = append(effects, "broker discovery uses the new settings")
	}
	return fmt.Sprintf("the physical cluster %s of %s: %s", c.Name, nameVirtuals(names), strings.Join(append(effects, kept), "; "))
}

// maxNames bounds the names in one line.
const maxNames = 3

// nameVirtuals counts virtual clusters and names the first ones.
func nameVirtuals(names []string) string {
	slices.Sort(names)
	if len(names) == 1 {
		return "the virtual cluster " + names[0]
	}
	first := names[:min(len(names), maxNames)]
	text := fmt.Sprintf("%d virtual clusters (%s", len(names), strings.Join(first, ", "))
	if more := len(names) - len(first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ")"
}

// activeConnections counts the connections of a virtual cluster on all nodes.
func (r *Proxy) activeConnections(v *model.Virtual, elsewhere ActiveElsewhere) int64 {
	return r.clusters.of(v.State()).open.Load() + elsewhere(v.Name())
}

// connectionsAre says what happens to n connections.
func connectionsAre(n int64, what string) string {
	if n == 1 {
		return "1 connection is " + what
	}
	return fmt.Sprintf("%d connections are %s", n, what)
}
