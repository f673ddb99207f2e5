package health

import (
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"penstock/routing/endpoint"
)

// Type is what a check asks of an endpoint.
type Type uint8

// The types of checks.
const (
	// TCP: it takes a connection.
	TCP Type = iota
	// TLS: it takes a connection and completes a handshake.
	TLS
	// HTTP: it answers a GET with a status that passes, over TLS where
	// Check.TLS is given.
	HTTP
)

func (t Type) String() string { return [...]string{"tcp", "tls", "http"}[t] }

// MinInterval is the shortest interval of a check.
const MinInterval = 10 * time.Millisecond

// Check is how an endpoint is asked. It must not be changed once a Target
// holds it. Its fields are effective values, defaults filled in.
type Check struct {
	Type     Type
	Interval time.Duration // between the starts of two probes, 10 % earlier or later by chance; at least MinInterval
	Timeout  time.Duration // of one probe, from the connect on; 0: Interval
	// Rise is how many successes in a row make an unhealthy endpoint healthy,
	// Fall how many failures a healthy one unhealthy; 0 is 1.
	Rise, Fall int

	// Path, Host and Status are for HTTP: the path to GET ("" is "/"), the
	// Host header ("" is the endpoint's address as configured), the statuses
	// that pass (none: 200 to 399). No redirect is followed. For TLS without
	// a configuration Host is the server name to ask for.
	Path, Host string
	Status     []int
	// Send and Expect are for TCP and TLS: bytes to send, and those that the
	// answer must begin with.
	Send, Expect string
	// Preface is sent before everything else, TLS included: the PROXY header
	// of a service whose endpoints want one (v2's LOCAL, v1's UNKNOWN).
	Preface string

	// TLS is the service's TLS towards its endpoints. Without a ServerName
	// the host of the endpoint's address is verified. nil: for the type TLS
	// any certificate passes, for HTTP there is no TLS.
	TLS *tls.Config
	// TLSKey identifies the content of TLS, so that checks whose
	// configurations were made apart can be one. "": TLS itself does.
	TLSKey string
}

// key is equal for checks that ask the same.
func (c *Check) key() string {
	tlsKey := c.TLSKey
	if tlsKey == "" && c.TLS != nil {
		tlsKey = fmt.Sprintf("%p", c.TLS)
	}
	return fmt.Sprintf("%d %d %d %d %d %q %q %v %q %q %q %t %q", c.Type, c.Interval, c.Timeout, c.Rise, c.Fall,
		c.Path, c.Host, c.Status, c.Send, c.Expect, c.Preface, c.TLS != nil, tlsKey)
}

func (c *Check) interval() time.Duration { return max(c.Interval, MinInterval) }

func (c *Check) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return c.interval()
}

// passes tells whether an HTTP status does.
func (c *Check) passes(status int) bool {
	if len(c.Status) == 0 {
		return status >= 200 && status <= 399
	}
	return slices.Contains(c.Status, status)
}

// verdict is what a series of results says.
type verdict struct {
	health endpoint.Health
	// against counts the last results in a row that contradict health.
	against int
}

// add takes one result. The first decides at once: until then nothing is
// known, and waiting for more would send connections to an endpoint that is
// known to have failed. Later it takes rise or fall in a row.
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
