package dataplane

import (
	"net/http"
	"sync/atomic"
	"time"

	"penstock/netio"
	"penstock/netio/budget"
	"penstock/netio/web"
)

// memory is the node's memory budget.
type memory interface {
	Take(h *budget.Holder, o budget.Owner, p *budget.Party, n int64) bool
	Give(h *budget.Holder, n int64)
}

// place is a request's unit of the budget of concurrent requests.
type place struct {
	budget.Holder
	running atomic.Pointer[web.Request] // nil: not forwarded yet
	evicted atomic.Bool
}

var _ budget.Idler = (*place)(nil)

// Evict implements budget.Owner.
func (p *place) Evict() {
	p.evicted.Store(true)
	if r := p.running.Load(); r != nil {
		go (*r).End(web.ErrEvicted) // in the background, so that the request that takes the place does not wait
	}
}

// Idle implements budget.Idler.
func (p *place) Idle() (rank int, d time.Duration) {
	if r := p.running.Load(); r != nil {
		return (*r).Idle()
	}
	return 0, 0
}

// header is the share of a request's header in the memory budget.
type header struct {
	budget.Holder
	size    int64
	running atomic.Pointer[web.Request]
	evicted atomic.Bool
}

var _ budget.Owner = (*header)(nil)

// Evict implements budget.Owner.
func (h *header) Evict() {
	h.evicted.Store(true)
	if r := h.running.Load(); r != nil {
		go (*r).End(web.ErrMemory)
	}
}

const (
	// maxFields bounds the fields of a request's header, announced trailers
	// included.
	maxFields = 200
	// fieldSize is the approximate overhead of a field in bytes, beside its
	// content: the field exists twice, as received and as forwarded.
	fieldSize = 160
	// freeHeader is the size of a header, in bytes, that is not charged: most
	// headers are smaller, and --max-requests bounds their number.
	freeHeader = 4 << 10
)

// measureHeader counts the fields of a request's header and estimates its size in bytes
// beyond freeHeader.
func measureHeader(r *http.Request) (fields int, size int64) {
	size = int64(len(r.RequestURI) + len(r.Host))
	for name, values := range r.Header {
		for _, v := range values {
			size += int64(len(name) + len(v))
		}
		fields += len(values)
	}
	fields += len(r.Trailer)
	return fields, max(size+fieldSize*int64(fields)-freeHeader, 0)
}

// admit takes a place and memory for a request; done returns both.
func (q *request) admit(r *http.Request) netio.Reason {
	h := q.requests
	fields, size := measureHeader(r)
	if fields > maxFields {
		return TooManyFields
	}
	p := budget.Party{
		Source: budget.Source(q.client.addr.Addr()), Listener: q.client.in.Listener, Tenant: q.client.destination,
	}
	if ok, _ := h.places.Take(&q.place.Holder, budget.Bulk, &q.place, &p, 1, budget.Swap); !ok {
		return LimitRequests
	}
	if size > 0 && !h.memory.Take(&q.header.Holder, &q.header, &p, size) {
		return netio.LimitMemory
	}
	q.header.size = size
	return netio.OK
}

// statusOf returns the status code for a request that admit refuses.
func statusOf(why netio.Reason) int {
	if why == TooManyFields {
		return http.StatusRequestHeaderFieldsTooLarge
	}
	return http.StatusServiceUnavailable
}

// begin receives the request that is about to be forwarded, and ends it if it has
// been evicted meanwhile.
func (q *request) begin(r web.Request) {
	q.requests.departing.add(q)
	q.client.forwarded.add(q)
	q.place.running.Store(&r)
	q.header.running.Store(&r)
	switch {
	case q.place.evicted.Load():
		r.End(web.ErrEvicted)
	case q.header.evicted.Load():
		r.End(web.ErrMemory)
	}
}

// release returns what admit took.
func (q *request) release() {
	q.requests.departing.remove(q)
	q.client.forwarded.remove(q)
	q.requests.places.Give(&q.place.Holder, 1)
	if q.header.size > 0 {
		q.requests.memory.Give(&q.header.Holder, q.header.size)
	}
}
