// Package apiversions is the filter ApiVersions, and what a proxy does with
// ApiVersions whether it is named or not: clients are offered what the broker,
// the proxy and all filters can carry, and nothing else.
//
// The filter itself changes nothing, so naming it does no more than to say so:
// an offer that was not narrowed would be of requests that the proxy cannot
// carry. It is in virtual clusters by default.
//
//	body, err = apiversions.Narrow(nil, version, body, chain.Versions)   // what the broker answered
//	body = apiversions.Refuse(nil, chain.Versions(18))                  // asked for in a version above that
//
// # The odd rules
//
// The header of a response to ApiVersions never has tags, so that clients can
// read it whatever they asked for. A version that the proxy does not know is
// answered by the proxy (Refuse): error 35 in the layout of v0, with the
// versions of ApiVersions that it does know; the client asks again. A version
// that the broker does not know is answered by the broker in the same way, and
// Narrow takes that too.
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

import (
	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

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

// Known is what the proxy itself can carry for a client: where a chain begins
// to narrow. Keys that are no client's business are hidden.
func Known(key int16) filter.Range {
	lowest, highest, ok := wire.Known(key)
	if !ok {
		return filter.Hidden
	}
	return filter.Range{Min: lowest, Max: highest}
}

// Narrow rewrites the body of a broker's answer to what ranges allows; version is
// that of the request. The result is body itself where nothing has to change, or
// dst with what it became.
func Narrow(dst []byte, version int16, body []byte, ranges func(key int16) filter.Range) ([]byte, error) {
	return wire.NarrowApiVersions(dst, version, body, func(key int16) (lowest, highest int16) {
		r := ranges(key)
		return r.Min, r.Max
	})
}

// Refuse appends the body of the proxy's own answer to a request for ApiVersions
// in a version outside of have. It has the layout of v0 whatever was asked for.
func Refuse(dst []byte, have filter.Range) []byte {
	return wire.AppendUnsupportedApiVersions(dst, have.Min, have.Max)
}
