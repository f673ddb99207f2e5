package dataplane

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/netio"
	"penstock/routing"
)

// classes lists the classes of status codes, as labels. "none" means that the
// client got no answer.
var classes = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// requestCounts counts the requests of a flow.
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

// Requests returns the number of individually routed requests in flight, and of
// those that ended, by class of their status ("2xx"; "none": the client got no
// answer), without classes that have none.
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

// requestReasons lists all reasons for which requests are refused or cut off.
var requestReasons = []netio.Reason{
	BadPath, BadMethod, BadRequest, BadBody, Misdirected, TooManyFields,
	LimitRequests, RateLimited, netio.LimitMemory, BodyTimeout, RequestTimeout, ResponseTimeout, NoAnswer, netio.Internal,
	netio.PermissionDenied, netio.PermissionRevoked, MeshUnavailable, netio.MeshHeaderTooLong, netio.MeshBadHeader,
	netio.ClientGone, netio.ClientReset, netio.UpstreamReset, netio.UpstreamTLS,
	netio.ConnectRefused, netio.ConnectTimeout, netio.ConnectError, netio.LimitFiles, netio.LimitPorts,
	netio.Reason(routing.NoListener), netio.Reason(routing.OriginateConflict), netio.Reason(routing.NoBackend), netio.Reason(routing.NoEndpoint),
	netio.Reason(routing.NoHealthyEndpoint), netio.Reason(routing.RetriesExhausted),
	netio.Reason(routing.Overflow), netio.Reason(routing.QueueTimeout),
}

// Refusals returns the number of requests that no endpoint answered in full, by
// reason, without reasons that have none.
func (d *Dataplane) Refusals() map[netio.Reason]uint64 {
	counts := map[netio.Reason]uint64{}
	for i, reason := range requestReasons {
		if v := d.requests.refused[i].Load(); v > 0 {
			counts[reason] = v
		}
	}
	return counts
}

// refusals counts requests by reason, at the index in requestReasons.
type refusals [maxReasons]atomic.Uint64

func (r *refusals) count(why netio.Reason) {
	for i, reason := range requestReasons {
		if reason == why {
			r[i].Add(1)
			return
		}
	}
}

// requestBuckets are the buckets of the histogram of request durations, in
// seconds.
var requestBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// requestTime returns the observer of the flow's request durations; nil for
// requests that reached no service.
func (f *Flow) requestTime(fs *flows) prometheus.Observer {
	if f.service == "" {
		return nil
	}
	f.once.Do(func() { f.requestDuration = fs.requestDuration.WithLabelValues(f.service) })
	return f.requestDuration
}
