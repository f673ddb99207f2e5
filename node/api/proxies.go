package api

import "time"

// MethodProxies lists the clients of the discovery servers: ProxiesRequest ->
// Proxies.
const MethodProxies = "proxies"

// ProxiesRequest asks for the proxies of a service; "": of all.
type ProxiesRequest struct {
	Service string `json:"service,omitempty"`
	// Local asks for those of the node that serves the request alone; otherwise it
	// asks the other nodes too.
	Local bool `json:"local,omitempty"`
}

// Proxies are the connected clients, sorted by service, node and address.
type Proxies struct {
	Proxies []Proxy `json:"proxies"`
	// Silent are the nodes that did not answer.
	Silent []string `json:"silent,omitempty"`
}

// Proxy is a client of a node's discovery server: one connection.
type Proxy struct {
	Node    string `json:"node"` // of the cluster
	Service string `json:"service,omitempty"`
	// Identity is from the client's certificate: its SPIFFE ID or common name; "":
	// the connection has no TLS.
	Identity string    `json:"identity,omitempty"`
	Address  string    `json:"address"`
	Since    time.Time `json:"since"`
	// ID, Agent and Zone are what the client says of itself, shortened: its
	// node.id, the name and version of its program, and its zone.
	ID    string `json:"id,omitempty"`
	Agent string `json:"agent,omitempty"`
	Zone  string `json:"zone,omitempty"`
	// Announced is the endpoint as which the proxy is announced.
	Announced string      `json:"announced,omitempty"`
	Streams   int         `json:"streams"`
	Types     []ProxyType `json:"types,omitempty"`
}

// ProxyType is the state of one type of resources on one of a client's streams.
type ProxyType struct {
	Type  string `json:"type"` // cluster, endpoint, listener, route or secret
	Delta bool   `json:"delta,omitempty"`
	// All: the client has subscribed to all resources, otherwise to Names of them.
	All   bool `json:"all,omitempty"`
	Names int  `json:"names,omitempty"`
	// Sent and Accepted are the versions of the last responses sent and accepted.
	Sent     string `json:"sent,omitempty"`
	Accepted string `json:"accepted,omitempty"`
	// Behind is since when the client has not accepted all that there is for it.
	Behind *time.Time `json:"behind,omitempty"`
	// Rejected is why it refused resources last, at RejectedAt. Refusing: the last
	// response was that one.
	Rejected   string     `json:"rejected,omitempty"`
	RejectedAt *time.Time `json:"rejectedAt,omitempty"`
	Refusing   bool       `json:"refusing,omitempty"`
}

// ProxiesStatus is the state of a node's discovery server.
type ProxiesStatus struct {
	Node      string `json:"node"`
	Connected int    `json:"connected"`
	// Refusing and Behind are how many refuse resources, and how many have not
	// accepted for ProxyBehind what there is for them.
	Refusing int `json:"refusing,omitempty"`
	Behind   int `json:"behind,omitempty"`
	// Problems are the first of these.
	Problems []Proxy `json:"problems,omitempty"`
}

// ProxyBehind is how long a proxy may take to accept resources before it is shown
// as behind, and MaxProxyProblems how many are shown of a node.
const (
	ProxyBehind      = 10 * time.Second
	MaxProxyProblems = 10
)
