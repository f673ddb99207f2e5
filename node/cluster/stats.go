package cluster

import "penstock/node/port"

// PortStats counts what came to the cluster port.
func (c *Cluster) PortStats() port.Stats { return c.port.Stats() }
