package dataplane

import (
	"sync"
	"time"

	"penstock/netio"
	"penstock/node/accesslog"
)

// underWay counts the requests of a connection that have not ended. How that
// connection has ended may be known only after the last of them: a client leaves
// as soon as it has the last byte of its answer, and the request's own end may be
// noticed later than that.
type underWay struct {
	mu sync.Mutex
	n  int
	// gaveUp is when a request ended that the client did not wait for; zero: the
	// one that ended last is none, nor any since the connection's end.
	gaveUp time.Time
	// last is called once, after the connection's end, when no request is left.
	last func(gaveUp time.Time)
}

// begin counts a request in.
func (u *underWay) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

// end counts it out. gaveUp says that the client did not wait for it.
func (u *underWay) end(gaveUp bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n--
	switch {
	case gaveUp:
		u.gaveUp = time.Now()
	case u.last == nil:
		u.gaveUp = time.Time{}
	}
	u.tell()
}

// whenOver has last called once no request is under way, which may be now.
func (u *underWay) whenOver(last func(gaveUp time.Time)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = last
	u.tell()
}

func (u *underWay) tell() {
	if last := u.last; last != nil && u.n == 0 {
		u.last = nil
		last(u.gaveUp)
	}
}

// leaving is how much time may lie between a client's giving up a request and
// the end of its connection for both to be one thing. HTTP/2 says it twice: by
// RST_STREAM, and then by the end.
const leaving = 2 * time.Second

// closedHTTP is Closed for connections whose requests were routed one by one.
// Where the client has ended it, its requests tell how.
func (t *traffic) closedHTTP(c *netio.Conn, p *httpPlan, why netio.Reason) {
	p.requests.forget(p.client)
	if why == netio.UpstreamReset && c.ClientEnded() {
		// The other side is this process, which resets when a client has left in
		// the middle of a request.
		why = netio.ClientReset
	}
	r := t.record(c, nil, accesslog.Closed, why)
	r.Service = p.flow.service
	if why != netio.ClientReset && why != netio.ClientFIN {
		t.endHTTP(p, r)
		return
	}
	owed := c.Owed()
	p.client.requests.whenOver(func(gaveUp time.Time) {
		gone := r.At.Sub(gaveUp) < leaving
		switch {
		case gone && why == netio.ClientFIN:
			r.Reason = string(netio.ClientReset)
		case !gone && !owed && why == netio.ClientReset && p.client.count.Load() > 0:
			// Nothing was under way: many clients leave so once they have their
			// answers, without the close_notify of TLS or with bytes unread.
			r.Reason, r.Error = string(netio.ClientFIN), nil
		}
		t.endHTTP(p, r)
	})
}

// endHTTP counts the end of such a connection, and writes its line.
func (t *traffic) endHTTP(p *httpPlan, r accesslog.Record) {
	p.flow.end(netio.Reason(r.Reason))
	if t.access != nil {
		r.Requests = p.client.count.Load()
		t.access.Write(r)
	}
}
