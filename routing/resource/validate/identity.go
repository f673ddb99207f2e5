package validate

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// maxVerified bounds each list of identities: every handshake compares with them.
const maxVerified = 64

// ClientAuth reports the faults in what a listener or a virtual cluster asks of its
// clients' certificates.
func ClientAuth(path string, c *resource.ClientAuth, fault Report) {
	checkSPIFFE(path+".spiffe", c.SPIFFE, fault)
	if c.Mode == "none" {
		if len(c.SPIFFE) > 0 {
			fault(path+".spiffe", "requires mode: request or require", nil)
		}
		if c.CAFile != "" {
			fault(path+".caFile", "requires mode: request or require", nil)
		}
		if c.CARef != "" {
			fault(path+".caRef", "requires mode: request or require", nil)
		}
		if len(c.TrustDomains) > 0 {
			fault(path+".trustDomains", "requires mode: request or require", nil)
		}
		return
	}
	checkTrustDomains(path+".trustDomains", c.TrustDomains, fault)
	if c.CA == "" && c.CAFile == "" && c.CARef == "" {
		if len(c.TrustDomains) == 0 {
			fault(path+".ca", "is required, or caFile, caRef or trustDomains: what client certificates are verified against", nil)
		}
		return
	}
	if len(c.TrustDomains) > 0 && c.CARef != "" {
		fault(path+".caRef", "conflicts with trustDomains: name its trust domain there, by a TrustBundle", c.CARef)
	}
	if len(c.TrustDomains) > 0 && len(c.SPIFFE) > 0 {
		fault(path+".spiffe", "refuses certificates without a SPIFFE ID, and beside trustDomains ca is for these alone: leave out ca or spiffe", nil)
	}
	CheckCA(path, c.CA, c.CAFile, c.CARef, fault)
}

// CheckCA reports the faults of a bundle that is given in one of three ways.
func CheckCA(path, ca, file, ref string, fault Report) {
	followedPath(path+".caFile", file, fault)
	if ca != "" && file != "" {
		fault(path+".caFile", "conflicts with ca: give only one of them", file)
	}
	if ref != "" {
		Ref(path+".caRef", ref, fault)
		if ca != "" || file != "" {
			fault(path+".caRef", "conflicts with ca and caFile: give only one of them", ref)
		}
	}
	if ca != "" {
		CA(path+".ca", ca, fault)
	}
}

// checkSPIFFE reports faults in a list of patterns of SPIFFE IDs.
func checkSPIFFE(path string, patterns []string, fault Report) {
	checkCount(path, len(patterns), maxVerified, fault)
	for i, p := range patterns {
		if err := resource.CheckSPIFFEPattern(p); err != nil {
			fault(resource.Item(path, i), err.Error(), p)
		} else if strings.Count(p, "/") < len("///") {
			fault(resource.Item(path, i), "has no path, and a workload's ID has one: end it in /** for all of the trust domain", p)
		}
	}
	checkDuplicates(path, patterns, fault)
}

// checkVerify reports the faults in a list of identities of endpoints.
func checkVerify(path string, v *resource.Verify, fault Report) {
	if len(v.SPIFFE)+len(v.DNS)+len(v.URI) == 0 {
		fault(path, "requires spiffe, dns or uri: without one no endpoint is accepted", nil)
	}
	checkSPIFFE(path+".spiffe", v.SPIFFE, fault)
	checkCount(path+".dns", len(v.DNS), maxVerified, fault)
	for i, name := range v.DNS {
		if message := dnsFault(name); message != "" {
			fault(resource.Item(path+".dns", i), message, orNil(name))
		}
	}
	checkDuplicates(path+".dns", v.DNS, fault)
	checkCount(path+".uri", len(v.URI), maxVerified, fault)
	for i, text := range v.URI {
		if message := uriFault(text); message != "" {
			fault(resource.Item(path+".uri", i), message, orNil(text))
		}
	}
	checkDuplicates(path+".uri", v.URI, fault)
}

func dnsFault(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return "is an IP address, not a DNS name: write it in serverName, without verify"
	}
	switch canonical, err := hostname.ParsePattern(name); {
	case err != nil:
		return err.Error()
	case strings.HasPrefix(canonical, "*"):
		return "must be one name, not a wildcard"
	case canonical != name:
		return fmt.Sprintf("must be written as certificates have it, %s", canonical)
	}
	return ""
}

func uriFault(text string) string {
	const longest = 2048
	u, err := url.Parse(text)
	switch {
	case len(text) > longest:
		return fmt.Sprintf("must have at most %d bytes", longest)
	case err != nil || u.Scheme == "":
		return "must be a URI with a scheme, such as https://example.com/web"
	case u.Scheme == "spiffe":
		return "is a SPIFFE ID: write it in spiffe, where the rules of SPIFFE hold"
	case u.String() != text:
		return fmt.Sprintf("must be written in its normal form, %.100s", u)
	}
	return ""
}
