package cluster

import "penstock/node/mux"

// PortStats returns the counters of the cluster port.
func (c *Cluster) PortStats() mux.Stats { return c.port.Stats() }
