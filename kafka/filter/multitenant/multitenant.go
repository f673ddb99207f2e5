// Package multitenant is the filter MultiTenant: it gives each tenant a part of
// a physical cluster that looks like a whole one. Topics, groups, transactional
// ids, share and streams groups, and the ACLs and configurations of these carry
// the tenant's prefix at the broker. A tenant neither sees nor counts what does
// not have it; the answer about it is the broker's own about something that
// does not exist.
//
//	filters:
//	- {type: MultiTenant, config: {tenantKey: z4de}}    # "orders" is "z4de-orders"
//
// The rules:
//
//   - Names get the prefix on the way to the broker and lose it on the way
//     back (names.go). A name without it is left out of lists; in an answer
//     about a single name it ends the connection.
//   - Topic ids pass if the topic is known to be the tenant's (ids.go). Any
//     other id is replaced by one that no topic has, and put back in the
//     answer.
//   - No regular expression of a client reaches the broker: subscriptions
//     (ConsumerGroupHeartbeat v1, topologies of streams groups) are rewritten
//     (expressions.go), and others are not offered (ListTransactions v2).
//   - An API that this package does not know is not offered (table.go).
//   - What concerns the whole cluster is not offered, or refused in the
//     protocol's own words: quotas, SCRAM users, delegation tokens, features,
//     the configuration of brokers.
//
// produce.go, fetch.go and metadata.go begin with what happens to these APIs in
// which versions; table.go lists all APIs.
package multitenant

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// Type is the filter's type.
var Type = filter.Type{
	Name:    "MultiTenant",
	Aliases: []string{"MultiTenantFilter"},
	Config:  func() filter.Config { return new(Config) },
}

// Config is what users write.
type Config struct {
	// TenantKey is the tenant's name in the physical cluster: letters and
	// digits, up to 64. The prefix is the key and "-". One of tenantKey and
	// prefix is required.
	TenantKey string `yaml:"tenantKey"`
	// Prefix is the whole prefix, for names that exist already: up to 100 of
	// letters, digits, ".", "_" and "-". No prefix on a physical cluster may
	// begin with another, "." and "_" being the same as in names of topics.
	Prefix string `yaml:"prefix"`
	// Principals says what happens to the names in ACLs of the form
	// "User:name": keep, or prefix them as everything else, for brokers that
	// know each tenant's users under the prefix. Default keep.
	Principals string `yaml:"principals" default:"keep" oneof:"keep prefix"`
}

const (
	maxKey    = 64
	maxPrefix = 100
	separator = "-"
)

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	legal   = letters + "._-"
)

// Validate implements filter.Config.
func (c *Config) Validate(report func(path, message string, value any)) {
	switch {
	case c.TenantKey == "" && c.Prefix == "":
		report("tenantKey", "is required (or prefix)", nil)
	case c.TenantKey != "" && c.Prefix != "":
		report("prefix", "conflicts with tenantKey: give only one of them", c.Prefix)
	case c.TenantKey != "" && (len(c.TenantKey) > maxKey || strings.Trim(c.TenantKey, letters) != ""):
		report("tenantKey", fmt.Sprintf("must be 1 to %d letters and digits; use prefix for anything else", maxKey), c.TenantKey)
	case c.Prefix != "" && (len(c.Prefix) > maxPrefix || strings.Trim(c.Prefix, legal) != ""):
		report("prefix", fmt.Sprintf("must be 1 to %d letters, digits, '.', '_' and '-'", maxPrefix), c.Prefix)
	}
	if p := c.Principals; p != "" && p != "keep" && p != "prefix" {
		report("principals", "must be keep or prefix", p)
	}
}

// NamePrefix returns the prefix of all names of the tenant. No tenant of a
// physical cluster may have a prefix that begins with another one's; the model
// checks that.
func (c *Config) NamePrefix() string {
	if c.Prefix != "" {
		return c.Prefix
	}
	return c.TenantKey + separator
}

// Accepts implements filter.Config: connections see one tenant for all their life.
func (c *Config) Accepts(older filter.Config) bool {
	o, ok := older.(*Config)
	return ok && o.NamePrefix() == c.NamePrefix() && (o.Principals == "prefix") == (c.Principals == "prefix")
}

// Provision implements filter.Config.
func (c *Config) Provision(env filter.Env) (filter.Filter, error) {
	t := &tenant{prefix: c.NamePrefix(), principals: c.Principals == "prefix", log: env.Log}
	t.ids.init()
	t.issued.keys.limit = maxIssuedSessions
	return t, nil
}

// tenant is the filter: the part that all connections of a virtual cluster
// share.
type tenant struct {
	prefix     string
	principals bool
	ids        ids
	issued     issuedSessions
	log        *slog.Logger
}

var _ filter.Filter = (*tenant)(nil)

// Versions implements filter.Filter.
func (t *tenant) Versions(key int16, have filter.Range) filter.Range {
	a := apiOf(key)
	if a == nil {
		return filter.Hidden
	}
	if a.limited {
		have.Min, have.Max = max(have.Min, a.min), min(have.Max, a.max)
	}
	return have
}

// Wants implements filter.Filter.
func (t *tenant) Wants(d filter.Direction, key, version int16) filter.Interest {
	a := apiOf(key)
	switch {
	case a == nil:
		return filter.Nothing // hidden: it never comes
	case a.walked(d, version):
		return filter.Walk
	case d == filter.Request && a.request != nil, d == filter.Response && a.response != nil:
		return filter.Whole
	}
	return filter.Nothing
}

// Open implements filter.Filter.
func (t *tenant) Open(info filter.Info) filter.Conn {
	c := &conn{tenant: t, substitutes: idCache[id]{limit: maxSubstitutes}}
	c.ownSessions.init(info.Broker)
	return c
}

// Close implements filter.Filter.
func (t *tenant) Close() {}

// conn is the part of one connection.
type conn struct {
	*tenant
	// substitutes are the ids that nobody has, with what the client asked for.
	substitutes idCache[id]
	// fetchSession and shares are the sessions of Fetch and of ShareFetch.
	fetchSession, shareSession session
	ownSessions                ownSessions // of sessions of Fetch
	edits                      edits
	// idsKnown: the ids of the last request to Produce were known.
	idsKnown bool
}

var _ filter.BufferingConn = (*conn)(nil)

// Close implements filter.Conn.
func (c *conn) Close() {}

// edits are those of a connection, made when they are first wanted: bulk comes
// in many messages, of which only one streams at a time in each direction.
type edits struct {
	produceNames, produceIDs, fetchNames, fetchIDs *filter.Edits
	produce                                        *filter.Exchange // the one that streams
	answer                                         *filter.Edits    // of Produce
	names                                          int              // that answer has seen
	body                                           []byte           // of the last one that answer has changed, where it is small
}

// Edits implements filter.Conn.
func (c *conn) Edits(d filter.Direction, x *filter.Exchange) *filter.Edits {
	switch {
	case x.Key == int16(kmsg.Produce) && d == filter.Request:
		return c.produceEdits(x)
	case x.Key == int16(kmsg.Fetch) && d == filter.Response:
		return c.fetchEdits(x)
	}
	return nil
}

// call is one message on its way through the filter.
type call struct {
	*conn
	x *filter.Exchange
	m *filter.Message
}

// Request implements filter.Conn.
func (c *conn) Request(x *filter.Exchange, m *filter.Message) error {
	a := apiOf(x.Key)
	if a == nil {
		return fmt.Errorf("%w: api key %d is not available to tenants", filter.ErrDenied, x.Key)
	}
	if x.Key == int16(kmsg.Produce) && x.Version >= firstProduceWithID {
		return (&call{c, x, m}).produceBuffered()
	}
	r, err := m.DecodeRequest()
	if err != nil {
		return err
	}
	m.MarkChanged()
	return a.request(&call{c, x, m}, r)
}

// Response implements filter.Conn.
func (c *conn) Response(x *filter.Exchange, m *filter.Message) error {
	a := apiOf(x.Key)
	if a == nil {
		return fmt.Errorf("%w: api key %d is not available to tenants", filter.ErrDenied, x.Key)
	}
	if x.Key == int16(kmsg.Metadata) {
		body, err := (&call{c, x, m}).metadataBody(m.Body())
		if err == nil {
			m.SetBody(body)
		}
		return err
	}
	if x.Key == int16(kmsg.Produce) && c.rewriteProduceResponse(x, m) {
		return nil
	}
	r, err := m.DecodeResponse()
	if err != nil {
		return err
	}
	m.MarkChanged()
	return a.response(&call{c, x, m}, r)
}
