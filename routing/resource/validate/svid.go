package validate

import (
	"fmt"
	"strings"

	"penstock/routing/resource"
)

// checkOnlySource reports the fields that say where a certificate comes from, beside
// the one that does.
func checkOnlySource(c *resource.Certificate, source string, fault Report) {
	own, _, _ := strings.Cut(source, ":")
	for _, other := range []struct {
		field string
		given bool
	}{
		{"follow", c.Follow}, {"cert", c.Cert != ""}, {"certFile", c.CertFile != ""}, {"key", c.Key != ""}, {"keyFile", c.KeyFile != ""},
		{"acme", c.ACME != nil}, {"identity", c.Identity != ""}, {"workloadAPI", c.WorkloadAPI != nil},
	} {
		if other.given && other.field != own {
			fault(other.field, "conflicts with "+source+"; give only one of them", nil)
		}
	}
}

// checkNoIdentity reports the fields that need identity.
func checkNoIdentity(c *resource.Certificate, fault Report) {
	if len(c.DNS) > 0 {
		fault("dns", "requires identity: a certificate from elsewhere has its own names", nil)
	}
	if c.TTL != 0 {
		fault("ttl", "requires identity: a certificate from elsewhere has its own life", nil)
	}
}

// validateSVID reports the faults of a certificate of the cluster's CA, or of an agent.
func validateSVID(c *resource.Certificate, fault Report) {
	if c.Identity == "" {
		checkOnlySource(c, "workloadAPI: the agent gives the certificate", fault)
		validateWorkloadAPI(c.WorkloadAPI, fault)
		return
	}
	checkOnlySource(c, "identity: the cluster issues the certificate", fault)
	if message := workloadIDFault(c.Identity); message != "" {
		fault("identity", message, c.Identity)
	}
	checkWorkloadDNS("dns", c.DNS, fault)
}

func validateWorkloadAPI(a *resource.WorkloadAPI, fault Report) {
	path, ok := strings.CutPrefix(a.Socket, "unix://")
	switch {
	case a.Socket == "":
		fault("workloadAPI.socket", "is required: where the agent listens, such as unix:///run/spire/agent.sock", nil)
	case !ok || !strings.HasPrefix(path, "/"):
		fault("workloadAPI.socket", "must be unix:// and an absolute path, such as unix:///run/spire/agent.sock; "+
			"over tcp anyone on the way could read the key", a.Socket)
	case len(path) > maxUnixPath || strings.ContainsAny(path, "\x00?#%"):
		fault("workloadAPI.socket", fmt.Sprintf("the path must have at most %d bytes, without ?, # and %%", maxUnixPath), a.Socket)
	}
	if a.SPIFFEID != "" {
		if id, err := resource.ParseSPIFFEID(a.SPIFFEID); err != nil {
			fault("workloadAPI.spiffeID", err.Error(), a.SPIFFEID)
		} else if id.Path == "" {
			fault("workloadAPI.spiffeID", "names a trust domain, not a workload: it has no path", a.SPIFFEID)
		}
	}
	if a.SPIFFEID != "" && a.Hint != "" {
		fault("workloadAPI.hint", "conflicts with spiffeID: give only one of them", a.Hint)
	}
	if len(a.Hint) > maxHint {
		fault("workloadAPI.hint", fmt.Sprintf("must have at most %d bytes", maxHint), nil)
	}
}

// checkBundle reports a reference to a Certificate that has no trust bundle.
func (c *checker) checkBundle(m *member, u resource.BundleUser) {
	name, path := u.BundleRef()
	cert := c.set.member(resource.Key{Kind: "Certificate", Name: name})
	if name != "" && cert != nil && !cert.Spec.(*resource.Certificate).HasBundle() {
		c.fault(&m.Object, path, "has no trust bundle: only a Certificate with identity or workloadAPI has; give its CA in ca or caFile", name)
	}
}
