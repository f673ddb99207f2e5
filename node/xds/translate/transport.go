package translate

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"penstock/routing/resource"
)

// systemCAs is where most distributions, and Envoy's images, have the CAs of the
// system. Envoy refuses the cluster where they are not.
const systemCAs = "/etc/ssl/certs/ca-certificates.crt"

// noName is a name that no certificate has (RFC 2606): without it, Envoy would
// accept any name.
const noName = "none.invalid"

// transportSocket says how an endpoint is connected to; nil: in plain text. TLS with a
// server of MySQL's protocol begins after its greeting, by the client's own wish.
func (sh *shared) transportSocket(x *subset, certificate bool) *corev3.TransportSocket {
	var socket *corev3.TransportSocket
	if sh.spec.TLS != nil && sh.spec.Protocol != resource.ProtocolMySQL {
		socket = socketOf("envoy.transport_sockets.tls", sh.upstreamTLS(x, certificate))
	}
	if sh.spec.ProxyProtocol == nil {
		return socket
	}
	if socket == nil {
		socket = socketOf("envoy.transport_sockets.raw_buffer", &rawv3.RawBuffer{})
	}
	version := corev3.ProxyProtocolConfig_V1
	if sh.spec.ProxyProtocol.Send == "v2" {
		version = corev3.ProxyProtocolConfig_V2
	}
	return socketOf("envoy.transport_sockets.upstream_proxy_protocol", &proxyv3.ProxyProtocolUpstreamTransport{
		Config: &corev3.ProxyProtocolConfig{Version: version}, TransportSocket: socket,
	})
}

func socketOf(name string, m proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(m)}}
}

func (sh *shared) upstreamTLS(x *subset, certificate bool) *tlsv3.UpstreamTlsContext {
	t := sh.spec.TLS
	common := &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		AlpnProtocols: t.ALPN,
	}
	if t.MinVersion == "1.3" {
		common.TlsParams.TlsMinimumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	if len(t.ALPN) == 0 && sh.spec.Protocol == "http2" {
		common.AlpnProtocols = []string{"h2"}
	}
	if certificate {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{{Name: t.CertificateRef, SdsConfig: overADS()}}
	}
	names := sh.serverNames(x)
	if !t.InsecureSkipVerify {
		v := validation(t.CA, names)
		switch {
		case (t.CAFile != "" || t.CARef != "") && t.CA == "", len(t.TrustDomains) > 0: // not read, or not for proxies: no endpoint is trusted
			v = validation("", nil)
		case t.Verify != nil:
			v.MatchTypedSubjectAltNames = identities(t.Verify)
		}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v}
	}
	out := &tlsv3.UpstreamTlsContext{CommonTlsContext: common}
	named := slices.DeleteFunc(slices.Clone(names), isIP)
	switch {
	case len(named) == 1 && len(names) == 1:
		out.Sni = named[0]
	case len(named) > 0:
		out.AutoHostSni = true
	}
	return out
}

// serverNames returns the names that the endpoints' certificates may have: the
// Service's, or the hosts of the endpoints.
func (sh *shared) serverNames(x *subset) []string {
	if name := sh.spec.TLS.ServerName; name != "" {
		return []string{name}
	}
	hosts := map[string]bool{}
	for i := range sh.endpoints {
		e := &sh.endpoints[i]
		if host, _, ok := resource.SplitAddress(e.Address); ok && hasTags(e.Tags, x.tags) {
			hosts[host] = true
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// validation accepts certificates of a CA for any of the names.
func validation(ca string, names []string) *tlsv3.CertificateValidationContext {
	v := &tlsv3.CertificateValidationContext{TrustedCa: inline(ca)}
	if ca == "" {
		v.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: systemCAs}}
	}
	if len(names) == 0 {
		names = []string{noName}
	}
	for _, name := range names {
		kind := tlsv3.SubjectAltNameMatcher_DNS
		if isIP(name) {
			kind = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
		}
		v.MatchTypedSubjectAltNames = append(v.MatchTypedSubjectAltNames, &tlsv3.SubjectAltNameMatcher{SanType: kind, Matcher: exactly(name)})
	}
	return v
}

// identities accepts one of the identities that a Service lists. Envoy takes a
// certificate with several URI SANs if one of them matches, which Penstock refuses.
func identities(v *resource.Verify) (list []*tlsv3.SubjectAltNameMatcher) {
	add := func(kind tlsv3.SubjectAltNameMatcher_SanType, m *matcherv3.StringMatcher) {
		list = append(list, &tlsv3.SubjectAltNameMatcher{SanType: kind, Matcher: m})
	}
	for _, pattern := range v.SPIFFE {
		if !strings.Contains(pattern, "*") {
			add(tlsv3.SubjectAltNameMatcher_URI, exactly(pattern))
			continue
		}
		add(tlsv3.SubjectAltNameMatcher_URI, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
			SafeRegex: &matcherv3.RegexMatcher{Regex: spiffeRegex(pattern)},
		}})
	}
	for _, name := range v.DNS {
		add(tlsv3.SubjectAltNameMatcher_DNS, exactly(name))
	}
	for _, uri := range v.URI {
		add(tlsv3.SubjectAltNameMatcher_URI, exactly(uri))
	}
	return list
}

// spiffeRegex returns the regular expression (RE2, for the whole text) that matches
// the IDs that a pattern does. The characters are those that an ID may have, so
// neither a query nor an escape slips through.
func spiffeRegex(pattern string) string {
	const domain, char = "[a-z0-9._-]", "[a-zA-Z0-9._-]"
	pattern, all := strings.CutSuffix(pattern, "/**")
	segments := strings.Split(strings.TrimPrefix(pattern, "spiffe://"), "/")
	for i, s := range segments {
		if i == 0 && s == "*" {
			segments[i] = domain + "+"
		} else {
			segments[i] = strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, char+"*")
		}
	}
	text := "spiffe://" + strings.Join(segments, "/")
	if all {
		text += "(/" + char + "+)+"
	}
	return text
}

func exactly(text string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: text}}
}
