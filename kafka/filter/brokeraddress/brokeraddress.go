// Package brokeraddress is the filter BrokerAddress: it replaces the addresses
// of a physical cluster's brokers by those of virtual brokers in every response
// that carries them, so that clients come back through the proxy.
//
//	filters:
//	- type: BrokerAddress
//	  config:
//	    brokerAddressMapping:
//	      broker-1.azA.internal.svc:19080: broker-A.example.com:9092
//
// An address that is not in the mapping is looked up in the model, so the
// filter needs no configuration; every virtual cluster has it by default. A
// broker that neither knows is hidden or ends the connection; its address is
// never shown. Nor are addresses of controllers, which clients have no use for.
//
// The files of package wire that are named for an API key (03_metadata.go) tell
// which addresses each API carries and how they are edited in place. Fetch and
// ShareFetch stream: if such a response does not arrive in one piece, a node
// endpoint may be left out because its virtual address is longer than the real
// one. The client then asks for Metadata.
//
// Settings of brokers that tell addresses (listeners, the quorum) become
// sensitive and lose their value. User endpoints of streams groups belong to
// clients and stay.
package brokeraddress

import (
	"errors"
	"fmt"
	"sync/atomic"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// Type returns the type of this filter.
func Type() filter.Type {
	return filter.Type{Name: "BrokerAddress", Config: func() filter.Config { return new(Config) }}
}

// Filter replaces real addresses by virtual ones.
type Filter struct {
	mapping  map[endpoint]endpoint // by what canonical makes of the key
	address  func(nodeID int32, host string, port int32) (filter.Broker, bool)
	hide     bool
	mapWhole wire.NodeFunc // node, where the caller counts what is hidden
	edits    filter.Edits
	hidden   atomic.Uint64
}

// Hidden counts the addresses that were kept from clients: brokers without a
// virtual address, listeners of controllers, and settings that tell addresses.
// It is for metrics, and may be called from any goroutine.
func (f *Filter) Hidden() uint64 { return f.hidden.Load() }

// Versions implements filter.Filter: every version that is known is carried.
func (f *Filter) Versions(_ int16, have filter.Range) filter.Range { return have }

// Wants implements filter.Filter. Responses with records are walked.
func (f *Filter) Wants(d filter.Direction, key, version int16) filter.Interest {
	switch {
	case d != filter.Response || !wire.CarriesAddress(key, version):
		return filter.Nothing
	case wire.CarriesRecords(key):
		return filter.Walk
	}
	return filter.Whole
}

// Open implements filter.Filter. A connection has no state.
func (f *Filter) Open(filter.Info) filter.Conn { return conn{f} }

// Close implements filter.Filter.
func (f *Filter) Close() {}

type conn struct{ f *Filter }

// Request implements filter.Conn; no request is wanted.
func (conn) Request(*filter.Exchange, *filter.Message) error { return nil }

// Response implements filter.Conn.
func (c conn) Response(_ *filter.Exchange, m *filter.Message) error {
	head, tail, hidden, err := wire.MapAddresses(nil, m.Key, m.Version, m.Body(), c.f.mapWhole)
	if hidden > 0 {
		c.f.hidden.Add(uint64(hidden))
	}
	switch {
	case err != nil && errors.Is(err, filter.ErrUnmapped):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", filter.ErrMalformed, err)
	case len(head) > 0:
		m.SetParts(head, tail)
	}
	return nil
}

// Edits implements filter.Conn.
func (c conn) Edits(d filter.Direction, _ *filter.Exchange) *filter.Edits {
	if d != filter.Response {
		return nil
	}
	return &c.f.edits
}

// Close implements filter.Conn.
func (conn) Close() {}

// mapNode is a wire.NodeFunc for messages that are seen whole.
func (f *Filter) mapNode(id int32, host string, port int32) (vhost string, vport int32, ok bool, err error) {
	if to, mapped := f.lookup(host, port); mapped {
		return to.host, to.port, true, nil
	}
	if f.address != nil {
		if b, ok := f.address(id, host, port); ok {
			return b.Host, b.Port, true, nil
		}
	}
	if f.hide {
		return "", 0, false, nil
	}
	return "", 0, false, fmt.Errorf("%w: node %d at %s:%d; list it in the virtual cluster or in brokerAddressMapping",
		filter.ErrUnmapped, id, host, port)
}

// mapStreamed is node for messages that stream, where the caller does not count
// what is hidden.
func (f *Filter) mapStreamed(id int32, host string, port int32) (vhost string, vport int32, ok bool, err error) {
	vhost, vport, ok, err = f.mapNode(id, host, port)
	if !ok && err == nil {
		f.hidden.Add(1)
	}
	return vhost, vport, ok, err
}

func (f *Filter) lookup(host string, port int32) (endpoint, bool) {
	if len(f.mapping) == 0 {
		return endpoint{}, false
	}
	to, ok := f.mapping[endpoint{host, port}]
	if !ok {
		to, ok = f.mapping[canonical(host, port)]
	}
	return to, ok
}
