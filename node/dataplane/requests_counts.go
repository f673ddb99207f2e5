package dataplane

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/netio"
	"penstock/routing"
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

// Requests are the requests under way that are routed one by one, and those that
// have ended by the class of their status ("2xx"; "none": the client did not
// wait). Classes that there were none of are left out.
func (f *Flow) Requests() (active int64, ended map[string]uint64) {
	for i := range classes {
		if v := f.requests.ended[i].Load(); v > 0 {
			if ended == nil {
				ended = map[string]uint64{}
			}
			ended[classes[i]] = v
		}
	}
	return f.requests.active.Load(), ended
}

// requestReasons are all that requests are refused or cut off for.
var requestReasons = []netio.Reason{
	BadPath, BadMethod, BadRequest, BadBody, Misdirected, TooManyFields, LimitRequests, netio.LimitMemory, BodyTimeout, RequestTimeout, ResponseTimeout, NoAnswer, netio.Internal,
	netio.ClientGone, netio.ClientReset, netio.UpstreamReset, netio.UpstreamTLS,
	netio.ConnectRefused, netio.ConnectTimeout, netio.ConnectError, netio.LimitFiles, netio.LimitPorts,
	netio.Reason(routing.NoListener), netio.Reason(routing.NoBackend), netio.Reason(routing.NoEndpoint),
	netio.Reason(routing.NoHealthyEndpoint), netio.Reason(routing.RetriesExhausted),
}

// Refusals count the requests that no endpoint has answered in full, by why;
// those that there were none of are left out.
func (d *Dataplane) Refusals() map[netio.Reason]uint64 {
	counts := map[netio.Reason]uint64{}
	for i, reason := range requestReasons {
		if v := d.requests.refused[i].Load(); v > 0 {
			counts[reason] = v
		}
	}
	return counts
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
func (f *Flow) requestTime(fs *flows) prometheus.Observer {
	if f.service == "" {
		return nil
	}
	f.once.Do(func() { f.took = fs.took.WithLabelValues(f.service) })
	return f.took
}
