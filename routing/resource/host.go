package resource

// Host adds server names to a listener, as if they were among its hosts. It is
// for listeners with many names: the cost of changing a Host does not depend on
// their number. A Host and a rule of its listener have equal rank; neither may
// have a name that the other has.
type Host struct {
	// Listener is the tls listener, or the mysql listener with tls, that gets the names.
	// Required.
	Listener string `yaml:"listener"`
	// Names are exact names or wildcards ("*.example.com": one or more
	// labels, never the apex). IDNs are converted to A-labels. Required.
	Names []string `yaml:"names"`
	// Service is the destination. Required.
	Service string `yaml:"service"`
	// ALPN limits the names to clients that offer one of these. Default any. The
	// same name may occur in several Hosts whose protocols differ.
	ALPN []string `yaml:"alpn"`
}

// Rule returns what the Host adds to its listener.
func (h *Host) Rule() *HostRule { return &HostRule{Names: h.Names, Service: h.Service, ALPN: h.ALPN} }

// Refs returns the listener and the service of a Host.
func (h *Host) Refs() []Ref {
	return []Ref{
		{Key: Key{"Listener", h.Listener}, Path: "spec.listener"},
		{Key: Key{"Service", h.Service}, Path: "spec.service"},
	}
}
