package api

import "time"

// MethodEndpoints lists the endpoints of services as the node that serves the
// request has them: EndpointsRequest -> Endpoints.
const MethodEndpoints = "endpoints"

// EndpointsRequest asks for the endpoints of a service; "": of all.
type EndpointsRequest struct {
	Service string `json:"service,omitempty"`
}

// Endpoints are sorted by service, in the order in which the service has them.
type Endpoints []Endpoint

// Endpoint is one address of a service.
type Endpoint struct {
	Service string `json:"service"`
	Address string `json:"address"`
	// Resolved is the address of a host name.
	Resolved string `json:"resolved,omitempty"`
	// Source is the provider that the endpoint comes from, or "service" for one
	// that the Service lists. AlsoFrom are the other providers that report it.
	Source   string   `json:"source"`
	AlsoFrom []string `json:"alsoFrom,omitempty"`
	// Since is when the provider reported the address first.
	Since *time.Time `json:"since,omitempty"`
	// State is ready, notReady or terminating, as the provider says; the last two
	// get no new connections.
	State       string            `json:"state"`
	Health      string            `json:"health"` // as in EndpointStatus
	Weight      int               `json:"weight"`
	Priority    int               `json:"priority"`
	Backup      bool              `json:"backup,omitempty"`
	LevelShare  float64           `json:"levelShare"` // percentage of the connections that its priority gets
	Zone        string            `json:"zone,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Connections int64             `json:"connections"`    // of this node
	Load        string            `json:"load,omitempty"` // as in EndpointStatus
	// Bound is the circuit breaker's bound of Connections, or of requests if it has
	// only that; 0: none.
	Bound int `json:"bound,omitempty"`
}

// The states of a ProviderStatus.
const (
	ProviderOK     = "ok"
	ProviderStale  = "stale"    // the last attempt failed, or none has succeeded yet
	ProviderFailed = "failed"   // it cannot run with its settings
	ProviderIdle   = "not used" // no service uses it
)

// ProviderStatus is the state of an EndpointProvider on the node that runs it.
type ProviderStatus struct {
	Node  string `json:"node"`
	Name  string `json:"name"`
	State string `json:"state"`
	// Error is why the whole provider fails now.
	Error    string          `json:"error,omitempty"`
	Services []ProviderQuery `json:"services,omitempty"`
}

// ProviderQuery is what a provider says about one of its services.
type ProviderQuery struct {
	Service string `json:"service"`
	Port    string `json:"port,omitempty"`
	// Endpoints is how many are in force, Unused how many of the last answer are
	// left out, the first of them for the reason Fault.
	Endpoints int    `json:"endpoints"`
	Unused    int    `json:"unused,omitempty"`
	Fault     string `json:"fault,omitempty"`
	// Answered is the time of the last answer, Changed that of the last change.
	Answered *time.Time `json:"answered,omitempty"`
	Changed  *time.Time `json:"changed,omitempty"`
	// Stale: the last attempt failed, with Error, after Failures in a row, or there
	// was no answer yet.
	Stale    bool   `json:"stale,omitempty"`
	Error    string `json:"error,omitempty"`
	Failures int    `json:"failures,omitempty"`
	// Warning is what is wrong beside the last answer, such as a server of several
	// that does not answer.
	Warning string `json:"warning,omitempty"`
	// HeldSince is since when the removals of an answer are held back. Expired: the
	// endpoints were removed because they were stale for too long.
	HeldSince *time.Time `json:"heldSince,omitempty"`
	Expired   bool       `json:"expired,omitempty"`
}
