package health

import (
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"penstock/routing/endpoint"
)

// Type is the kind of a check.
type Type uint8

// The types of checks.
const (
	// TCP: the endpoint accepts a connection.
	TCP Type = iota
	// TLS: it accepts a connection and completes a handshake.
	TLS
	// HTTP: its response to a GET has a passing status; over TLS if Check.TLS is
	// set.
	HTTP
	// MySQL: it greets its client, in protocol 10.
	MySQL
)

func (t Type) String() string { return [...]string{"tcp", "tls", "http", "mysql"}[t] }

// MinInterval is the shortest interval of a check.
const MinInterval = 10 * time.Millisecond

// Check configures the probes of an endpoint. It must not be changed once a
// Target holds it. Its fields are effective values, with defaults filled in.
type Check struct {
	Type     Type
	Port     uint16        // in place of the endpoint's own; 0: its own. Unix sockets have none.
	Interval time.Duration // between the starts of two probes, +-10 % at random; at least MinInterval
	Timeout  time.Duration // of one probe, including the connect; 0: Interval
	// Rise is the number of consecutive successes that make an unhealthy endpoint
	// healthy, Fall the number of failures that make a healthy one unhealthy; 0 is
	// 1.
	Rise, Fall int

	// Path, Host and Status are for HTTP: the path of the GET ("" is "/"), the
	// Host header ("" is the endpoint's address as configured), and the statuses
	// that pass (none: 200 to 399). Redirects are not followed. For type TLS
	// without a configuration, Host is the server name to send.
	Path, Host string
	Status     []int
	// Send and Expect are for TCP and TLS: bytes to send, and the required first
	// bytes of the response.
	Send, Expect string
	// Preface is sent before everything else, including TLS: the PROXY header for
	// endpoints that require one (LOCAL in v2, UNKNOWN in v1).
	Preface string

	// TLS is the service's TLS configuration for its endpoints. Without a
	// ServerName the host of the endpoint's address is verified. If nil, type TLS
	// accepts any certificate and type HTTP uses no TLS.
	TLS *tls.Config
	// TLSKey identifies the content of TLS, so that checks with separately built
	// but equal configurations share probes. "": the pointer identifies it.
	TLSKey string
}

// key is equal for checks with the same probes.
func (c *Check) key() string {
	tlsKey := c.TLSKey
	if tlsKey == "" && c.TLS != nil {
		tlsKey = fmt.Sprintf("%p", c.TLS)
	}
	key := fmt.Sprintf("%d %d %d %d %d %q %q %v %q %q %q %t %q", c.Type, c.Interval, c.Timeout, c.Rise, c.Fall,
		c.Path, c.Host, c.Status, c.Send, c.Expect, c.Preface, c.TLS != nil, tlsKey)
	if c.Port != 0 { // other keys are those of the releases before, which share them
		key += fmt.Sprintf(" port %d", c.Port)
	}
	return key
}

func (c *Check) interval() time.Duration { return max(c.Interval, MinInterval) }

func (c *Check) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return c.interval()
}

// passes reports whether an HTTP status passes.
func (c *Check) passes(status int) bool {
	if len(c.Status) == 0 {
		return status >= 200 && status <= 399
	}
	return slices.Contains(c.Status, status)
}

// verdict is the health that a series of results implies.
type verdict struct {
	health endpoint.Health
	// against counts the latest consecutive results that contradict health.
	against int
}

// add records one result. The first one decides at once: to wait for more would
// send connections to an endpoint that is known to have failed. Later ones have
// to repeat rise or fall times.
func (v *verdict) add(ok bool, rise, fall int) (changed bool) {
	to, needed := endpoint.Unhealthy, fall
	if ok {
		to, needed = endpoint.Healthy, rise
	}
	if v.health == to {
		v.against = 0
		return false
	}
	v.against++
	if v.health != endpoint.Unchecked && v.against < needed {
		return false
	}
	v.health, v.against = to, 0
	return true
}
