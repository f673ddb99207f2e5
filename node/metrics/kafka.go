package metrics

import (
	"cmp"

	"penstock/kafka"
)

// The metrics of Kafka. Labels are the names of virtual clusters, of APIs (a fixed
// list), and with the filter TopicMetrics of topics that the brokers have
// reported, up to the configured number.
var (
	mKafkaRequests = traffic("kafka_requests_total", "Requests with a response, or that need none.", "virtual_cluster", "api")
	mKafkaErrors   = traffic("kafka_errors_total",
		"Responses with a top-level error code, for APIs where the proxy reads it.", "virtual_cluster", "api")
	mKafkaBytes = desc("kafka_bytes_total",
		"Bytes of clients' frames: in are requests, out are responses.", "virtual_cluster", "api", "direction")
	mKafkaBroker = buckets(kafka.Buckets[:], "kafka_broker_duration_seconds",
		"Time from the last byte of a request sent to the broker until its response begins.", "virtual_cluster", "api")
	mKafkaProxy = buckets(kafka.Buckets[:], "kafka_proxy_duration_seconds",
		"The rest of a request's time: in the proxy and in streaming.", "virtual_cluster", "api")
	mKafkaHidden = desc("kafka_addresses_hidden_total",
		"Broker addresses hidden from clients because they have no virtual address.", "virtual_cluster")
	mKafkaUnplaced = desc("kafka_hidden_brokers",
		"Brokers of the physical cluster that have no virtual address now.", "virtual_cluster")
	mKafkaThrottled = desc("kafka_throttled_total", "Responses in which the broker throttles a client.", "virtual_cluster")
	mKafkaDenied    = desc("kafka_denied_total", "Connections that a filter ended.", "virtual_cluster")
	mKafkaForbidden = desc("kafka_permission_denied_total",
		"Operations that permissions denied, by the permission (-: none allows it), or would deny (mode shadow).",
		"virtual_cluster", "api", "permission", "mode")
	mKafkaTopics = desc("kafka_topic_messages_total",
		"Produce requests and responses to Fetch and ShareFetch by topic, with the filter TopicMetrics.", "virtual_cluster", "topic", "api")
	mKafkaRecords = desc("kafka_topic_bytes_total",
		"Bytes of a topic's compressed records and their framing, with the filter TopicMetrics.", "virtual_cluster", "topic", "api")
	mKafkaKnown  = desc("kafka_brokers", "Known brokers of a physical cluster.", "physical_cluster")
	mKafkaLookup = desc("kafka_lookup_failing",
		"1 if the last discovery of a physical cluster's brokers failed.", "physical_cluster")
)

// kafkaMetrics sends the metrics of virtual and physical clusters.
func kafkaMetrics(p *kafka.Proxy, to sink) {
	for _, s := range p.Counts() {
		for i := range s.APIs {
			a := &s.APIs[i]
			to.counter(mKafkaRequests, a.Requests, s.Cluster, a.API)
			to.counter(mKafkaErrors, a.Errors, s.Cluster, a.API)
			to.counter(mKafkaBytes, a.In, s.Cluster, a.API, "in")
			to.counter(mKafkaBytes, a.Out, s.Cluster, a.API, "out")
			to.histogram(mKafkaBroker, a.Broker.Counts[:], a.Broker.Sum.Seconds(), s.Cluster, a.API)
			to.histogram(mKafkaProxy, a.Proxy.Counts[:], a.Proxy.Sum.Seconds(), s.Cluster, a.API)
		}
		for _, d := range s.Denials {
			to.counter(mKafkaForbidden, d.Count, s.Cluster, d.API, cmp.Or(d.Permission, "-"), denialMode(d.Shadow))
		}
		for _, t := range s.Topics {
			to.counter(mKafkaTopics, t.Messages, s.Cluster, t.Topic, t.API)
			to.counter(mKafkaRecords, t.Bytes, s.Cluster, t.Topic, t.API)
		}
		to.counter(mKafkaHidden, s.Hidden, s.Cluster)
		to.counter(mKafkaThrottled, s.Throttled, s.Cluster)
		to.counter(mKafkaDenied, s.Denied, s.Cluster)
	}
	for name, n := range p.Unmapped() {
		to.gauge(mKafkaUnplaced, float64(n), name)
	}
	for c := range p.Table().Physicals() {
		if s, ok := p.DiscoveryStatus(c.Name()); ok {
			to.gauge(mKafkaKnown, float64(len(s.Brokers)), c.Name())
			to.gauge(mKafkaLookup, boolValue(s.Err != nil), c.Name())
		}
	}
}

func denialMode(shadow bool) string {
	if shadow {
		return "shadow"
	}
	return "deny"
}
