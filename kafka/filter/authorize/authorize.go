// Package authorize is the filter that decides who may do what in a virtual
// cluster, by the entries "kafka" of TrafficPermissions. It stands before all other
// filters, so names are those that clients see.
//
//   - It asks for what Kafka's own broker asks for: the same operations on the same
//     resources for each API (KafkaApis and ControllerApis of Kafka 4; table.go),
//     and answers with the same errors.
//   - What is denied is taken out of a request before the broker sees it, and its
//     error is put behind the rest of the answer. A request of which nothing is left
//     is answered at once. Produce without acknowledgement has no answer, so its
//     connection ends.
//   - Lists have only what the client may describe, and the bits of
//     authorizedOperations (KIP-430) only what the rules allow.
//   - Topic ids are names here: what is not known is asked of the broker (ids.go).
//     An id that the broker does not know is answered UNKNOWN_TOPIC_ID.
//   - A broker answers about all topics of a fetch session. A session begins
//     under one set of rules, on one connection, and with topics that all are allowed;
//     in any other case the client is told to begin another (fetch.go).
//   - An API or version that is not in the table is not offered.
//
// Rules change between two requests: a connection decides anew with the rules in
// force, and remembers decisions until they change.
package authorize

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/filter/topicid"
	"penstock/kafka/wire"
)

// Config configures New.
type Config struct {
	// Rules returns the rules in force; nil: everything is allowed. It is called on
	// loops for each request.
	Rules func() *Rules
	// Denied is told of each denial, also of those that are only counted. It is
	// called on loops and must not block. It may be nil.
	Denied func(d *Denial)
}

// Denial is a request, or a part of one, that was denied.
type Denial struct {
	API       int16
	Operation Operation
	Type      ResourceType
	Name      string // cut to 249 bytes, the longest name of a topic
	// Rule denied it; "": no permission allows it.
	Rule string
	// Shadow: the rule only counts, nothing was denied.
	Shadow   bool
	Client   *filter.Client
	ClientID string
}

// Filter is the filter of one virtual cluster.
type Filter struct {
	cfg Config
	ids topicid.Names
}

// New returns the filter. Its topic ids are known to all that share it.
func New(cfg Config) *Filter { return &Filter{cfg: cfg} }

// Versions implements filter.Filter.
func (f *Filter) Versions(key int16, have filter.Range) filter.Range {
	a := apiOf(key)
	if a == nil || a.highest < have.Min {
		return filter.Hidden
	}
	return filter.Range{Min: have.Min, Max: min(have.Max, a.highest)}
}

// Wants implements filter.Filter. Responses are asked for by the requests that need
// them.
func (f *Filter) Wants(d filter.Direction, key, version int16) filter.Interest {
	a := apiOf(key)
	switch {
	case a == nil || a.request == nil:
		return filter.Nothing
	case d == filter.Response:
		if key == int16(kmsg.Fetch) && version >= firstFetchWithSession {
			return filter.Walk
		}
		return filter.Nothing
	case key == int16(kmsg.Produce):
		return filter.Walk
	}
	return filter.Whole
}

// Open implements filter.Filter.
func (f *Filter) Open(info filter.Info) filter.Conn {
	c := &conn{Filter: f, client: info.Client}
	if c.client == nil {
		c.client = &filter.Client{}
	}
	return c
}

// Close implements filter.Filter.
func (f *Filter) Close() {}

// conn is the part of one connection.
type conn struct {
	*Filter
	client *filter.Client

	// The rules for the client, and what they have decided; valid while these do not
	// change.
	rules     *Rules
	principal string
	clientID  string
	changes   int // filter.Client.Changes
	applied   Applicable
	decisions map[question]Decision
	all       [2]bool // produce on all topics and transactional ids
	ready     bool

	fetch  fetchSessions
	shares shareSessions
	edits  filter.Edits // of Produce
}

// question is what is decided about.
type question struct {
	operation Operation
	kind      ResourceType
	name      string
}

// maxDecisions bounds what a connection remembers; beyond it begins anew.
const maxDecisions = 2000

// refresh takes up the rules in force, and the client as it is known now. off
// reports that nothing is restricted.
func (c *conn) refresh(clientID string) (off bool) {
	now := c.cfg.Rules()
	if now == nil {
		c.ready = false
		return true
	}
	if !c.ready || c.rules != now || c.principal != c.client.Principal || c.clientID != clientID || c.changes != c.client.Changes {
		c.rules, c.principal, c.clientID, c.ready = now, c.client.Principal, clientID, true
		c.changes = c.client.Changes
		c.applied = now.For(c.client, knownClientID(clientID))
		clear(c.decisions)
		c.all = [2]bool{c.applied.All(Write, Topic), c.applied.All(Write, TransactionalID)}
		c.fetch.forget()
		c.shares.forget()
	}
	return false
}

// knownClientID makes a name that no rule names of a client id that may have been
// cut: a prefix of it may still match.
func knownClientID(id string) string {
	if len(id) > resourceMaxClientID {
		return id + "…"
	}
	return id
}

// resourceMaxClientID is the longest client id in a permission, in bytes; Exchange cuts
// those of clients one byte behind.
const resourceMaxClientID = 63

// decide decides on an operation, and reports a denial.
func (c *call) decide(o Operation, t ResourceType, name string) bool {
	d := c.look(o, t, name)
	if d.Shadow != "" {
		c.report(o, t, name, d.Shadow, true)
	}
	if !d.Allowed {
		c.report(o, t, name, d.Rule, false)
	}
	return d.Allowed
}

// look decides without telling anyone: for lists, and for what is not refused.
func (c *conn) look(o Operation, t ResourceType, name string) Decision {
	q := question{o, t, name}
	d, ok := c.decisions[q]
	if !ok {
		if c.decisions == nil || len(c.decisions) >= maxDecisions {
			c.decisions = map[question]Decision{}
		}
		d = c.applied.Decide(o, t, name)
		if len(name) <= maxName {
			c.decisions[q] = d
		}
	}
	return d
}

// maxName is the longest name that is remembered and reported, in bytes.
const maxName = 249

func (c *call) report(o Operation, t ResourceType, name, rule string, shadow bool) {
	if c.cfg.Denied != nil {
		c.cfg.Denied(&Denial{
			API: c.x.Key, Operation: o, Type: t, Name: name[:min(len(name), maxName)], Rule: rule, Shadow: shadow,
			Client: c.client, ClientID: c.x.ClientID,
		})
	}
}

// The questions of the tables.

func (c *call) topic(o Operation, name string) bool { return c.decide(o, Topic, name) }
func (c *call) group(o Operation, name string) bool { return c.decide(o, Group, name) }
func (c *call) txn(o Operation, name string) bool   { return c.decide(o, TransactionalID, name) }
func (c *call) cluster(o Operation) bool            { return c.decide(o, Cluster, ClusterName) }

// sees reports whether a list shows a resource.
func (c *conn) sees(t ResourceType, name string) bool { return c.look(Describe, t, name).Allowed }

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
		return fmt.Errorf("%w: %s is not known to permissions", filter.ErrDenied, wire.Name(x.Key))
	}
	if a.request == nil || c.refresh(x.ClientID) {
		return nil
	}
	r, err := m.DecodeRequest()
	if err != nil {
		return err
	}
	return a.request(&call{c, x, m}, r)
}

// Response implements filter.Conn: it finishes what the request began.
func (c *conn) Response(x *filter.Exchange, m *filter.Message) error {
	finish, ok := x.State.(func(*call, kmsg.Response) error)
	if !ok {
		return nil
	}
	x.State = nil
	r, err := m.DecodeResponse()
	if err != nil {
		return err
	}
	m.MarkChanged()
	return finish(&call{c, x, m}, r)
}

// Close implements filter.Conn.
func (c *conn) Close() {}

// onResponse has the response decoded and changed by finish.
func onResponse[S kmsg.Response](c *call, finish func(c *call, r S) error) {
	c.x.CollectResponse()
	c.x.State = func(c *call, r kmsg.Response) error {
		s, ok := r.(S)
		if !ok {
			return fmt.Errorf("%w: unexpected response %T", filter.ErrMalformed, r)
		}
		return finish(c, s)
	}
}

// send sends a request on without what was taken out of it, whose errors refuse adds
// to the answer. If nothing is left, the answer has nothing else.
func send[S kmsg.Response](c *call, left bool, refuse func(r S)) error {
	if !left {
		return answer(c, refuse)
	}
	c.m.MarkChanged()
	onResponse(c, func(_ *call, r S) error { refuse(r); return nil })
	return nil
}

// answer answers a request, or ends the connection if it has no answer.
func answer[S kmsg.Response](c *call, refuse func(r S)) error {
	if c.x.NoResponse {
		return fmt.Errorf("%w: %s without acknowledgement", filter.ErrDenied, wire.Name(c.x.Key))
	}
	r := kmsg.ResponseForKey(c.x.Key)
	s, ok := r.(S)
	if !ok {
		return fmt.Errorf("%w: unexpected answer %T", filter.ErrMalformed, r)
	}
	r.SetVersion(c.x.Version)
	refuse(s)
	c.x.Answer(s)
	return nil
}

// takeOut leaves in a list what is allowed, and returns the others.
func takeOut[T any](list *[]T, allowed func(*T) bool) (denied []T) {
	kept := 0
	for i := range *list {
		switch e := &(*list)[i]; {
		case !allowed(e):
			denied = append(denied, *e)
		case len(denied) > 0:
			(*list)[kept] = *e
			kept++
		default:
			kept++
		}
	}
	*list = (*list)[:kept]
	return denied
}

// mapped makes a list of another.
func mapped[T, U any](list []T, to func(*T) U) []U {
	out := make([]U, len(list))
	for i := range list {
		out[i] = to(&list[i])
	}
	return out
}

// mask leaves of authorizedOperations what the rules allow too.
func (c *call) mask(bits *int32, t ResourceType, name string) {
	const notAsked = -1 << 31
	if *bits == notAsked {
		return
	}
	for o := Read; o <= IdempotentWrite; o <<= 1 {
		if bit := int32(1) << o.code(); *bits&bit != 0 && !c.look(o, t, name).Allowed {
			*bits &^= bit
		}
	}
}
