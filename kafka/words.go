package kafka

import (
	"fmt"
	"slices"
	"strings"

	"penstock/kafka/model"
	"penstock/routing/resource"
)

// ActiveElsewhere tells how many connections a virtual cluster has on other nodes.
type ActiveElsewhere func(cluster string) int64

// DiffSummary tells, a line for each, what changes of clusters do to connections.
// held may be nil: there are no other nodes.
func (r *Proxy) DiffSummary(changes []resource.Change, held ActiveElsewhere) (lines []string) {
	if held == nil {
		held = func(string) int64 { return 0 }
	}
	for i := range changes {
		line := ""
		switch c := &changes[i]; c.Kind {
		case model.KindVirtual:
			line = r.virtualWords(c, held)
		case model.KindPhysical:
			line = r.physicalWords(c, held)
		}
		if line != "" {
			lines = append(lines, "Kafka: "+line)
		}
	}
	return lines
}

// virtualWords tells what a change of a virtual cluster does; "": nothing.
func (r *Proxy) virtualWords(c *resource.Change, held ActiveElsewhere) string {
	now, ok := r.Table().Virtual(c.Name)
	next, _ := c.Spec.(*model.VirtualCluster)
	switch {
	case c.Delete && !ok, !c.Delete && next == nil:
		return ""
	case !ok:
		return "the virtual cluster " + c.Name + " takes new connections"
	}
	open := r.open(now, held)
	if c.Delete {
		return fmt.Sprintf("new connections to the virtual cluster %s are closed; %s over %s", c.Name, are(open, "sent away"), now.Spec().Drain.Window.D())
	}
	return c.Name + ": " + changed(now.Spec(), next.WithDefaults(), open)
}

// changed tells what another version of a virtual cluster does.
func changed(old, next *model.VirtualCluster, open int64) string {
	switch {
	case old.PhysicalClusterRef != next.PhysicalClusterRef:
		return fmt.Sprintf("new connections go to the physical cluster %s; %s over %s", next.PhysicalClusterRef, are(open, "sent away"), next.Drain.Window.D())
	case !resource.Same(old.Brokers, next.Brokers):
		return fmt.Sprintf("clients are told of other brokers or addresses; of %d connections those whose broker is gone are sent away over %s", open, next.Drain.Window.D())
	case !resource.Same(old.Filters, next.Filters):
		return "new connections get the new filters; " + are(open, "kept") + asFilters
	}
	return are(open, "kept") + ", settings that can change while in use act from the next request on"
}

// asFilters says what becomes of connections that are kept beside new filters.
const asFilters = ", with the new settings where each filter takes them, else as they began"

// physicalWords tells what another version of a physical cluster does to the
// virtual clusters that stand for it; "": there are none. One is not deleted
// while there are.
func (r *Proxy) physicalWords(c *resource.Change, held ActiveElsewhere) string {
	now, ok := r.Table().Physical(c.Name)
	next, _ := c.Spec.(*model.PhysicalCluster)
	if !ok || c.Delete || next == nil {
		return ""
	}
	open, names := int64(0), []string(nil)
	for v := range r.Table().Virtuals() {
		if v.Physical().Life() == now.Life() {
			names, open = append(names, v.Name()), open+r.open(v, held)
		}
	}
	if len(names) == 0 {
		return ""
	}
	old, kept := now.Spec(), are(open, "kept")
	next = next.WithDefaults()
	var effects []string
	if !resource.Same(old.Brokers, next.Brokers) || !resource.Same(old.Bootstrap, next.Bootstrap) ||
		!resource.Same(old.TLS, next.TLS) || !resource.Same(old.Connect, next.Connect) {
		effects = append(effects, "new connections reach the brokers by the new settings")
	}
	if !resource.Same(old.Filters, next.Filters) {
		effects = append(effects, "new connections get the new filters")
		kept += asFilters
	}
	if !resource.Same(old.Discovery, next.Discovery) {
		effects = append(effects, "brokers are looked for by the new settings")
	}
	return fmt.Sprintf("the physical cluster %s of %s: %s", c.Name, listed(names), strings.Join(append(effects, kept), "; "))
}

// maxListed bounds the names in one line.
const maxListed = 3

// listed counts virtual clusters and names the first ones.
func listed(names []string) string {
	slices.Sort(names)
	if len(names) == 1 {
		return "the virtual cluster " + names[0]
	}
	some := names[:min(len(names), maxListed)]
	text := fmt.Sprintf("%d virtual clusters (%s", len(names), strings.Join(some, ", "))
	if more := len(names) - len(some); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ")"
}

// open counts the connections of a virtual cluster on all nodes.
func (r *Proxy) open(v *model.Virtual, held ActiveElsewhere) int64 {
	return r.clusters.of(v.Life()).open.Load() + held(v.Name())
}

// are says what becomes of so many connections.
func are(open int64, what string) string {
	if open == 1 {
		return "1 connection is " + what
	}
	return fmt.Sprintf("%d connections are %s", open, what)
}
