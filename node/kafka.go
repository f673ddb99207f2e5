package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"penstock/kafka/model"
	"penstock/node/admin"
	"penstock/routing/resource"
)

// virtualClusters tells how the virtual clusters do.
func (n *Node) virtualClusters() []admin.VirtualClusterStatus {
	var out []admin.VirtualClusterStatus
	for _, c := range n.data.Kafka.Status() {
		s := admin.VirtualClusterStatus{
			Name: c.Name, PhysicalCluster: c.Physical, Filters: c.Filters, Error: c.Err, Brokers: []admin.VirtualBrokerStatus{},
			Connections: c.Connections,
		}
		for _, b := range c.Brokers {
			s.Brokers = append(s.Brokers, admin.VirtualBrokerStatus{
				Name: b.Name, Endpoint: b.Advertised, Address: b.Address, Connections: b.Connections, Error: b.Err,
			})
		}
		out = append(out, s)
	}
	return out
}

// crowding warns of virtual clusters among some that ask for frames larger than
// all the memory of this node: one that has to be collected would be refused
// whatever maxFrame says. The default is not what anybody asked for.
func (n *Node) crowding(objects []resource.Object) (warnings []admin.Fault) {
	budget := n.data.Engine.Stats().BudgetBulk
	for i := range objects {
		v, ok := objects[i].Spec.(*model.VirtualCluster)
		if ok && int64(v.MaxFrame) > budget {
			warnings = append(warnings, admin.Fault{
				Key: objects[i].String(), Path: "spec.maxFrame", Value: v.MaxFrame.String(),
				Message: "is more than frames may have of the memory budget of node " + n.cfg.Name + ", " + resource.Size(budget).String() +
					": a frame that a filter wants whole is refused above that",
			})
		}
	}
	return warnings
}

// unplaced warns of virtual clusters among some that have no port for a broker
// that this node knows of their physical cluster.
func (n *Node) unplaced(objects []resource.Object) (warnings []admin.Fault) {
	for i := range objects {
		v, ok := objects[i].Spec.(*model.VirtualCluster)
		if !ok {
			continue
		}
		if path, message, value := n.data.Kafka.Table().WarnUnplaced(v); path != "" {
			warnings = append(warnings, admin.Fault{Key: objects[i].String(), Path: path, Message: message, Value: fmt.Sprint(value)})
		}
	}
	return warnings
}

// clusterTotals are the requests, errors and throttled answers of each virtual
// cluster since start.
func (n *Node) clusterTotals() map[string][3]uint64 {
	totals := map[string][3]uint64{}
	for _, c := range n.data.Kafka.Counts() {
		t := totals[c.Cluster]
		for i := range c.APIs {
			t[0] += c.APIs[i].Requests
			t[1] += c.APIs[i].Errors
		}
		t[2] += c.Throttled
		totals[c.Cluster] = t
	}
	return totals
}

// clusterRates makes rates of two totals, by name.
func clusterRates(last, next map[string][3]uint64, over time.Duration) []admin.ClusterRate {
	var out []admin.ClusterRate
	for _, name := range slices.Sorted(maps.Keys(next)) {
		was, is := last[name], next[name]
		if is[0] == 0 {
			continue
		}
		rate := func(i int) float64 { return float64(int64(is[i]-was[i])) / over.Seconds() }
		out = append(out, admin.ClusterRate{Name: name, Requests: rate(0), Errors: rate(1), Throttled: rate(2)})
	}
	return out
}
