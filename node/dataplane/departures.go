package dataplane

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/netio"
	"penstock/netio/web"
	"penstock/routing"
	"penstock/routing/endpoint"
)

// endpointID tells endpoints of a service apart.
type endpointID struct {
	address, unix string
	addr          netip.AddrPort
}

func idOf(e *endpoint.Endpoint) endpointID { return endpointID{e.Address, e.Unix, e.Addr} }

// departure is an endpoint that has left a service which drains such endpoints.
type departure struct {
	endpoint *endpoint.Endpoint
	begun    time.Time
	until    time.Time
	back     atomic.Bool // it is in the service again: what is left of it stays
}

// departures are those whose connections are being closed. The reconciler
// serializes its methods.
type departures struct {
	m map[string]map[endpointID]*departure // by service
}

// minDeparture is how long a departure is remembered at least: a connection that
// was routed before may still be on its way to the endpoint.
const minDeparture = time.Minute

// sweep forgets the departures that are over, or concern nobody.
func (d *departures) sweep(now time.Time) {
	for service, all := range d.m {
		for id, one := range all {
			if now.After(one.until) || one.endpoint.Active() == 0 && now.Sub(one.begun) > minDeparture {
				delete(all, id)
			}
		}
		if len(all) == 0 {
			delete(d.m, service)
		}
	}
}

// update records which endpoints have left a service and which are back. It
// returns the ones that have just left.
func (d *departures) update(before, s *routing.Service, over time.Duration, now time.Time) map[endpointID]*departure {
	here := map[endpointID]bool{}
	for _, m := range s.Members() {
		here[idOf(m.Endpoint)] = true
	}
	for id, one := range d.m[s.Name()] {
		if here[id] {
			one.back.Store(true)
			delete(d.m[s.Name()], id)
		}
	}
	if before == nil {
		return nil
	}
	var left map[endpointID]*departure
	for _, m := range before.Members() {
		id := idOf(m.Endpoint)
		if here[id] {
			continue
		}
		if left == nil {
			left = map[endpointID]*departure{}
		}
		left[id] = &departure{endpoint: m.Endpoint, begun: now, until: now.Add(over)}
	}
	if left == nil {
		return nil
	}
	if d.m == nil {
		d.m = map[string]map[endpointID]*departure{}
	}
	if d.m[s.Name()] == nil {
		d.m[s.Name()] = map[endpointID]*departure{}
	}
	for id, one := range left {
		d.m[s.Name()][id] = one
	}
	return left
}

// drainRemoved closes the connections and requests of endpoints that have left a
// service, if it says so: over its endpointDrain.timeout.
func (r *reconciler) drainRemoved(before *routing.Table, s *routing.Service) {
	drain := s.Spec().EndpointDrain
	if drain == nil {
		r.departed.keep(s.Name())
		return
	}
	old, _ := before.Service(s.Name())
	over := drain.Timeout.D()
	left := r.departed.update(old, s, over, time.Now())
	if len(left) == 0 {
		return
	}
	r.log.Info("endpoints were removed; their connections are closed", "service", s.Name(), "endpoints", len(left), "over", over)
	service := s.Name()
	leaves := func(e *endpoint.Endpoint) bool {
		if e == nil {
			return false
		}
		one := left[idOf(e)]
		return one != nil && !one.back.Load()
	}
	r.engine.DrainSome(over, netio.EndpointRemoved, func(c *netio.Conn) bool {
		p := planOf(c.Plan())
		return p != nil && p.flow.service == service && leaves(p.decision.Endpoint())
	})
	r.requests.departing.drain(service, over, leaves)
}

// keep lets the connections of removed endpoints stay after all: the service no
// longer closes them.
func (d *departures) keep(service string) {
	for _, one := range d.m[service] {
		one.back.Store(true)
	}
	delete(d.m, service)
}

// departingRequests are the requests of services with an endpointDrain, so that
// those to a removed endpoint can be ended. The zero value is empty.
type departingRequests struct {
	mu        sync.Mutex
	byService map[string]map[*request]struct{}
	timers    map[*requestDrain]*time.Timer
	closed    bool
}

// add records a request that is about to be forwarded.
func (d *departingRequests) add(q *request) {
	if q.spec == nil || q.spec.EndpointDrain == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	service := q.decision.Service()
	if d.byService == nil {
		d.byService = map[string]map[*request]struct{}{}
	}
	if d.byService[service] == nil {
		d.byService[service] = map[*request]struct{}{}
	}
	d.byService[service][q] = struct{}{}
}

// remove removes a request that has ended.
func (d *departingRequests) remove(q *request) {
	if q.spec == nil || q.spec.EndpointDrain == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	service := q.decision.Service()
	if all := d.byService[service]; all != nil {
		if delete(all, q); len(all) == 0 {
			delete(d.byService, service)
		}
	}
}

// requestDrain ends the requests of a service to removed endpoints.
type requestDrain struct {
	requests *departingRequests
	service  string
	leaves   func(e *endpoint.Endpoint) bool
	begun    time.Time
	over     time.Duration
	total    int
}

// requestDrainTick is the least time between two looks at the requests.
const requestDrainTick = 100 * time.Millisecond

// drain ends the requests to endpoints that leave: evenly over the window, those
// first that have run longest. Most requests end by themselves before.
func (d *departingRequests) drain(service string, over time.Duration, leaves func(e *endpoint.Endpoint) bool) {
	one := &requestDrain{requests: d, service: service, leaves: leaves, begun: time.Now(), over: over}
	one.total = len(one.running())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if d.timers == nil {
		d.timers = map[*requestDrain]*time.Timer{}
	}
	d.timers[one] = time.AfterFunc(one.pause(0), one.step)
}

// close stops all drains.
func (d *departingRequests) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for one, timer := range d.timers {
		timer.Stop()
		delete(d.timers, one)
	}
}

// running returns the requests to endpoints that leave, the oldest first.
func (d *requestDrain) running() (list []*request) {
	d.requests.mu.Lock()
	defer d.requests.mu.Unlock()
	for q := range d.requests.byService[d.service] {
		if d.leaves(q.at.Load()) {
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b *request) int { return cmp.Compare(a.begun.UnixNano(), b.begun.UnixNano()) })
	return list
}

// pause returns the time until the next step.
func (d *requestDrain) pause(elapsed time.Duration) time.Duration {
	return max(min(max(d.over/time.Duration(d.total+1), requestDrainTick), d.over-elapsed), 0)
}

// step ends as many requests as are due, and all of them at the end of the window.
func (d *requestDrain) step() {
	elapsed, list := time.Since(d.begun), d.running()
	due := len(list)
	if elapsed < d.over {
		staying := d.total - int(float64(d.total)*float64(elapsed)/float64(d.over))
		due = max(len(list)-staying, 0)
	}
	for _, q := range list[:due] {
		if r := q.place.running.Load(); r != nil {
			(*r).End(web.ErrRemoved)
		}
	}
	d.requests.mu.Lock()
	defer d.requests.mu.Unlock()
	timer := d.requests.timers[d]
	switch {
	case timer == nil: // closed
	case elapsed >= d.over:
		delete(d.requests.timers, d)
	default:
		timer.Reset(d.pause(elapsed))
	}
}
