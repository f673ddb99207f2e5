package validate

import (
	"fmt"
	"net/url"

	"penstock/routing/resource"
)

// maxBundleURL bounds the URL of an endpoint, in bytes.
const maxBundleURL = 2048

// validateTrustBundle reports the faults of a trust bundle alone.
func validateTrustBundle(b *resource.TrustBundle, fault Report) {
	Fields(b, fault)
	if b.TrustDomain == "" {
		fault("trustDomain", "is required: the name of the SPIFFE trust domain, such as partner.example", nil)
	} else if err := resource.CheckTrustDomain(b.TrustDomain); err != nil {
		fault("trustDomain", err.Error(), b.TrustDomain)
	}
	if resource.IsBundle(b.Bundle) {
		switch parsed, err := resource.ParseBundle(b.Bundle); {
		case err != nil:
			fault("bundle", err.Error(), nil)
		case len(parsed.Authorities) == 0:
			fault("bundle", "has no certificate of an authority for X.509 SVIDs (keys with use x509-svid)", nil)
		}
	}
	if b.Endpoint == nil {
		if b.Bundle == "" {
			fault("bundle", "is required, or endpoint: where the certificates of the trust domain's authorities come from", nil)
		}
		return
	}
	validateBundleEndpoint(b, b.Endpoint, fault)
}

func validateBundleEndpoint(b *resource.TrustBundle, e *resource.BundleEndpoint, fault Report) {
	if e.URL == "" {
		fault("endpoint.url", "is required: the https URL of the bundle", nil)
	} else if message := BundleURLFault(e.URL); message != "" {
		fault("endpoint.url", message, nil) // it may hold a password
	}
	if e.Profile == "" {
		fault("endpoint.profile", "is required: https_web or https_spiffe", nil)
	}
	CA("endpoint.ca", e.CA, fault)
	if e.Profile != resource.ProfileSPIFFE {
		if e.SPIFFEID != "" {
			fault("endpoint.spiffeID", "requires profile: https_spiffe", e.SPIFFEID)
		}
		return
	}
	if e.CA != "" {
		fault("endpoint.ca", "requires profile: https_web; with https_spiffe the bundle of the endpoint's own trust domain verifies it", nil)
	}
	id, err := resource.ParseSPIFFEID(e.SPIFFEID)
	switch {
	case e.SPIFFEID == "":
		fault("endpoint.spiffeID", "is required with profile: https_spiffe: the SPIFFE ID of the endpoint's certificate", nil)
	case err != nil:
		fault("endpoint.spiffeID", err.Error(), e.SPIFFEID)
	case id.Path == "":
		fault("endpoint.spiffeID", "has no path: it names a trust domain, not an endpoint", e.SPIFFEID)
	case id.TrustDomain == b.TrustDomain && b.Bundle == "":
		fault("bundle", "is required: the endpoint is of the trust domain itself, so the first bundle must come from elsewhere to verify it", nil)
	}
}

// BundleURLFault returns what is wrong with the URL of a bundle endpoint, or ""
// (SPIFFE Federation, section 5.2.1.1).
func BundleURLFault(text string) string {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxBundleURL:
		return fmt.Sprintf("must have at most %d bytes", maxBundleURL)
	case err != nil || u.Host == "" || u.Scheme != "https":
		return "must be an https URL, such as https://partner.example/bundle.json"
	case u.User != nil || u.Fragment != "":
		return "must have no user and no fragment"
	}
	return ""
}

// checkTrustDomains reports the faults in a list of trust domains.
func checkTrustDomains(path string, names []string, fault Report) {
	checkCount(path, len(names), maxVerified, fault)
	for i, name := range names {
		if name != resource.OwnTrustDomain {
			Ref(resource.Item(path, i), name, fault)
		}
	}
	checkDuplicates(path, names, fault)
}

// checkTrustDomain refuses a second bundle of a trust domain: which of them is in
// force would be undecidable.
func (c *checker) checkTrustDomain(m *member, b *resource.TrustBundle) {
	for o := range c.set.All(resource.KindTrustBundle) {
		other, ok := o.Spec.(*resource.TrustBundle)
		if ok && o.Name != m.Name && other.TrustDomain == b.TrustDomain && !c.pending[o.Key] {
			c.fault(&m.Object, "spec.trustDomain", "is that of "+o.String()+" as well: a trust domain has one bundle", b.TrustDomain)
			return
		}
	}
}
