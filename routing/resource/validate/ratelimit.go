package validate

import (
	"fmt"
	"time"

	"penstock/routing/resource"
)

const (
	// maxTrafficEntries bounds the entries of from and to, and the values of each of
	// their fields: a connection is compared with all of them.
	maxTrafficEntries = 1000
	// maxUnitsPerSecond bounds the rates of connections and requests. Buckets count in
	// whole nanoseconds; above it their rounding would show.
	maxUnitsPerSecond = 10_000_000
	// maxRate is the bound of a rate by its tag, beyond which Fields reports it.
	maxRate = 1_000_000_000
)

// validateRateLimit reports the faults of a rate limit alone.
func validateRateLimit(r *resource.RateLimit, fault Report) {
	Fields(r, fault)
	checkTrafficSources("from", r.From, fault)
	checkTrafficDestinations("to", r.To, fault)
	if !r.BoundsConnections() && r.Requests == nil && r.Produce == nil && r.Fetch == nil {
		fault("", "needs at least one of connections, concurrent, requests, bytesIn, bytesOut, produce and fetch", nil)
	}
	checkRate("connections", r.Connections, fault)
	checkRate("requests", r.Requests, fault)
	checkByteRate("bytesIn", r.BytesIn, fault)
	checkByteRate("bytesOut", r.BytesOut, fault)
	checkByteRate("produce", r.Produce, fault)
	checkByteRate("fetch", r.Fetch, fault)
	checkRateKey(r, fault)
	checkRateScope(r, fault)
	if r.Over != "" && r.Over != "refuse" && r.Connections == nil && r.Requests == nil {
		fault("over", "needs connections or requests: nothing else waits", r.Over)
	}
	if (r.Over == "" || r.Over == "refuse") && r.Queue != (resource.RateQueue{}) {
		fault("queue", "needs over: queue or over: slow", nil)
	}
	if r.Over == "slow" && r.Queue.Length != 0 {
		fault("queue.length", "needs over: queue; over: slow bounds the time alone", r.Queue.Length)
	}
	checkKafkaLimit(r, fault)
}

// checkKafkaLimit reports what can limit nothing, because it is known of Kafka's
// requests only.
func checkKafkaLimit(r *resource.RateLimit, fault Report) {
	if r.KafkaOnly() && r.BoundsConnections() {
		at := "by"
		if r.By != "principal" && r.By != "clientID" && r.By != "topic" {
			at = "from"
		}
		fault(at, "names what is known of Kafka's requests only: put connections, concurrent, bytesIn and bytesOut into another RateLimit", nil)
	}
	if r.By == "topic" && r.Requests != nil {
		fault("requests", "must not be given with by: topic, as a request may be about many: limit produce and fetch", nil)
	}
	if !r.KafkaOnly() && (r.BoundsConnections() || r.Requests != nil) {
		return
	}
	for i := range r.To {
		if len(r.To[i].Services) > 0 {
			fault(resource.Item("to", i)+".services", "can limit nothing here: only virtual clusters have Kafka's requests", nil)
		}
	}
}

// maxDividedKeys bounds the budgets of a limit with scope cluster on a node, which
// looks at all of them several times a second.
const maxDividedKeys = 100_000

// checkRateScope reports settings that do not go with scope.
func checkRateScope(r *resource.RateLimit, fault Report) {
	if r.Scope != resource.ScopeCluster {
		if r.Floor != nil {
			fault("floor", "needs scope: cluster", *r.Floor)
		}
		return
	}
	if r.Concurrent != nil {
		fault("concurrent", "is counted on each node alone: put it into another RateLimit, with scope: node", *r.Concurrent)
	}
	if r.MaxKeys > maxDividedKeys {
		fault("maxKeys", fmt.Sprintf("must be at most %d with scope: cluster", maxDividedKeys), r.MaxKeys)
	}
}

// checkRateKey reports settings that do not go with by.
func checkRateKey(r *resource.RateLimit, fault Report) {
	switch {
	case r.By == "tag" && r.Tag == "":
		fault("tag", "is required with by: tag", nil)
	case r.By != "tag" && r.Tag != "":
		fault("tag", "needs by: tag", r.Tag)
	case r.Tag != "":
		if message := tagFault(r.Tag, "any"); message != "" {
			fault("tag", message, r.Tag)
		}
	}
	if r.By != "network" && r.PrefixIPv4 != 0 {
		fault("prefixIPv4", "needs by: network", r.PrefixIPv4)
	}
	if r.By != "network" && r.PrefixIPv6 != 0 {
		fault("prefixIPv6", "needs by: network", r.PrefixIPv6)
	}
	if (r.By == "" || r.By == "all") && r.MaxKeys != 0 {
		fault("maxKeys", "needs another by: all has one key", r.MaxKeys)
	}
}

// zeroRate is the fault of a rate of 0, which cannot be told from one left out.
const zeroRate = "is required and must be at least 1: 0 would admit nothing; leave the whole limit out for no bound"

func checkRate(path string, r *resource.Rate, fault Report) {
	if r == nil {
		return
	}
	per := r.Per.D()
	if per <= 0 {
		per = time.Second
	}
	switch {
	case r.Rate == 0:
		fault(path+".rate", zeroRate, nil)
	case r.Rate <= maxRate && float64(r.Rate)*float64(time.Second)/float64(per) > maxUnitsPerSecond:
		fault(path+".rate", fmt.Sprintf("must be at most %d for each second", maxUnitsPerSecond), r.Rate)
	}
}

func checkByteRate(path string, r *resource.ByteRate, fault Report) {
	if r != nil && r.Rate == 0 {
		fault(path+".rate", zeroRate, nil)
	}
}

// checkTrafficSources reports the faults of what selects clients.
func checkTrafficSources(path string, list []resource.TrafficSource, fault Report) {
	checkLength(path, len(list), fault)
	for i := range list {
		s, at := &list[i], resource.Item(path, i)
		checkList(at+".principals", s.Principals, checkPrincipal, fault)
		checkList(at+".clientIDs", s.ClientIDs, checkClientID, fault)
		checkLength(at+".identities", len(s.Identities), fault)
		for k, pattern := range s.Identities {
			if err := resource.CheckSPIFFEPattern(pattern); err != nil {
				fault(resource.Item(at+".identities", k), err.Error(), pattern)
			}
		}
		checkLength(at+".services", len(s.Services), fault)
		for k, name := range s.Services {
			if message := tagFault("service", name); message != "" {
				fault(resource.Item(at+".services", k), message, name)
			}
		}
		checkTags(at+".tags", s.Tags, fault)
		checkLength(at+".networks", len(s.Networks), fault)
	}
}

// checkTrafficDestinations reports the faults of what selects destinations.
func checkTrafficDestinations(path string, list []resource.TrafficDestination, fault Report) {
	checkLength(path, len(list), fault)
	for i := range list {
		d, at := &list[i], resource.Item(path, i)
		for _, field := range []struct {
			kind, name string
			values     []string
		}{
			{"Service", "services", d.Services}, {"VirtualCluster", "virtualClusters", d.VirtualClusters},
			{"Listener", "listeners", d.Listeners},
		} {
			checkLength(at+"."+field.name, len(field.values), fault)
			for k, name := range field.values {
				checkRef(field.kind, resource.Item(at+"."+field.name, k), name, fault)
			}
		}
		if len(d.Services) > 0 && len(d.VirtualClusters) > 0 {
			fault(at, "no connection is for a service and a virtual cluster: make them two entries", nil)
		}
	}
}

func checkLength(path string, n int, fault Report) {
	if n > maxTrafficEntries {
		fault(path, fmt.Sprintf("must have at most %d entries", maxTrafficEntries), n)
	}
}
