package node

import "penstock/node/dataplane"

var (
	mRequestsTotal   = desc("http_requests_total", "Requests of HTTP that were routed one by one and have ended, by the class of their status; none: the client did not wait.", "listener", "service", "code")
	mRequests        = desc("http_requests", "Requests under way.", "listener", "service")
	mRequestsRefused = desc("http_refused_total", "Requests that no endpoint has answered in full, by why (docs/reasons.md).", "reason")
)

// requests tells of the requests of a flow that has some.
func requests(f *dataplane.Flow, gauge gaugeFunc, count countFunc) {
	active, ended := f.Requests()
	for class, v := range ended {
		count(mRequestsTotal, v, f.Listener(), f.Service(), class)
	}
	if active > 0 || len(ended) > 0 {
		gauge(mRequests, float64(active), f.Listener(), f.Service())
	}
}

// refusals tells why requests were refused.
func (c collector) refusals(count countFunc) {
	for reason, v := range c.n.data.Refusals() {
		count(mRequestsRefused, v, string(reason))
	}
}

// ports tells how the local ports are used.
func (c collector) ports(gauge gaugeFunc) {
	u := c.n.data.PortUse()
	for name, most := range u.Busiest() {
		if u.Available() > 0 {
			gauge(mPorts, float64(u.Available()), name)
		}
		gauge(mPortsUsed, float64(most), name)
	}
	if u.TimeWait() >= 0 {
		gauge(mTimeWait, float64(u.TimeWait()))
	}
}
