// Package filter is what stands between a virtual cluster and a physical one:
// what a filter is, how a chain of them runs, and which types there are.
//
// A filter says which versions it can carry and what it wants to see. All
// that no filter wants passes through without being collected or decoded. A
// filter that fails ends the connection: a frame that it was to see never
// goes on without it.
//
// The life of a filter: Type.Config gives an empty configuration, which is
// decoded strictly and validated like every resource; Provision makes the
// Filter, shared by all connections of a virtual cluster; Open makes what one
// connection needs; Close lets each go. The methods of a Conn are called on
// its connection's loop, must not block, and allocate only what they change.
package filter

import (
	"errors"
	"log/slog"

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

// Interest is what a filter wants to see of one API, version and direction.
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

// Range is the versions of an API, both ends included. Min > Max: none, the
// API is hidden from clients and refused.
type Range struct{ Min, Max int16 }

// Hidden is the range of an API that must not be used.
var Hidden = Range{1, 0}

// A Filter is one configured filter of one cluster, shared by its connections.
// Its methods are called from all loops.
type Filter interface {
	// Versions narrows what clients are offered. have is what the proxy and
	// the filters before it can carry; what it returns must lie within.
	// Filters for security hide APIs that they do not know.
	Versions(key int16, have Range) Range
	// Wants tells what it must see. It is asked once for each triple when
	// the chain is compiled.
	Wants(d Direction, key, version int16) Interest
	// Open makes the filter's part of one connection.
	Open(info Info) Conn
	// Close is called once, when the last connection that had it is gone.
	Close()
}

// Conn is a filter's part of one connection.
type Conn interface {
	// Request sees a request that it wants whole. It may change it, answer
	// it (x.Answer), drop it where the client expects no answer (x.Drop), or
	// ask the broker something first (x.Ask). An error ends the connection.
	Request(x *Exchange, m *Message) error
	// Response sees a response that it wants whole, that of the request of
	// the same x.
	Response(x *Exchange, m *Message) error
	// Edits gives what it changes in a message that it wants to Walk; nil:
	// nothing. x is that of the request in both directions.
	Edits(d Direction, x *Exchange) *Edits
	// Close lets it go.
	Close()
}

// BufferingConn is a Conn that may want a request whole that its filter wants to
// Walk: what is in it may make it ask the broker before any of it goes on.
type BufferingConn interface {
	Conn
	// MayBuffer is asked before a request goes on. True gives it to Request,
	// if it is not too large for that; Edits may have to do in any case.
	MayBuffer(x *Exchange) bool
}

// Edits are what a filter changes in a message that streams.
type Edits = wire.Edits

// Info is what is known of a connection when its filters are opened.
type Info struct {
	VirtualCluster, PhysicalCluster, Broker string
	Log                                     *slog.Logger
}

// Broker is one broker of a physical cluster, as clients are to see it.
type Broker struct {
	NodeID int32 // -1: not known
	Host   string
	Port   int32
}

// Env is what a filter is provisioned with.
type Env struct {
	VirtualCluster, PhysicalCluster string
	// Address maps a broker, as the physical cluster names it, to what
	// clients of the virtual cluster are to use, by the model (its
	// discovered brokers included, so the answer may change). ok false: it
	// has no virtual broker.
	Address func(nodeID int32, host string, port int32) (Broker, bool)
	// HideUnmapped leaves brokers without a virtual address out of answers,
	// where false ends the connection (unmappedBrokers of the virtual cluster).
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
	// Takes tells whether connections that began with the filter of an older
	// configuration may go on with this one's, from a frame boundary on.
	Takes(older Config) bool
}

// Type is one type of filter.
type Type struct {
	// Name is what users write as type; Aliases are taken for it.
	Name    string
	Aliases []string
	// Config gives an empty configuration.
	Config func() Config
}

// Errors that end a connection; a filter wraps them with what it saw.
var (
	// ErrDenied says that the client may not do this, and that no answer of
	// the protocol could say so.
	ErrDenied = errors.New("denied")
	// ErrMalformed says that a message is not what its header says.
	ErrMalformed = errors.New("malformed message")
	// ErrUnmapped says that a broker has no address that clients may see.
	ErrUnmapped = errors.New("broker without a virtual address")
)

// Exchange is one request with its response, as one filter sees it. It lives
// until the response is on its way to the client.
type Exchange struct {
	Key, Version int16
	// ClientID is as the client sent it, cut to 64 bytes.
	ClientID string
	// NoResponse: the client expects none (Produce with acks=0).
	NoResponse bool
	// State is the filter's own, from its Request to its Response.
	State any

	do Actions
}

// NewExchange is for whoever runs a chain.
func NewExchange(key, version int16, clientID string, do Actions) Exchange {
	return Exchange{Key: key, Version: version, ClientID: clientID, do: do}
}

// Actions is how a chain carries out what a filter asks for.
type Actions interface {
	Answer(x *Exchange, resp kmsg.Response)
	Drop(x *Exchange)
	Ask(x *Exchange, req kmsg.Request, then func(kmsg.Response, error) error)
}

// Answer answers the request in place of the broker; filters behind this one
// never see it, those before it see the answer as they would the broker's. The
// answer leaves in its turn. resp must have the request's version.
func (x *Exchange) Answer(resp kmsg.Response) { x.do.Answer(x, resp) }

// Drop lets the request disappear. It is for requests without a response.
func (x *Exchange) Drop() { x.do.Drop(x) }

// Ask sends a request of the filter's own to the broker, through the filters
// behind it, and calls then on the loop with the answer, decoded. Until then
// the message that is being filtered waits, and what comes behind it in the
// same direction. From then the filter may change or Answer it, or Ask again;
// an error ends the connection. An err is given when the connection ends first.
// In Response it may be used as well.
func (x *Exchange) Ask(req kmsg.Request, then func(resp kmsg.Response, err error) error) {
	x.do.Ask(x, req, then)
}
