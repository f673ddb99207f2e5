package tiproxy

import (
	"math"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
)

// loadInterval is the time between two readings of a server's metrics, as TiProxy's.
const loadInterval = "5s"

// pace adds how fast sessions move for one of TiProxy's factors; 0 is the default, with
// which TiProxy computes it.
func (c *converter) pace(factor string, to mapping) {
	const most = 10_000
	if n := c.values["balance."+factor+".migrations-per-second"]; n != nil && number(n) > 0 {
		to.whole(n, "movesPerSecond", min(int(math.Ceil(number(n))), most))
	}
}

// load returns how the load of the servers counts; nil: it does not. With cluster-tls the
// port of their metrics has TLS of its own.
func (c *converter) load() *yaml.Node {
	off := func(path string) bool { return c.text(path) == "false" }
	if c.text("balance.policy") == "connection" || off("balance.cpu.enabled") && off("balance.memory.enabled") {
		return nil
	}
	if c.clusterTLS {
		if !c.loadWarned { // of the first service
			c.loadWarned = true
			from := c.at("security.cluster-tls.skip-ca")
			if n := c.values["security.cluster-tls.ca"]; n != nil {
				from = n
			}
			c.warn(from, "security.cluster-tls", "gives the servers' status port TLS, with which their CPU and memory "+
				"usage cannot be read: they do not count", nil)
		}
		return nil
	}
	load := newMapping(c.root)
	load.text(c.root, "interval", loadInterval)
	cpu, memory := c.cpu(), newMapping(c.root)
	if n := c.values["balance.memory.enabled"]; n != nil && n.Value == "false" {
		memory.isTrue(n, "ignore")
	}
	c.pace("memory", memory)
	if len(cpu.Node.Content) > 0 {
		load.Put(c.root, "cpu", cpu.Node)
	}
	if len(memory.Node.Content) > 0 {
		load.Put(c.root, "memory", memory.Node)
	}
	return load.Node
}

// cpu returns what the CPU usage changes. TiProxy's own rule, which the default values of
// its keys stand for, is close to the defaults here.
func (c *converter) cpu() mapping {
	cpu := newMapping(c.root)
	if n := c.values["balance.cpu.enabled"]; n != nil && n.Value == "false" {
		cpu.isTrue(n, "ignore")
	}
	if n := c.values["balance.cpu.min-balance-usage"]; n != nil && number(n) > 0 {
		cpu.whole(n, "high", int(math.Round(number(n)*100)))
	}
	if n := c.values["balance.cpu.max-usage-gap"]; n != nil && number(n) > 0 && number(n) < 1 {
		cpu.whole(n, "gap", max(int(math.Round(number(n)*100)), 5))
	}
	c.pace("cpu", cpu)
	return cpu
}

// load adds the settings of a service's load.
func (e *exporter) load(l *resource.ServiceLoad) {
	if l == nil {
		e.set("balance.cpu.enabled", false)
		e.set("balance.memory.enabled", false)
		return
	}
	if l.CPU.Ignore {
		e.set("balance.cpu.enabled", false)
	}
	if l.CPU.High != nil && *l.CPU.High > 0 {
		e.set("balance.cpu.min-balance-usage", float64(*l.CPU.High)/100)
	}
	if l.CPU.Gap > 0 {
		e.set("balance.cpu.max-usage-gap", float64(l.CPU.Gap)/100)
	}
	if l.Memory.Ignore {
		e.set("balance.memory.enabled", false)
	}
	for factor, n := range map[string]*int{"cpu": l.CPU.MovesPerSecond, "memory": l.Memory.MovesPerSecond} {
		if n != nil && *n > 0 {
			e.set("balance."+factor+".migrations-per-second", *n)
		}
	}
}
