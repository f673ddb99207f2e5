package validate

import (
	"encoding/base64"
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

const (
	// maxACMENames is Let's Encrypt's limit for one certificate.
	maxACMENames = 100
	// maxACMEText bounds the URL, the address and the texts of an account, in bytes.
	maxACMEText = 2048
	// minHMAC is the length of a key for HS256 that an authority may give, in bytes;
	// RFC 7518 asks for 32, some give less.
	minHMAC = 16
)

// validateACME reports the faults of a certificate that an authority issues.
func validateACME(c *resource.Certificate, fault Report) {
	checkOnlySource(c, "acme: the authority issues the certificate", fault)
	a := c.ACME
	if a.Directory == "" {
		fault("acme.directory", "is required: the URL of the authority's directory", nil)
	} else if message := directoryFault(a.Directory); message != "" {
		fault("acme.directory", message, nil) // it may hold a password
	}
	validateACMENames(a.Names, fault)
	if a.Email != "" {
		if at, err := mail.ParseAddress(a.Email); err != nil || at.Address != a.Email || len(a.Email) > maxACMEText {
			fault("acme.email", `must be one address, such as "ops@example.com"`, a.Email)
		}
	}
	if !a.AgreeToTerms {
		fault("acme.agreeToTerms", "must be true: read the authority's terms of service first", nil)
	}
	CA("acme.ca", a.CA, fault)
	if x := a.ExternalAccount; x != nil {
		if x.KID == "" || len(x.KID) > maxACMEText {
			fault("acme.externalAccount.kid", fmt.Sprintf("must have 1 to %d bytes", maxACMEText), nil)
		}
		if message := hmacFault(string(x.HMAC)); message != "" {
			fault("acme.externalAccount.hmac", message, nil)
		}
	}
}

// directoryFault returns why a directory's URL is refused, or "".
func directoryFault(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || len(text) > maxACMEText:
		return "must be a URL, such as https://acme-v02.api.letsencrypt.org/directory"
	case u.User != nil || u.Fragment != "":
		return "must have no user and no fragment"
	case u.Scheme == "https":
		return ""
	case u.Scheme != "http":
		return "must begin with https://"
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsLoopback() {
		return "must begin with https://; http:// is for tests at a loopback address"
	}
	return ""
}

func validateACMENames(names []string, fault Report) {
	if len(names) == 0 {
		fault("acme.names", "is required: the server names of the certificate", nil)
	}
	checkCount("acme.names", len(names), maxACMENames, fault)
	seen := map[string]bool{}
	for i, name := range names {
		at := resource.Item("acme.names", i)
		if strings.HasPrefix(name, "*") {
			fault(at, "is a wildcard, which no authority checks by http01 or tlsALPN01: name each one", name)
			continue
		}
		normal, err := hostname.ParseName(name)
		switch {
		case err != nil:
			fault(at, err.Error(), name)
		case seen[normal]:
			fault(at, "occurs twice", name)
		}
		seen[normal] = true
	}
}

// hmacFault returns why the key of an external account is refused, or "". It never
// contains content.
func hmacFault(text string) string {
	if text == resource.HiddenSecret {
		return "" // filled in when the resource is applied
	}
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	switch {
	case text == "":
		return "is required: the key that the authority gave"
	case err != nil:
		return "must be base64url"
	case len(key) < minHMAC:
		return fmt.Sprintf("must be a key of at least %d bytes, as base64url", minHMAC)
	case len(text) > maxACMEText:
		return fmt.Sprintf("must have at most %d bytes", maxACMEText)
	}
	return ""
}

// checkACME warns of a certificate whose challenge no listener can answer.
func (c *checker) checkACME(m *member, a *resource.ACME) {
	if a.Challenge == "http01" && c.set.Count("MeshHTTPRoute") == 0 {
		c.warn(&m.Object, "spec.acme.challenge",
			"no listener can answer http01: a tcp listener reads requests only where a MeshHTTPRoute routes them; add one, or use tlsALPN01",
			a.Challenge)
	}
}
