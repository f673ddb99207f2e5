// Package apiversions is the filter ApiVersions. It documents what the proxy
// does with ApiVersions in any case: clients are offered what the broker, the
// proxy and all filters can carry, and nothing else.
//
// The filter changes nothing. It exists so that a configuration can name it;
// every virtual cluster has it by default. An offer that was not narrowed would
// be of requests that the proxy cannot carry.
//
//	body, err = chain.Narrow(nil, version, body)                            // the broker's answer
//	body = wire.AppendUnsupportedApiVersions(nil, offered.Min, offered.Max) // to a newer version
//
// # Special cases
//
// The header of a response to ApiVersions never has tags, so that clients can
// read it whatever version they asked for. If the proxy does not know that
// version, it answers itself: error 35 in the layout of v0, with the versions
// that it knows, and the client asks again. If the broker does not know it, the
// broker answers in the same way, and that is narrowed too.
//
// Produce is offered from v0 if the broker offers that, whatever the filters
// carry: librdkafka takes a higher minimum for a broker that cannot compress.
// The proxy can carry Produce from v0 on. If a filter narrows it nevertheless,
// the session refuses versions below that, with a reason. Clients use the
// newest version that is offered.
//
// SaslHandshake is offered from v1. After v0 come tokens without frames, which
// cannot be told from requests. A broker with v0 alone (before Kafka 1.0) is
// not offered for SASL.
//
// ApiVersions v5 carries the cluster and the node that the client believes to
// be connected to (KIP-1242). A virtual cluster has those of the real one, so
// they pass, and REBOOTSTRAP_REQUIRED from the broker is right: another broker
// is behind this address now.
//
// APIs between brokers, and those of the metadata quorum, are never offered:
// see wire.Withheld.
package apiversions

import "penstock/kafka/filter"

// Type returns the type of this filter.
func Type() filter.Type {
	return filter.Type{Name: "ApiVersions", Config: func() filter.Config { return new(Config) }}
}

// Config is the filter's configuration: there is nothing to configure.
type Config struct{}

// Validate finds nothing.
func (*Config) Validate(func(path, message string, value any)) {}

// Provision makes the filter.
func (*Config) Provision(filter.Env) (filter.Filter, error) { return passThrough{}, nil }

// Accepts is always so.
func (*Config) Accepts(filter.Config) bool { return true }

// passThrough is a filter that wants nothing.
type passThrough struct{}

func (passThrough) Versions(_ int16, have filter.Range) filter.Range       { return have }
func (passThrough) Wants(filter.Direction, int16, int16) filter.Interest   { return filter.Nothing }
func (passThrough) Open(filter.Info) filter.Conn                           { return passThrough{} }
func (passThrough) Request(*filter.Exchange, *filter.Message) error        { return nil }
func (passThrough) Response(*filter.Exchange, *filter.Message) error       { return nil }
func (passThrough) Edits(filter.Direction, *filter.Exchange) *filter.Edits { return nil }
func (passThrough) Close()                                                 {}
