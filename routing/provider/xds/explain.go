package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// at names the control plane in errors.
func (s *Source) at() string { return "the control plane at " + s.cfg.Server }

// explain adds to the error that ended a session what can be done about it.
func (s *Source) explain(err error) error {
	text := status.Convert(err).Message()
	said := fmt.Sprintf("%.300q", text) // it may be the control plane's
	switch status.Code(err) {
	case codes.Unavailable:
		if strings.Contains(text, "too_many_pings") {
			return fmt.Errorf("%s wants fewer keep-alive pings than one in %v: raise keepAlive", s.at(), s.cfg.KeepAlive)
		}
		return fmt.Errorf("%s is not available: %s: check the address, and whether it has TLS", s.at(), said)
	case codes.Unauthenticated:
		return fmt.Errorf("%s does not know who this is: %s: give it the client certificate that it asks for", s.at(), said)
	case codes.PermissionDenied:
		return fmt.Errorf("%s does not serve node %q: %s: grant it access there, or change nodeId", s.at(), s.cfg.Node.ID, said)
	case codes.Unimplemented:
		return fmt.Errorf("%s does not have this variant of xDS (%s): %s: change delta or separate", s.at(), s.cfg.variant(), said)
	case codes.ResourceExhausted:
		if strings.Contains(text, "received message") {
			return fmt.Errorf("%s sent a response of more than %d bytes: raise maxBytes, or let it send less", s.at(), s.cfg.MaxBytes)
		}
		return fmt.Errorf("%s is overloaded, or limits its clients: %s", s.at(), said)
	case codes.Internal:
		return fmt.Errorf("%s breaks the protocol: %s: check that the address is that of an xDS server", s.at(), said)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s ended the stream", s.at())
	case errors.Is(err, errNotReading):
		return fmt.Errorf("%s: %w for %v", s.at(), err, s.cfg.Timeout)
	}
	if _, ok := status.FromError(err); ok {
		return fmt.Errorf("%s ended the stream with %v: %s", s.at(), status.Code(err), said)
	}
	return fmt.Errorf("%s: %w", s.at(), err)
}

// variant names the variant of the protocol in errors.
func (c *Config) variant() string {
	words := map[bool]string{false: "state of the world", true: "delta"}[c.Delta]
	if c.Separate {
		return words + ", separate streams"
	}
	return words + ", aggregated"
}

// silence is the error of a resource that does not come.
func (s *session) silence(name string) error {
	if s.edsAnswers {
		return fmt.Errorf("%s has sent no endpoints for %q within %v: check the name, and what it serves to node %q",
			s.at(), name, s.cfg.Timeout, s.cfg.Node.ID)
	}
	hint := ""
	if !s.cfg.Delta { // go-control-plane's snapshot cache for ADS is one of these
		hint = "; if it answers only when all its clusters are asked for, set delta"
	}
	return fmt.Errorf("%s has sent no endpoints within %v%s: check what it serves to node %q%s",
		s.at(), s.cfg.Timeout, s.other(), s.cfg.Node.ID, hint)
}

// unlisted is the error of a cluster that is not in CDS.
func (s *session) unlisted(name string) error {
	if s.cdsAnswers || len(s.clusters) > 0 {
		return fmt.Errorf("%s lists no cluster %q: check the name, and what it serves to node %q", s.at(), name, s.cfg.Node.ID)
	}
	return fmt.Errorf("%s has sent no clusters within %v%s: check what it serves to node %q", s.at(), s.cfg.Timeout, s.other(), s.cfg.Node.ID)
}

// other tells of responses that nobody asked for.
func (s *session) other() string {
	if s.unasked == "" {
		return ""
	}
	return fmt.Sprintf(", but a response of the type %.100q, which nobody asked for", s.unasked)
}

// reported is the error of a resource for which the control plane has one.
func (s *session) reported(name string, e *discoveryv3.ResourceError) error {
	return fmt.Errorf("%s has an error for %q: %.300q", s.at(), name, e.GetErrorDetail().GetMessage())
}
