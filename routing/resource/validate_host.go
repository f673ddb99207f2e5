package resource

import "penstock/routing/hostname"

// validateHost reports the faults of a Host alone.
func validateHost(h *Host, fault Report) {
	CheckFields(h, fault)
	CheckRef("listener", h.Listener, fault)
	checkServiceRef("service", h.Service, fault)
	checkALPN("alpn", h.ALPN, fault)
	if len(h.Names) == 0 {
		fault("names", "is required: the server names to add to the listener", nil)
	}
	seen := make(map[string]int, len(h.Names))
	for i, name := range h.Names {
		canonical, err := hostname.ParsePattern(name)
		if err != nil {
			fault(Item("names", i), err.Error(), name)
		} else if before, ok := seen[canonical]; ok {
			fault(Item("names", i), "duplicate, first at "+Item("spec.names", before), name)
		} else {
			seen[canonical] = i
		}
	}
}
