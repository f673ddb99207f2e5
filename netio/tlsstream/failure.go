package tlsstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"penstock/netio/stream"
)

// Why a handshake fails.
var (
	// ErrNoCertificate means that a client sent no certificate although one is
	// required.
	ErrNoCertificate = errors.New("the client showed no certificate, and one is required")
	// ErrBadCertificate means that the peer's certificate could not be
	// verified. The error of crypto/x509 is wrapped with it.
	ErrBadCertificate = errors.New("the peer's certificate is refused")
	// ErrRefused means that the peer refused our certificate. Its alert and
	// stream.ErrReset are wrapped with it, as for every alert.
	ErrRefused = errors.New("the peer refuses the certificate")
	// ErrIncompatible means that the two sides have no version, cipher suite,
	// curve or protocol in common.
	ErrIncompatible = errors.New("nothing in common")
)

// What crypto/tls says; these errors have no names, and tests hold the texts.
const noCertificate = "tls: client didn't provide a certificate"

var incompatible = [...]string{
	"tls: client offered only unsupported versions",
	"tls: no cipher suite supported by both client and server",
	"tls: no ECDHE curve supported by both client and server",
	"tls: no key exchanges supported by both client and server",
	"tls: client requested unsupported application protocols",
	"tls: server selected unsupported protocol version",
	"tls: peer doesn't support any of the certificate's signature algorithms",
}

// refusals are the alerts by which a peer refuses a certificate (RFC 8446,
// section 6.2): bad, unsupported, revoked, expired or unknown, of an unknown
// authority, without a status that it wants.
var refusals = func() (texts []string) {
	for _, code := range [...]tls.AlertError{42, 43, 44, 45, 46, 48, 113} {
		texts = append(texts, code.Error())
	}
	return texts
}()

const (
	recordAlert = 21
	closeNotify = 0
	remoteError = "remote error" // the Op by which crypto/tls tells an alert
)

// plainAlert gives the alert in the record that b begins with, where that is in
// the clear: encrypted ones are longer, or of another type.
func plainAlert(b []byte) (code tls.AlertError, ok bool) {
	if recordSize(b) != headerSize+2 || len(b) < headerSize+2 || b[0] != recordAlert {
		return 0, false
	}
	return tls.AlertError(b[headerSize+1]), true
}

// unmask tells what a handshake has failed for. A client of TLS 1.3 that refuses
// the certificate may say so in the clear, as OpenSSL's do: it has no key to
// write with yet. crypto/tls takes that for a record that was tampered with.
func (w *wire) unmask(err error) error {
	var op *net.OpError
	if !w.alerted || !errors.As(err, &op) || op.Op == remoteError {
		return err
	}
	if w.alert == closeNotify {
		return io.EOF
	}
	return &net.OpError{Op: remoteError, Err: w.alert}
}

// handshakeError says what went wrong in a handshake. crypto/tls tells only
// public things: names, versions, alerts and reasons.
func handshakeError(err error) error {
	return fmt.Errorf("tls handshake: %w", classify(err))
}

func protocolError(err error) error { return fmt.Errorf("tls: %w", classify(err)) }

// classify wraps what ended the connection: an alert from the peer is its way
// to abort, everything else is a fault in what it sent.
func classify(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == remoteError {
		if slices.Contains(refusals, op.Err.Error()) {
			return fmt.Errorf("%w: %w: %w", stream.ErrReset, ErrRefused, err)
		}
		return fmt.Errorf("%w: %w", stream.ErrReset, err)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("closed by the peer: %w", stream.ErrReset)
	}
	var verification *tls.CertificateVerificationError
	switch text := err.Error(); {
	case errors.As(err, &verification):
		return fmt.Errorf("%w: %w", ErrBadCertificate, err)
	case text == noCertificate:
		return ErrNoCertificate
	case slices.ContainsFunc(incompatible[:], func(begin string) bool { return strings.HasPrefix(text, begin) }):
		return fmt.Errorf("%w: %w", ErrIncompatible, err)
	}
	return fmt.Errorf("%w: %w", stream.ErrProtocol, err)
}
