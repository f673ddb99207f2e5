package validate

import (
	"strings"

	"penstock/routing/resource"
)

// validateOriginate reports the faults of the TLS to the endpoints of a tcp listener.
func validateOriginate(l *resource.Listener, t *resource.ServiceTLS, fault Report) {
	const path, why = "tls.originate", "conflicts with originate, which is for plain clients: leave it out"
	for _, other := range []struct {
		field string
		given bool
	}{
		{"mode", l.TLS.Mode != ""}, {"certificateRefs", len(l.TLS.CertificateRefs) > 0}, {"alpn", len(l.TLS.ALPN) > 0},
		{"minVersion", l.TLS.MinVersion != ""}, {"clientAuth", l.TLS.ClientAuth != nil},
		{"startTLS", l.TLS.StartTLS != ""},
	} {
		if other.given {
			fault("tls."+other.field, why, nil)
		}
	}
	const requests = "is not allowed with tls.originate, whose connections go on as a whole: requests are not routed one by one"
	if !l.HTTP.IsZero() {
		fault("http", requests, nil)
	}
	checkNoHTTP("tags", l.Tags, requests, fault)
	for i := range l.Sources {
		checkNoHTTP(resource.Item("sources", i)+".tags", l.Sources[i].Tags, requests, fault)
	}
	validateServiceTLS(t, func(at, message string, value any) { fault(path+strings.TrimPrefix(at, "tls"), message, value) })
}

// checkNoHTTP reports tags by which the requests of clients would be routed one by one.
func checkNoHTTP(path string, tags map[string]string, message string, fault Report) {
	for _, tag := range []string{"protocol", "kuma.io/protocol"} {
		if v := tags[tag]; v == "http" || v == "http2" {
			fault(path+"."+tag, message, v)
		}
	}
}

// checkOriginate reports that a listener's own TLS to the endpoints meets a Service of
// the mesh, which has TLS of its own.
func (c *checker) checkOriginate(m *member, l *resource.Listener) {
	if l.Originates() == nil || l.Service == "" {
		return
	}
	to := c.set.member(resource.Key{Kind: "Service", Name: l.Service})
	if to == nil {
		return
	}
	if s, ok := to.Spec.(*resource.Service); ok && s.Mesh {
		c.fault(&m.Object, "spec.tls.originate", "conflicts with mesh: true of "+to.String()+
			", whose connections have the nodes' own TLS: leave out one of them", nil)
	}
}

// checkOriginators reports a Service of the mesh that listeners with TLS of their own
// lead to.
func (c *checker) checkOriginators(m *member, s *resource.Service) {
	if !s.Mesh {
		return
	}
	c.set.eachUser(m.Key, func(user *member) {
		if l, ok := user.Spec.(*resource.Listener); ok && l.Originates() != nil && !c.pending[user.Key] {
			c.fault(&m.Object, "spec.mesh", "conflicts with tls.originate of "+user.String()+
				", which has TLS of its own: leave out one of them", true)
		}
	})
}
