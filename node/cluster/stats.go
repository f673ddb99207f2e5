package cluster

import "penstock/node/mux"

// PortStats counts what came to the cluster port.
func (c *Cluster) PortStats() mux.Stats { return c.port.Stats() }
