package node

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/netio"
	"penstock/routing"
)

var (
	mRequestsTotal   = desc("http_requests_total", "Requests of HTTP that were routed one by one and have ended, by the class of their status; none: the client did not wait.", "listener", "service", "code")
	mRequests        = desc("http_requests", "Requests under way.", "listener", "service")
	mRequestsRefused = desc("http_refused_total", "Requests that no endpoint has answered in full, by why (docs/reasons.md).", "reason")
)

// classes are the labels of requests by their status.
var classes = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// requestCounts are the requests of a flow.
type requestCounts struct {
	active atomic.Int64
	ended  [len(classes)]atomic.Uint64 // by class
}

func (c *requestCounts) end(took prometheus.Observer, status int, d time.Duration) {
	c.active.Add(-1)
	class := status / 100
	if class < 0 || class >= len(classes) {
		class = 0
	}
	c.ended[class].Add(1)
	if took != nil {
		took.Observe(d.Seconds())
	}
}

// requestReasons are all that requests are refused or cut off for.
var requestReasons = []netio.Reason{
	BadPath, BadMethod, BadRequest, BadBody, Misdirected, TooManyFields, LimitRequests, netio.LimitMemory, BodyTimeout, RequestTimeout, ResponseTimeout, NoAnswer, netio.Internal,
	netio.ClientGone, netio.ClientReset, netio.UpstreamReset, netio.UpstreamTLS,
	netio.ConnectRefused, netio.ConnectTimeout, netio.ConnectError, netio.LimitFiles, netio.LimitPorts,
	netio.Reason(routing.NoListener), netio.Reason(routing.NoBackend), netio.Reason(routing.NoEndpoint),
	netio.Reason(routing.NoHealthyEndpoint), netio.Reason(routing.RetriesExhausted),
}

// refusals count requests by their reasons.
type refusals [32]atomic.Uint64

func (r *refusals) count(why netio.Reason) {
	for i, reason := range requestReasons {
		if reason == why {
			r[i].Add(1)
			return
		}
	}
}

// requestBuckets are those of the time that requests take.
var requestBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// requestTime is where the time of the flow's requests is told; nil where they
// went to no service.
func (f *flow) requestTime(fs *flows) prometheus.Observer {
	if f.service == "" {
		return nil
	}
	f.once.Do(func() { f.took = fs.took.WithLabelValues(f.service) })
	return f.took
}

// requests tells of the requests of a flow that has some.
func (c collector) requests(f *flow, gauge gaugeFunc, count countFunc) {
	some := false
	for i := range classes {
		if v := f.requests.ended[i].Load(); v > 0 {
			some = true
			count(mRequestsTotal, v, f.listener, f.service, classes[i])
		}
	}
	if v := f.requests.active.Load(); v > 0 || some {
		gauge(mRequests, float64(v), f.listener, f.service)
	}
}

// refusals tells why requests were refused.
func (c collector) refusals(count countFunc) {
	for i, reason := range requestReasons {
		if v := c.n.requests.refused[i].Load(); v > 0 {
			count(mRequestsRefused, v, string(reason))
		}
	}
}
