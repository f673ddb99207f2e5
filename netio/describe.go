package netio

import (
	"crypto/tls"

	"penstock/netio/proxyproto"
)

// describeTLS is what a PROXY header says about TLS with the client.
func describeTLS(state *tls.ConnectionState) *proxyproto.SSL {
	ssl := &proxyproto.SSL{
		Version: versionName(state.Version),
		Cipher:  tls.CipherSuiteName(state.CipherSuite),
	}
	if len(state.PeerCertificates) > 0 {
		ssl.ClientCert = true
		ssl.Verified = len(state.VerifiedChains) > 0
		ssl.Resumed = state.DidResume
		ssl.CommonName = state.PeerCertificates[0].Subject.CommonName
	}
	return ssl
}

// versionName is the name that the PROXY protocol wants, as OpenSSL gives it.
func versionName(v uint16) string {
	switch v {
	case tls.VersionTLS12:
		return "TLSv1.2"
	case tls.VersionTLS13:
		return "TLSv1.3"
	}
	return tls.VersionName(v)
}
