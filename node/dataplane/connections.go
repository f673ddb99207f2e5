package dataplane

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/kafka"
	"penstock/mysql/session"
	"penstock/netio"
	"penstock/routing"
	"penstock/routing/endpoint"
)

// ConnectionInfo describes a connection that is open, or has ended.
type ConnectionInfo struct {
	ID       uint64
	Listener string
	Client   netip.AddrPort
	// SNI is the name in the ClientHello. User is the name as which a MySQL client logged
	// in, or the principal of a Kafka client. All of these are the client's to choose.
	SNI, User, ClientID string
	TLS                 string            // version, such as "1.3"; "": no TLS
	Identity            string            // of the client's verified certificate
	Tags                map[string]string // that follow from it
	// Destination is the service that the listener names, or the virtual cluster; Service
	// the one whose endpoints are used, and Via what chose it; nil: nothing did.
	Destination, Service string
	Via                  *routing.Via
	Phase                string
	Attempts             int
	In, Out              uint64
	Age, Idle            time.Duration
	Times                netio.Times
	// Reason is why it ended, at Ended, and Error the error behind it. "": it is open.
	Reason netio.Reason
	Error  string
	Ended  time.Time

	accepted time.Time
	way      way
}

// Endpoint returns the name of the endpoint; "": none.
func (i *ConnectionInfo) Endpoint() string { return i.way.endpoint() }

// Accepted returns when the connection was accepted.
func (i *ConnectionInfo) Accepted() time.Time { return i.accepted }

// way is where a connection goes.
type way struct {
	flow        *Flow // nil: it is in no flow
	destination string
	service     string
	via         *routing.Via
	at          *endpoint.Endpoint // nil: none, or that of a Kafka client
	broker      netip.AddrPort     // of a Kafka client
}

// wayOf returns where a connection goes; false: it has no destination. It runs on the
// connection's loop.
func (t *traffic) wayOf(c *netio.Conn) (way, bool) {
	switch p := c.Plan().(type) {
	case nil:
		return way{}, false
	case *httpPlan:
		return way{flow: p.flow, destination: p.client.destination, service: p.flow.service}, true
	case *denied:
		return way{destination: p.service, service: p.service}, false
	case *plan:
		return p.way(), true
	case *session.Session:
		if h, ok := p.Host().(*mysqlConn); ok && h.plan != nil {
			return h.plan.way(), true
		}
	default:
		if k, ok := kafka.Of(p); ok {
			return way{flow: t.flows.get(c.Listener(), k.Cluster()), destination: k.Cluster(), service: k.Cluster(), broker: k.UpstreamAddr()}, true
		}
	}
	return way{}, false
}

func (p *plan) way() way {
	d := &p.decision
	return way{flow: p.flow, destination: d.Destination(), service: p.flow.service, via: d.Via(), at: d.Endpoint()}
}

func (w *way) endpoint() string {
	switch {
	case w.at != nil:
		return EndpointName(w.at)
	case w.broker.IsValid():
		return w.broker.String()
	}
	return ""
}

// describe describes a connection but for what its client has proven or said, which costs
// more: see describeClient. Both run on the connection's loop.
func (t *traffic) describe(c *netio.Conn, i *ConnectionInfo) {
	i.way, _ = t.wayOf(c)
	i.ID, i.Listener, i.Client, i.SNI = c.ID(), c.Listener(), c.Client(), c.ServerName()
	i.Destination, i.Service, i.Via = i.way.destination, i.way.service, i.way.via
	i.Phase, i.Age, i.Idle = c.Phase(), c.Age(), c.Idle()
	i.In, i.Out = c.Bytes()
}

// maxSaid bounds what a client says of itself in a ConnectionInfo, in bytes.
const maxSaid = 128

func (t *traffic) describeClient(c *netio.Conn, i *ConnectionInfo) {
	i.Times, i.accepted = c.Times(), c.Accepted()
	switch p := c.Plan().(type) {
	case *httpPlan:
		i.TLS, i.Identity, i.Tags = p.client.tls, p.client.name(), p.client.in.Tags
		return
	case *plan:
		i.Attempts = p.decision.Attempts()
	case *session.Session:
		if h, ok := p.Host().(*mysqlConn); ok {
			i.User = said(h.user)
			if h.plan != nil {
				i.Attempts = h.plan.decision.Attempts()
			}
		}
	default:
		if k, ok := kafka.Of(p); ok {
			who := k.Client()
			i.User, i.ClientID, i.Attempts = said(who.Principal), said(who.ClientID), k.Attempts()
		}
	}
	shown := provenBy(c)
	if i.TLS = shown.tls; shown.cert != nil || shown.mesh != nil {
		in := inputOf(c)
		i.Identity, i.Tags = shown.name(), in.Tags
	}
}

// said returns what a client said of itself, without keeping more than that in memory.
func said(text string) string {
	if len(text) <= maxSaid {
		return text
	}
	return strings.Clone(text[:maxSaid])
}

// ConnectionFilter selects connections; a field with its zero value selects all.
type ConnectionFilter struct {
	Listener, Service string
	Endpoint          string // as configured, resolved, or named by EndpointName
	Client            netip.Prefix
	Who               string // server name, identity, user, principal or client ID
	ID                uint64
	Reason            string // of one that has ended
	Failures          bool   // those that ended otherwise than by a FIN
}

// selects reports whether the filter selects a connection, but for Who.
func (f *ConnectionFilter) selects(i *ConnectionInfo) bool {
	switch {
	case f.ID != 0 && f.ID != i.ID, f.Listener != "" && f.Listener != i.Listener, f.Service != "" && f.Service != i.Service,
		f.Reason != "" && f.Reason != string(i.Reason),
		f.Failures && (i.Reason == netio.ClientFIN || i.Reason == netio.UpstreamFIN):
		return false
	case f.Client.IsValid() && !f.Client.Contains(i.Client.Addr().Unmap().WithZone("")):
		return false
	}
	return f.Endpoint == "" || i.way.isAt(f.Endpoint)
}

func (w *way) isAt(address string) bool {
	if w.at == nil {
		return w.broker.IsValid() && w.broker.String() == address
	}
	return routing.IsAt(w.at, address) || EndpointName(w.at) == address
}

// selectsClient does the same for Who.
func (f *ConnectionFilter) selectsClient(i *ConnectionInfo) bool {
	return f.Who == "" || f.Who == i.SNI || f.Who == i.Identity || f.Who == i.User || f.Who == i.ClientID
}

// The orders of ConnectionQuery.
const (
	NewestFirst  = iota // or, of those that have ended, the last end
	OldestFirst         // or the one that lasted longest
	IdlestFirst         // longest without a byte
	LargestFirst        // most bytes in both directions
)

// ConnectionQuery asks for connections.
type ConnectionQuery struct {
	ConnectionFilter
	Ended bool // those that have ended, as far as the node remembers them
	Order int
	Limit int
}

// key is the larger, the further ahead a connection is.
func (q *ConnectionQuery) key(i *ConnectionInfo) int64 {
	switch q.Order {
	case OldestFirst:
		return int64(i.Age)
	case IdlestFirst:
		return int64(i.Idle)
	case LargestFirst:
		return int64(i.In + i.Out)
	}
	if q.Ended {
		return i.Ended.UnixNano()
	}
	return -int64(i.Age)
}

// ListConnections describes the connections that a query selects, and counts all of them.
// It asks the loops, a few connections at a time, and fails if ctx ends before.
func (d *Dataplane) ListConnections(ctx context.Context, q *ConnectionQuery) (list []*ConnectionInfo, total int, err error) {
	if q.Ended {
		all := first{limit: q.Limit}
		d.traffic.ended.each(func(i *ConnectionInfo) {
			if q.selects(i) && q.selectsClient(i) {
				total++
				if key := q.key(i); all.wants(key) {
					one := *i
					all.add(key, &one)
				}
			}
		})
		return all.sorted(), total, nil
	}
	merged := first{limit: q.Limit}
	var mu sync.Mutex
	err = d.Engine.Visit(ctx, func(int) (func(c *netio.Conn) bool, func()) {
		l := lister{traffic: d.traffic, query: q, first: first{limit: q.Limit}}
		return l.visit, func() {
			mu.Lock()
			defer mu.Unlock()
			total += l.total
			merged.list = append(merged.list, l.list...)
		}
	})
	if err != nil {
		return nil, 0, err
	}
	list = merged.sorted()
	return list[:min(len(list), q.Limit)], total, nil
}

// lister collects the connections of a loop.
type lister struct {
	traffic *traffic
	query   *ConnectionQuery
	total   int
	first
}

func (l *lister) visit(c *netio.Conn) bool {
	q := l.query
	if q.ID != 0 && c.ID() != q.ID {
		return true
	}
	var i ConnectionInfo
	l.traffic.describe(c, &i)
	if !q.selects(&i) {
		return true
	}
	if q.Who != "" {
		if l.traffic.describeClient(c, &i); !q.selectsClient(&i) {
			return true
		}
	}
	l.total++
	if key := q.key(&i); l.wants(key) {
		if q.Who == "" {
			l.traffic.describeClient(c, &i)
		}
		one := i
		l.add(key, &one)
	}
	return q.ID == 0
}

// first keeps the connections with the largest keys. It is a heap once it is full, with
// the smallest key at the root, so that one more costs little on a loop.
type first struct {
	limit int
	list  []ranked
}

type ranked struct {
	key int64
	*ConnectionInfo
}

// wants reports whether a connection with that key is among the first.
func (f *first) wants(key int64) bool {
	return len(f.list) < f.limit || f.limit > 0 && key > f.list[0].key
}

// add adds a connection that is wanted.
func (f *first) add(key int64, i *ConnectionInfo) {
	one := ranked{key, i}
	if len(f.list) == f.limit {
		f.list[0] = one
		f.down()
		return
	}
	at := len(f.list)
	f.list = append(f.list, one)
	for at > 0 && f.list[(at-1)/2].key > key {
		f.list[at], at = f.list[(at-1)/2], (at-1)/2
	}
	f.list[at] = one
}

// down moves the root to its place.
func (f *first) down() {
	at, one := 0, f.list[0]
	for {
		child := 2*at + 1
		if child >= len(f.list) {
			break
		}
		if child+1 < len(f.list) && f.list[child+1].key < f.list[child].key {
			child++
		}
		if f.list[child].key >= one.key {
			break
		}
		f.list[at], at = f.list[child], child
	}
	f.list[at] = one
}

// sorted returns the connections, the largest key first.
func (f *first) sorted() []*ConnectionInfo {
	slices.SortFunc(f.list, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(b.ID, a.ID)) })
	list := make([]*ConnectionInfo, len(f.list))
	for n := range f.list {
		list[n] = f.list[n].ConnectionInfo
	}
	return list
}

// CloseConnections closes the connections that a filter selects, over a window: each at a
// moment between two messages, if there is one before the window ends. It returns how
// many they are.
func (d *Dataplane) CloseConnections(ctx context.Context, f *ConnectionFilter, over time.Duration) (int, error) {
	return d.Engine.CloseSome(ctx, over, netio.ClosedByOperator, func(c *netio.Conn) bool {
		if f.ID != 0 && c.ID() != f.ID {
			return false
		}
		var i ConnectionInfo
		if d.traffic.describe(c, &i); !f.selects(&i) {
			return false
		}
		if f.Who != "" {
			d.traffic.describeClient(c, &i)
		}
		return f.selectsClient(&i)
	})
}
