// Package http reads endpoints from a web server: a JSON list that it polls,
// or holds a request open for.
//
//	[{"address": "10.0.0.1:8080", "weight": 2, "state": "ready", "tags": {"zone": "a"}}]
//
// Each query has a URL of its own if the URL contains {service} or {port}. One
// document answers all queries if it does not: a list that is the same for all,
// or an object of lists by service.
//
// An answer is parsed strictly and used as a whole or not at all.
package http

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	nethttp "net/http"
	"time"

	"golang.org/x/net/http/httpguts"

	"penstock/routing/provider"
)

// Mode is how a Source learns of changes.
type Mode string

const (
	// Poll asks again after each interval. An answer with an ETag or Last-Modified
	// is asked for conditionally, so that an unchanged one costs little.
	Poll Mode = "poll"
	// LongPoll asks with "Prefer: wait=N" (RFC 7240) and the last ETag: the server
	// answers when the list differs from that, or 304 after N seconds.
	LongPoll Mode = "longPoll"
	// SSE reads server-sent events (text/event-stream). The data of each event is a
	// complete document. A request without Last-Event-ID is answered by one at
	// once.
	SSE Mode = "sse"
)

// Config configures New. A zero field has the default.
type Config struct {
	// URL is an absolute http or https URL without user, password and fragment. In
	// its path and query string {service} and {port} stand for those of the query.
	URL string
	// Mode is Poll by default.
	Mode Mode
	// Interval is the time between two requests of Poll, 10 % more or less at
	// random; 10 s by default, 100 ms to 24 h.
	Interval time.Duration
	// Wait is how long LongPoll lets the server hold a request; 1 min by default, 1
	// s to 10 min in whole seconds.
	Wait time.Duration
	// IdleTimeout is how long an event stream may be silent before the source
	// connects anew; 1 min by default, 1 s to 1 h. Servers send comments to keep a
	// stream alive.
	IdleTimeout time.Duration
	// Timeout bounds the time of a request with its answer, for LongPoll beyond
	// Wait, for SSE up to the first document; 10 s by default, 100 ms to 10 min.
	Timeout time.Duration

	// Token is sent as "Authorization: Bearer TOKEN". Headers are sent as they are.
	// Both are secrets: no error contains a value of theirs.
	Token   string
	Headers map[string]string
	// TLS is for https: roots, client certificate, server name. nil: the roots of
	// the system.
	TLS *tls.Config

	// MaxBytes bounds a document, after decompression; 16 MiB by default, 1 KiB to 1
	// GiB. MaxEndpoints bounds the endpoints in it, those of other services
	// included; 100,000 by default, 1 to 1,000,000.
	MaxBytes     int64
	MaxEndpoints int
	// MaxURLs bounds the different URLs that the queries make, thus what LongPoll
	// and SSE hold open; 1000 by default, 1 to 10,000. MaxRequests bounds the
	// requests of Poll at the same time; 32 by default, 1 to 1000.
	MaxURLs     int
	MaxRequests int
}

// reserved headers are the source's own, or net/http's.
var reserved = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Cache-Control": true, "Connection": true, "Content-Length": true, "Host": true,
	"If-Modified-Since": true, "If-None-Match": true, "Last-Event-Id": true, "Prefer": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true,
}

// complete fills in the defaults.
func (c *Config) complete() {
	c.Mode = cmp.Or(c.Mode, Poll)
	c.Interval = cmp.Or(c.Interval, 10*time.Second)
	c.Wait = cmp.Or(c.Wait, time.Minute)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, 16<<20)
	c.MaxEndpoints = cmp.Or(c.MaxEndpoints, provider.DefaultMaxEndpoints)
	c.MaxURLs = cmp.Or(c.MaxURLs, 1000)
	c.MaxRequests = cmp.Or(c.MaxRequests, 32)
}

// validate reports all faults of a complete configuration.
func (c *Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Mode != Poll && c.Mode != LongPoll && c.Mode != SSE {
		fault("mode: %q must be poll, longPoll or sse", string(c.Mode))
	}
	for _, d := range []struct {
		name            string
		value, min, max time.Duration
	}{
		{"interval", c.Interval, 100 * time.Millisecond, 24 * time.Hour},
		{"wait", c.Wait, time.Second, 10 * time.Minute},
		{"idleTimeout", c.IdleTimeout, time.Second, time.Hour},
		{"timeout", c.Timeout, 100 * time.Millisecond, 10 * time.Minute},
	} {
		if d.value < d.min || d.value > d.max {
			fault("%s: %v must be %v to %v", d.name, d.value, d.min, d.max)
		}
	}
	if c.Wait%time.Second != 0 {
		fault("wait: %v must be whole seconds", c.Wait)
	}
	for _, n := range []struct {
		name            string
		value, min, max int64
	}{
		{"maxBytes", c.MaxBytes, 1 << 10, 1 << 30},
		{"maxEndpoints", int64(c.MaxEndpoints), 1, 1_000_000},
		{"maxURLs", int64(c.MaxURLs), 1, 10_000},
		{"maxRequests", int64(c.MaxRequests), 1, 1000},
	} {
		if n.value < n.min || n.value > n.max {
			fault("%s: %d must be %d to %d", n.name, n.value, n.min, n.max)
		}
	}
	if !httpguts.ValidHeaderFieldValue(c.Token) {
		fault("token: contains a character that a header must not have, perhaps a line end")
	}
	for name, value := range c.Headers {
		canonical := nethttp.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			fault("headers: %q is not the name of a header", name)
		case reserved[canonical]:
			fault("headers: %q cannot be set", name)
		case canonical == "Authorization" && c.Token != "":
			fault("headers: %q is set by token as well; give one of them", name)
		case !httpguts.ValidHeaderFieldValue(value):
			fault("headers: the value of %q contains a character that a header must not have, perhaps a line end", name)
		}
	}
	return errors.Join(faults...)
}
