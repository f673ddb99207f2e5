package dataplane

import (
	"encoding/hex"
	"sync"
	"time"

	"penstock/netio"
	"penstock/node/accesslog"
)

// inFlight counts the requests in flight on a connection. The reason for a
// connection's end may be known only after its last request: a client leaves as
// soon as it has the last byte of the answer, and the request's own end may be
// noticed later.
type inFlight struct {
	mu sync.Mutex
	n  int
	// abandonedAt is when a request ended that the client abandoned. Zero: none, or
	// another request completed after it, before the connection ended.
	abandonedAt time.Time
	// onIdle is called once, after the connection's end, when no request is left.
	onIdle func(abandonedAt time.Time)
}

// begin adds a request.
func (u *inFlight) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

// end removes a request. abandoned says that the client abandoned it.
func (u *inFlight) end(abandoned bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n--
	switch {
	case abandoned:
		u.abandonedAt = time.Now()
	case u.onIdle == nil:
		u.abandonedAt = time.Time{}
	}
	u.notifyIfIdle()
}

// notifyWhenIdle calls onIdle as soon as no request is in flight, which may be now.
func (u *inFlight) notifyWhenIdle(onIdle func(abandonedAt time.Time)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.onIdle = onIdle
	u.notifyIfIdle()
}

func (u *inFlight) notifyIfIdle() {
	if onIdle := u.onIdle; onIdle != nil && u.n == 0 {
		u.onIdle = nil
		onIdle(u.abandonedAt)
	}
}

// abandonWindow is the longest time between an abandoned request and the end of its
// connection for both to count as one event. An HTTP/2 client sends RST_STREAM
// first and then ends the connection.
const abandonWindow = 2 * time.Second

// closedHTTP handles Closed for connections whose requests were routed
// individually. If the client ended the connection, the requests determine the
// reason.
func (t *traffic) closedHTTP(c *netio.Conn, p *httpPlan, why netio.Reason) {
	p.requests.removeClient(p.client)
	p.requests.hangUp(p.client)
	if why == netio.UpstreamReset && c.ClientEnded() {
		// The upstream is this process, which resets the pipe when a client has
		// left in the middle of a request.
		why = netio.ClientReset
	}
	var end ConnectionInfo
	t.describeEnd(c, why, &end)
	loop := c.Loop()
	r := t.record(c, nil, accesslog.Closed, why)
	r.Service = p.flow.service
	if p.client.hops.used.Load() {
		r.Hop = hex.EncodeToString(c.UniqueID())
	}
	if why != netio.ClientReset && why != netio.ClientFIN {
		t.endHTTP(p, r)
		t.ended.add(loop, &end)
		return
	}
	owed := c.Owed()
	p.client.requests.notifyWhenIdle(func(abandonedAt time.Time) {
		abandoned := r.At.Sub(abandonedAt) < abandonWindow
		switch {
		case abandoned && why == netio.ClientFIN:
			r.Reason = string(netio.ClientReset)
		case !abandoned && !owed && why == netio.ClientReset && p.client.count.Load() > 0:
			// No request was abandoned: many clients reset the connection once
			// they have their answers, without close_notify or with bytes unread.
			r.Reason, r.Error = string(netio.ClientFIN), nil
		}
		t.endHTTP(p, r)
		if end.Reason = netio.Reason(r.Reason); r.Error == nil {
			end.Error = ""
		}
		t.ended.add(loop, &end)
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
