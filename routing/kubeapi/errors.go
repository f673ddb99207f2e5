package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	// errSilent is that of a server that does not answer in time.
	errSilent = errors.New("no answer in time")
	// errShortWatch is that of a watch that ends at once.
	errShortWatch = errors.New("each watch ends at once: check what is between Penstock and the API server")
	// ErrCredentials is part of the error after which the credentials must be read
	// again, by another Connect.
	ErrCredentials = errors.New("the server refuses the credentials")
)

// wrongType is the error of an answer of a type that was not asked for.
func wrongType(got runtime.Object) error {
	return fmt.Errorf("a %s came, which was not asked for", strings.TrimPrefix(fmt.Sprintf("%T", got), "*"))
}

// explain says where an error occurred, and what to do about it.
func (f *Follower[O]) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	at := fmt.Sprintf("kubernetes at %s, %s", f.Client.host, f.Kind.Resource)
	in := "in all namespaces (ClusterRole)"
	if f.Namespace != "" {
		at += " in namespace " + f.Namespace
		in = fmt.Sprintf("in namespace %s (Role)", f.Namespace)
	}
	if f.Name != "" {
		at += ", " + f.Name
		in = "with the name " + f.Name + " " + in
	}
	group := "the core API group"
	if g := f.Kind.Group.Group; g != "" {
		group = "the API group " + g
	}
	var (
		certificate *tls.CertificateVerificationError
		lookup      *net.DNSError
		request     *url.Error
	)
	switch {
	case errors.Is(err, errTooLarge):
		return fmt.Errorf("%s: an answer has more than %d bytes: %s", at, f.Client.cfg.MaxBytes, f.Client.cfg.TooLarge)
	case errors.Is(err, errSilent):
		return fmt.Errorf("%s: no answer within %v: check the address, and what is in between", at, f.Client.cfg.Timeout)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w (401 Unauthorized): renew those of %s", at, ErrCredentials, f.Client.origin)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: 403 Forbidden: allow the verbs list and watch on %s of %s %s; the server says: %s",
			at, f.Kind.Resource, group, in, f.Client.Clean(err))
	case apierrors.IsBadRequest(err):
		return fmt.Errorf("%s: 400 Bad Request: check whether its URL begins with https://; the server says: %s", at, f.Client.Clean(err))
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: 404 Not Found: this is no API server with %s, which %s", at, f.Kind.Group, f.Client.cfg.NoKind)
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%s: the server is busy (429 Too Many Requests)", at)
	case errors.As(err, &certificate):
		return fmt.Errorf("%s: its certificate is not accepted: check certificate-authority and tls-server-name of %s: %s",
			at, f.Client.origin, f.Client.Clean(certificate.Err))
	case errors.As(err, &lookup):
		return fmt.Errorf("%s: the host name cannot be looked up: %s", at, f.Client.Clean(lookup))
	case errors.As(err, &request): // without the URL, which is long
		err = request.Err
	}
	return fmt.Errorf("%s: %s", at, f.Client.Clean(err))
}

// Clean returns the text of an error that may have text of the server: printable,
// not long, and without our credentials.
func (c *Client) Clean(err error) string {
	const most = 300
	text := c.secrets.Replace(err.Error())
	if sent := c.credentials.Load(); sent != nil {
		text = strings.ReplaceAll(text, *sent, removed)
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
