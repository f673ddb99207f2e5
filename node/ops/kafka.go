package ops

import (
	"maps"
	"slices"
	"time"

	"penstock/kafka"
	"penstock/node/api"
)

// virtualClusters returns the status of the virtual clusters.
func virtualClusters(proxy *kafka.Proxy) []api.VirtualClusterStatus {
	var out []api.VirtualClusterStatus
	for _, c := range proxy.Status() {
		s := api.VirtualClusterStatus{
			Name: c.Name, PhysicalCluster: c.Physical, Filters: c.Filters, Error: c.Err, Brokers: []api.VirtualBrokerStatus{},
			Connections: c.Connections,
		}
		for _, b := range c.Brokers {
			s.Brokers = append(s.Brokers, api.VirtualBrokerStatus{
				Name: b.Name, Endpoint: b.Advertised, Address: b.Address, Connections: b.Connections, Error: b.Err,
			})
		}
		out = append(out, s)
	}
	return out
}

// clusterTotals returns the requests, errors and throttled responses of each
// virtual cluster since start.
func clusterTotals(proxy *kafka.Proxy) map[string][3]uint64 {
	totals := map[string][3]uint64{}
	for _, c := range proxy.Counts() {
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

// clusterRates computes the rates between two totals, sorted by name.
func clusterRates(last, next map[string][3]uint64, over time.Duration) []api.ClusterRate {
	var out []api.ClusterRate
	for _, name := range slices.Sorted(maps.Keys(next)) {
		was, is := last[name], next[name]
		if is[0] == 0 {
			continue
		}
		rate := func(i int) float64 { return float64(int64(is[i]-was[i])) / over.Seconds() }
		out = append(out, api.ClusterRate{Name: name, Requests: rate(0), Errors: rate(1), Throttled: rate(2)})
	}
	return out
}
