package resource

// Truster is a spec that may have CAs by which peers are verified.
type Truster interface {
	// TrustedCAs lists the bundles, as PEM. Some may be empty, or the name of a file
	// that was not read.
	TrustedCAs() []string
}

var (
	_ Truster = (*Listener)(nil)
	_ Truster = (*Service)(nil)
	_ Truster = (*EndpointProvider)(nil)
	_ Truster = (*Certificate)(nil)
)

// TrustedCAs implements Truster: what verifies clients.
func (l *Listener) TrustedCAs() []string {
	if l.TLS == nil {
		return nil
	}
	return l.TLS.ClientAuth.TrustedCAs()
}

// TrustedCAs implements Truster; none if clients are not asked for certificates.
func (c *ClientAuth) TrustedCAs() []string {
	if c == nil || c.Mode == "none" {
		return nil
	}
	return []string{c.CA}
}

// TrustedCAs implements Truster: what verifies endpoints.
func (s *Service) TrustedCAs() []string {
	if s.TLS == nil {
		return nil
	}
	return []string{s.TLS.CA}
}

// TrustedCAs implements Truster: what verifies the servers that are asked.
func (p *EndpointProvider) TrustedCAs() (list []string) {
	for _, t := range p.tls() {
		list = append(list, t.CA)
	}
	return list
}

// TrustedCAs implements Truster: what verifies the authority's directory.
func (c *Certificate) TrustedCAs() []string {
	if c.ACME == nil {
		return nil
	}
	return []string{c.ACME.CA}
}
