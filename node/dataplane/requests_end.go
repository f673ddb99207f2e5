package dataplane

import (
	"sync"
	"time"

	"penstock/netio"
	"penstock/node/accesslog"
)

// underWay counts the requests in flight on a connection. The reason for a
// connection's end may be known only after its last request: a client leaves as
// soon as it has the last byte of the answer, and the request's own end may be
// noticed later.
type underWay struct {
	mu sync.Mutex
	n  int
	// gaveUp is when a request ended that the client abandoned. Zero: none, or
	// another request completed after it, before the connection ended.
	gaveUp time.Time
	// last is called once, after the connection's end, when no request is left.
	last func(gaveUp time.Time)
}

// begin adds a request.
func (u *underWay) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

// end removes a request. gaveUp says that the client abandoned it.
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

// whenOver calls last as soon as no request is in flight, which may be now.
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

// leaving is the longest time between an abandoned request and the end of its
// connection for both to count as one event. An HTTP/2 client sends RST_STREAM
// first and then ends the connection.
const leaving = 2 * time.Second

// closedHTTP handles Closed for connections whose requests were routed
// individually. If the client ended the connection, the requests determine the
// reason.
func (t *traffic) closedHTTP(c *netio.Conn, p *httpPlan, why netio.Reason) {
	p.requests.forget(p.client)
	if why == netio.UpstreamReset && c.ClientEnded() {
		// The upstream is this process, which resets the pipe when a client has
		// left in the middle of a request.
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
			// No request was abandoned: many clients reset the connection once
			// they have their answers, without close_notify or with bytes unread.
			r.Reason, r.Error = string(netio.ClientFIN), nil
		}
		t.endHTTP(p, r)
	})
}

// endHTTP counts the end of such a connection and writes its access log line.
func (t *traffic) endHTTP(p *httpPlan, r accesslog.Record) {
	p.flow.end(netio.Reason(r.Reason))
	if t.access != nil {
		r.Requests = p.client.count.Load()
		t.access.Write(r)
	}
}
