package federation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"penstock/node/tlsconfig"
	"penstock/node/trust"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

const (
	// maxRedirects bounds the redirects of one fetch.
	maxRedirects = 3
	// maxHeaders bounds the headers of a response, in bytes.
	maxHeaders = 64 << 10
	// handshakeTimeout bounds a handshake, and the wait for the headers.
	handshakeTimeout = 10 * time.Second
)

// fetch gets a bundle by HTTPS (SPIFFE Federation, sections 5.2.1.4 and 5.2.2.4). The
// endpoint is verified in the same way after each redirect.
func fetch(ctx context.Context, spec *resource.TrustBundle, held func(domain string) *trust.Bundle) (*resource.Bundle, error) {
	config, err := clientConfig(spec.Endpoint, held)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig: config, TLSHandshakeTimeout: handshakeTimeout, ResponseHeaderTimeout: handshakeTimeout,
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders,
	}
	client := &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, spec.Endpoint.URL, http.NoBody)
	if err != nil {
		return nil, withoutURL(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the endpoint answers %d, want 200", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, resource.MaxBundle+1))
	if err != nil {
		return nil, err
	}
	if !resource.IsJWKSet(string(text)) {
		return nil, errors.New("the endpoint's answer is not a SPIFFE bundle, which is a JSON object")
	}
	b, err := resource.ParseBundle(string(text))
	if err != nil {
		return nil, fmt.Errorf("the bundle of %s %w", spec.TrustDomain, err)
	}
	return b, nil
}

// checkRedirect follows a few redirects to valid URLs of endpoints.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if message := validate.BundleURLFault(req.URL.String()); message != "" {
		return errors.New("the endpoint redirects to another URL, which " + message)
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("the endpoint redirects more than %d times", maxRedirects)
	}
	return nil
}

// withoutURL removes the URL from an error: the resource has it, and a redirect may have
// made it long.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// clientConfig returns the TLS configuration that verifies an endpoint.
func clientConfig(e *resource.BundleEndpoint, held func(domain string) *trust.Bundle) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.Profile == resource.ProfileWeb {
		if e.CA != "" {
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM([]byte(e.CA)) {
				return nil, errors.New("endpoint.ca has no PEM certificate")
			}
		}
		return config, nil
	}
	id, err := resource.ParseSPIFFEID(e.SPIFFEID)
	if err != nil {
		return nil, err
	}
	bundle := held(id.TrustDomain)
	if bundle == nil {
		return nil, fmt.Errorf("cannot verify the endpoint %s: there is no bundle of its trust domain", id)
	}
	config.InsecureSkipVerify = true // VerifyConnection verifies the chain and the ID
	config.VerifyConnection = func(state tls.ConnectionState) error {
		_, err := tlsconfig.VerifySVID(state.PeerCertificates, tlsconfig.BundleOf(id, bundle))
		return err
	}
	return config, nil
}
