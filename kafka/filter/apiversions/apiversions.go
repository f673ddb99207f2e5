// Package apiversions is the filter ApiVersions, and what a proxy does with
// ApiVersions whether it is named or not: clients are offered what the broker,
// the proxy and all filters can carry, and nothing else.
//
// The filter itself changes nothing, so naming it does no more than to say so:
// an offer that was not narrowed would be of requests that the proxy cannot
// carry. It is in virtual clusters by default.
//
//	body, err = chain.Narrow(nil, version, body)                           // what the broker answered
//	body = wire.AppendUnsupportedApiVersions(nil, offered.Min, offered.Max) // asked for in a version above that
//
// # The odd rules
//
// The header of a response to ApiVersions never has tags, so that clients can
// read it whatever they asked for. A version that the proxy does not know is
// answered by the proxy: error 35 in the layout of v0, with the
// versions of ApiVersions that it does know; the client asks again. A version
// that the broker does not know is answered by the broker in the same way, which
// is narrowed too.
//
// Produce is offered from v0 if the broker does, whatever the filters carry,
// since librdkafka takes a higher minimum for a broker that cannot compress.
// What is walked or rewritten is known from v0 on, so such requests are carried;
// where a filter narrows Produce nevertheless, the session refuses what is
// below, with a reason. Clients use the newest version that is offered.
//
// SaslHandshake is offered from v1: after v0 come tokens without a frame around
// them, which nobody could tell from requests. A broker with nothing but v0
// (before Kafka 1.0) is not offered for SASL.
//
// ApiVersions v5 brings the cluster and node that the client believes to speak
// to (KIP-1242). Both are the broker's own in a virtual cluster, so they pass,
// and the broker's REBOOTSTRAP_REQUIRED says the truth: another broker is behind
// this address now.
//
// APIs between brokers, and those of the metadata quorum, are never offered:
// see wire.Withheld.
package apiversions

import "penstock/kafka/filter"

// Type is the filter.
func Type() filter.Type {
	return filter.Type{Name: "ApiVersions", Config: func() filter.Config { return new(Config) }}
}

// Config is the filter's configuration: there is nothing to configure.
type Config struct{}

// Validate finds nothing.
func (*Config) Validate(func(path, message string, value any)) {}

// Provision makes the filter.
func (*Config) Provision(filter.Env) (filter.Filter, error) { return pass{}, nil }

// Takes is always so.
func (*Config) Takes(filter.Config) bool { return true }

// pass is a filter that wants nothing.
type pass struct{}

func (pass) Versions(_ int16, have filter.Range) filter.Range       { return have }
func (pass) Wants(filter.Direction, int16, int16) filter.Interest   { return filter.Nothing }
func (pass) Open(filter.Info) filter.Conn                           { return pass{} }
func (pass) Request(*filter.Exchange, *filter.Message) error        { return nil }
func (pass) Response(*filter.Exchange, *filter.Message) error       { return nil }
func (pass) Edits(filter.Direction, *filter.Exchange) *filter.Edits { return nil }
func (pass) Close()                                                 {}
