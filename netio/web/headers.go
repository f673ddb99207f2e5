package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Rules say how to read the requests of a connection.
type Rules struct {
	// Underscores says what becomes of headers and trailers whose names have
	// other characters than letters, digits and hyphens.
	Underscores Underscores
	// Trusted clients are proxies: what they say in X-Forwarded-For and the
	// like is kept.
	Trusted bool
	// ClientCert says that X-Forwarded-Client-Cert is Penstock's to write: even
	// a trusted client's is removed, and so are names that pass for it in CGI.
	ClientCert bool
	// KeepClientCert keeps X-Forwarded-Client-Cert itself although ClientCert is set: the
	// client is authenticated, and may name others.
	KeepClientCert bool
}

// Underscores is a way to treat names that CGI, WSGI and the like cannot tell
// from others: X_Real_IP and X-Real-IP are one variable there.
type Underscores string

// The ways; "" is Drop.
const (
	DropUnderscores   Underscores = "drop"
	AllowUnderscores  Underscores = "allow"
	RefuseUnderscores Underscores = "refuse"
)

// apply changes a request by the rules, before anybody looks at its headers. An
// error says why it is to be refused.
func (rules Rules) apply(r *http.Request) error {
	for _, h := range [...]http.Header{r.Header, r.Trailer} {
		for name := range h {
			if rules.Underscores != AllowUnderscores && !plain(name) {
				if rules.Underscores == RefuseUnderscores {
					return fmt.Errorf("%w: the name %.40q has other characters than letters, digits and hyphens", ErrRequest, name)
				}
				delete(h, name)
			}
		}
	}
	delete(r.Header, "Proxy") // to CGI programs it is HTTP_PROXY, where their own requests go
	for name := range r.Trailer {
		if proxys(name) {
			delete(r.Trailer, name)
		}
	}
	for name := range r.Header {
		if rules.KeepClientCert && strings.EqualFold(name, clientCert) {
			continue
		}
		if !rules.Trusted && proxys(name) || rules.ClientCert && asInCGI(name) == clientCert {
			delete(r.Header, name)
		}
	}
	return nil
}

func plain(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// proxys tells of headers that say who a client is or what it has asked for, as
// a proxy does. Names that pass for such in CGI are among them.
func proxys(name string) bool {
	name = asInCGI(name)
	for _, prefix := range [...]string{"x-forwarded-", "x-original-", "x-rewrite-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(proxyNames, name)
}

// clientCert is the header by which proxies name a client's certificate.
const clientCert = "x-forwarded-client-cert"

// asInCGI returns one name for all those that CGI cannot tell from it.
func asInCGI(name string) string {
	return strings.Map(func(r rune) rune {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return '-' // to CGI any of them is an underscore
		}
		return r
	}, strings.ToLower(name))
}

var proxyNames = []string{
	"forwarded", "proxy", "x-forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip",
}
