// Package consul reads endpoints from Consul: the instances of a service, with
// their health, by blocking queries of the health API.
//
// It uses net/http rather than Consul's client library, which reads the
// environment of the process (CONSUL_HTTP_...) and does not bound an answer.
package consul

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"penstock/routing/provider"
)

// Config configures New. A zero field has the default.
type Config struct {
	// Address is that of an agent or server: http://host:port, https://host:port or
	// unix:/path; http://127.0.0.1:8500 by default.
	Address string
	// Token is the ACL token, a secret. It needs service:read and node:read.
	Token string
	// TLS is for https: roots, client certificate, server name. nil: the roots of
	// the system.
	TLS *tls.Config

	// Datacenter, Namespace and Partition are where the services are; "" is that of
	// the agent and the token.
	Datacenter, Namespace, Partition string
	// Tags are what an instance must have, all of them; at most 16, without quotes,
	// backslashes and control characters.
	Tags []string
	// WarningReady makes instances ready whose worst check is a warning, with their
	// weight for that. Without it only passing ones are.
	WarningReady bool
	// Stale lets any server answer, one without a leader too.
	Stale bool

	// Wait is how long Consul may hold a query when nothing changes, 6 % more or
	// less at random; 5 min by default, 1 s to 9 min.
	Wait time.Duration
	// Timeout bounds the time of a request with its answer beyond Wait; 10 s by
	// default, 100 ms to 10 min.
	Timeout time.Duration
	// MaxBytes bounds an answer; 64 MiB by default, 1 KiB to 1 GiB. MaxEndpoints
	// bounds the instances in it; 100,000 by default, 1 to 1,000,000.
	MaxBytes     int64
	MaxEndpoints int
	// MaxQueries bounds the queries, each of which holds a request open; 1000 by
	// default, 1 to 10,000. An agent allows 200 connections of one client unless its
	// http_max_conns_per_client says otherwise.
	MaxQueries int
}

const maxTagFilters = 16

// complete fills in the defaults.
func (c *Config) complete() {
	c.Address = cmp.Or(c.Address, "http://127.0.0.1:8500")
	c.Wait = cmp.Or(c.Wait, 5*time.Minute)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, 64<<20)
	c.MaxEndpoints = cmp.Or(c.MaxEndpoints, provider.DefaultMaxEndpoints)
	c.MaxQueries = cmp.Or(c.MaxQueries, 1000)
}

// validate reports all faults of a complete configuration.
func (c *Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if _, _, err := parseAddress(c.Address); err != nil {
		faults = append(faults, err)
	}
	if !httpguts.ValidHeaderFieldValue(c.Token) {
		fault("token: contains a character that a header must not have, perhaps a line end")
	}
	if len(c.Tags) > maxTagFilters {
		fault("tags: %d; the maximum is %d", len(c.Tags), maxTagFilters)
	}
	for _, tag := range c.Tags {
		if strings.ContainsAny(tag, "\"\\`") || !provider.TagOK(tag, "") {
			fault("tags: %.60q must be text without quotes and backslashes", tag)
		}
	}
	if c.Wait < time.Second || c.Wait > 9*time.Minute {
		fault("wait: %v must be 1s to 9m", c.Wait)
	}
	if c.Timeout < 100*time.Millisecond || c.Timeout > 10*time.Minute {
		fault("timeout: %v must be 100ms to 10m", c.Timeout)
	}
	if c.MaxBytes < 1<<10 || c.MaxBytes > 1<<30 {
		fault("maxBytes: %d must be 1024 to %d", c.MaxBytes, 1<<30)
	}
	if c.MaxEndpoints < 1 || c.MaxEndpoints > 1_000_000 {
		fault("maxEndpoints: %d must be 1 to 1000000", c.MaxEndpoints)
	}
	if c.MaxQueries < 1 || c.MaxQueries > 10_000 {
		fault("maxQueries: %d must be 1 to 10000", c.MaxQueries)
	}
	return errors.Join(faults...)
}

// parseAddress returns the beginning of the URLs, and the path of the socket if it
// is one. Its errors do not repeat the address, which may hold a password.
func parseAddress(address string) (origin, socket string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if !strings.HasPrefix(path, "/") {
			return "", "", errors.New("address: unix: must be followed by an absolute path")
		}
		return "http://consul", path, nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "", "", errors.New("address: must be http://host:port, https://host:port or unix:/path")
	case u.User != nil:
		return "", "", errors.New("address: must not contain a user or password; use token")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", "", errors.New("address: must end after the port")
	}
	return u.Scheme + "://" + u.Host, "", nil
}
