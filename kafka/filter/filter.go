// Package filter defines filters, which see and change the messages between a
// virtual cluster and a physical one, and runs a chain of them.
//
// A filter declares which API versions it can carry and which messages it wants
// to see. Messages that no filter wants pass without being collected or
// decoded. If a filter fails, the connection ends: a message that it wanted to
// see never goes on without it.
//
// The life of a filter: Type.Config returns an empty configuration, which is
// decoded strictly and validated like every resource. Provision makes the
// Filter, which all connections of a virtual cluster share. Open makes the part
// of one connection. Close ends each. The methods of a Conn are called on the
// loop of its connection, must not block, and allocate only what they change.
package filter

import (
	"errors"
	"log/slog"
	"net/netip"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// Direction is where a message goes.
type Direction uint8

// The directions.
const (
	Request  Direction = iota // from the client to the broker
	Response                  // from the broker to the client
)

// Interest is how much a filter wants to see of a message, by API, version and
// direction.
type Interest uint8

// The interests; a higher one includes the lower ones.
const (
	// Nothing: the message passes unseen.
	Nothing Interest = iota
	// Walk: names, ids and node endpoints are shown to Edits while the
	// message streams through; records never stop. Only for the messages
	// that wire.Walkable tells.
	Walk
	// Whole: the message is collected, within the frame cap and the node's
	// memory budget, and given to Conn.Request or Conn.Response.
	Whole
)

// Range is a range of API versions, both ends included. With Min > Max it is
// empty: the API is hidden from clients and refused.
type Range struct{ Min, Max int16 }

// Hidden is the empty range.
var Hidden = Range{1, 0}

// A Filter is a configured filter of one cluster, shared by all its
// connections. Its methods are called on all loops.
type Filter interface {
	// Versions narrows the versions that clients are offered. have is what the
	// proxy and the filters before can carry; the result must lie within.
	// Filters for security hide APIs that they do not know.
	Versions(key int16, have Range) Range
	// Wants returns what the filter must see. It is called once for each
	// direction, API and version, when the chain is compiled.
	Wants(d Direction, key, version int16) Interest
	// Open makes the part of one connection.
	Open(info Info) Conn
	// Close is called once, when the last connection that had it is gone.
	Close()
}

// Conn is the part of a filter for one connection.
type Conn interface {
	// Request sees a request that the filter wants whole. It may change it,
	// answer it (x.Answer), drop it if the client expects no answer (x.Drop),
	// or ask the broker something first (x.Ask). An error ends the connection.
	Request(x *Exchange, m *Message) error
	// Response sees a response that the filter wants whole. x is that of its
	// request.
	Response(x *Exchange, m *Message) error
	// Edits returns what to change in a message that the filter wants to Walk;
	// nil: nothing. x is that of the request in both directions.
	Edits(d Direction, x *Exchange) *Edits
	// Close is called when the connection or the chain ends.
	Close()
}

// BufferingConn is a Conn that may want a request whole although its filter
// wants to Walk it: because of its content, the filter may have to ask the
// broker before any of it goes on.
type BufferingConn interface {
	Conn
	// MayBuffer is called before a request goes on. If it returns true, Request
	// sees it, unless it is too large; so Edits must be able to do without.
	MayBuffer(x *Exchange) bool
}

// Edits are the changes of a filter to a message that streams.
type Edits = wire.Edits

// Info describes a connection to the filters that are opened for it.
type Info struct {
	VirtualCluster, PhysicalCluster, Broker string
	// Client is who is connected; nil: not known.
	Client *Client
	// Topics limits the bytes of topics; nil: nobody does.
	Topics TopicLimiter
	Log    *slog.Logger
}

// TopicLimiter limits the bytes of topics. Its methods are called on the loop of the
// connection and must not block.
type TopicLimiter interface {
	// ChargeTopic charges n bytes of a topic that were produced (Request) or fetched
	// (Response). topic is its name for clients, "" if that is not known.
	ChargeTopic(d Direction, topic string, n int)
}

// Client is who is connected. Its fields belong to the loop of the connection.
type Client struct {
	// Listener is where it connected to, Address where from.
	Listener string
	Address  netip.Addr
	// Identity is the SPIFFE ID that it has proven in its TLS handshake, or "".
	Identity string
	// IdentityUndecided: it has proven something from which no single ID follows.
	IdentityUndecided bool
	// Tags are those of its source, Service is its service by these.
	Tags    map[string]string
	Service string
	// Changes counts changes of Identity, Tags and Service.
	Changes int
	// Principal is "User:" and the name that the broker has confirmed by SASL,
	// AnonymousPrincipal without SASL, and "" if it is not known: the mechanism does
	// not show it. It may change between two requests, but from Anonymous only.
	Principal string
}

// AnonymousPrincipal is what Kafka calls clients that have not authenticated.
const AnonymousPrincipal = "User:ANONYMOUS"

// Broker is a broker of a physical cluster, as clients see it.
type Broker struct {
	NodeID int32 // -1: not known
	Host   string
	Port   int32
}

// Env is the environment that a filter is provisioned in.
type Env struct {
	VirtualCluster, PhysicalCluster string
	// Address maps a broker, as the physical cluster names it, to the address
	// for clients of the virtual cluster. The answer may change, since
	// discovered brokers count. ok is false if it has no virtual broker.
	Address func(nodeID int32, host string, port int32) (Broker, bool)
	// HideUnmapped leaves brokers without a virtual address out of answers. If
	// it is false, such an answer ends the connection (unmappedBrokers of the
	// virtual cluster).
	HideUnmapped bool
	Log          *slog.Logger
}

// Config is the configuration of one filter as users write it: a pointer to a
// struct with the tags of package resource.
type Config interface {
	// Validate reports the faults that can be seen in it alone; paths are
	// relative to the configuration.
	Validate(report func(path, message string, value any))
	// Provision makes the filter.
	Provision(env Env) (Filter, error)
	// Accepts reports whether open connections may switch from the filter of an
	// older configuration to this one's, between two requests.
	Accepts(older Config) bool
}

// Type is a type of filter.
type Type struct {
	// Name is what users write as type; Aliases are other names for it.
	Name    string
	Aliases []string
	// Config gives an empty configuration.
	Config func() Config
}

// Errors that end a connection; a filter wraps them with what it saw.
var (
	// ErrDenied means that the client may not do this, and that no answer of
	// the protocol could say so.
	ErrDenied = errors.New("denied")
	// ErrMalformed means that a message is not what its header says.
	ErrMalformed = errors.New("malformed message")
	// ErrUnmapped means that a broker has no address that clients may see.
	ErrUnmapped = errors.New("broker without a virtual address")
)

// Exchange is one request and its response, as one filter sees them. It is
// valid until the response is on its way to the client.
type Exchange struct {
	Key, Version int16
	// ClientID is as the client sent it, cut to 64 bytes.
	ClientID string
	// NoResponse: the client expects none (Produce with acks=0).
	NoResponse bool
	// State belongs to the filter, from its Request to its Response.
	State any

	actions  Actions
	response bool // CollectResponse
}

// CollectResponse says that the filter wants to see the response to this request
// whole, more than Wants returned. Call it before the request is gone.
func (x *Exchange) CollectResponse() { x.response = true }

// NewExchange returns an Exchange for code that runs a chain.
func NewExchange(key, version int16, clientID string, do Actions) Exchange {
	return Exchange{Key: key, Version: version, ClientID: clientID, actions: do}
}

// Actions carries out what a filter asks for.
type Actions interface {
	Answer(x *Exchange, resp kmsg.Response)
	Drop(x *Exchange)
	Ask(x *Exchange, req kmsg.Request, then func(kmsg.Response, error) error)
}

// Answer answers the request in place of the broker. Filters behind this one
// never see the request; filters before it see the answer as they would see the
// broker's. The answer leaves in its turn. resp must have the version of the
// request.
func (x *Exchange) Answer(resp kmsg.Response) { x.actions.Answer(x, resp) }

// Drop discards a request that expects no response.
func (x *Exchange) Drop() { x.actions.Drop(x) }

// Ask sends a request of the filter's own to the broker, through the filters
// behind it, and calls then on the loop with the decoded answer. Until then the
// message waits, and so does everything behind it in the same direction. In
// then the filter may change or Answer the message, or Ask again; an error ends
// the connection. If the connection ends first, then gets an err. Ask works in
// Response too.
func (x *Exchange) Ask(req kmsg.Request, then func(resp kmsg.Response, err error) error) {
	x.actions.Ask(x, req, then)
}
