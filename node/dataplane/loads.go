package dataplane

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"penstock/routing"
	"penstock/routing/load"
	"penstock/routing/resource"
)

// loads are the servers whose load is read.
type loads struct {
	scraper *load.Scraper
	targets map[string][]load.Target // by service
}

func newLoads() loads { return loads{load.New(load.Config{}), map[string][]load.Target{}} }

// update reads the load of the servers of these services as the table has them now.
func (l *loads) update(services []string, table *routing.Table) {
	changed := false
	for _, name := range services {
		var targets []load.Target
		if s, ok := table.Service(name); ok {
			targets = loadTargets(s)
		}
		changed = changed || len(targets) > 0 || len(l.targets[name]) > 0
		if len(targets) > 0 {
			l.targets[name] = targets
		} else {
			delete(l.targets, name)
		}
	}
	if changed {
		l.scraper.Set(slices.Concat(slices.Collect(maps.Values(l.targets))...))
	}
}

// loadTargets returns the servers of a service whose load is to be read. Those at unix
// sockets have no port for it.
func loadTargets(s *routing.Service) []load.Target {
	spec := s.Spec().MySQL.Load
	if spec == nil || s.Spec().Protocol != resource.ProtocolMySQL {
		return nil
	}
	// Cloned because a running check keeps the string, and with it the whole document.
	check := &load.Check{Path: strings.Clone(spec.Path), Timeout: spec.Timeout.D(), Rules: *loadRules(spec)}
	var targets []load.Target
	for _, m := range s.Members() {
		if !m.Addr.IsValid() {
			continue
		}
		at := netip.AddrPortFrom(m.Addr.Addr(), spec.PortOf(m.Tags)).String()
		targets = append(targets, load.Target{Group: s.Group(), Endpoint: m.Endpoint, Address: at, Check: check})
	}
	return targets
}

// loadRules returns the rules of a service; nil: the load does not count.
func loadRules(l *resource.ServiceLoad) *load.Rules {
	if l == nil {
		return nil
	}
	return &load.Rules{
		CPU: !l.CPU.Ignore, MoveCPU: !l.CPU.Ignore && *l.CPU.MovesPerSecond > 0,
		Memory: !l.Memory.Ignore, MoveMemory: !l.Memory.Ignore && *l.Memory.MovesPerSecond > 0,
		High: float64(*l.CPU.High) / 100, Gap: float64(l.CPU.Gap) / 100,
		MemoryHigh: float64(l.Memory.High) / 100, Interval: l.Interval.D(),
	}
}
