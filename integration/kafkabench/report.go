package main

import "penstock/internal/testkit/figures"

// goals records the figures of a measure: medians over the rounds of each
// round's ratio or difference.
func (m *measure) goals(e *env, got map[string][]sample) {
	direct, own, tenant := got["direct"], got["penstock"], got["penstock, tenant"]
	if len(own) == 0 {
		return
	}
	var ratios, cpu, more []float64
	for i, s := range own {
		ratios, cpu = append(ratios, s.value/direct[i].value), append(cpu, m.scale(s.cpu))
		if i < len(tenant) {
			added := m.scale(tenant[i].cpu - s.cpu)
			if m.unit == perGB {
				added /= m.scale(s.cpu)
			}
			more = append(more, added)
		}
	}
	e.goals.Add(m.name+", times direct", figures.Median(ratios), m.sign, m.goal, "")
	if m.cpu > 0 {
		e.goals.Add(m.name+", CPU", figures.Median(cpu), figures.AtMost, m.cpu, m.unit)
	}
	if m.tenant > 0 && len(more) > 0 {
		name, unit := m.name+", CPU that MultiTenant adds", m.unit
		if m.unit == perGB {
			name, unit = name+", as a part", ""
		}
		e.goals.Add(name, figures.Median(more), figures.AtMost, m.tenant, unit)
	}
}
