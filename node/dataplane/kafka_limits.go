package dataplane

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka"
	"penstock/kafka/filter"
	"penstock/netio"
	"penstock/routing"
	"penstock/routing/limit"
)

// kafkaLimits is the rate limits of a Kafka client's requests. It holds their buckets from
// one request to the next, so that the same client pays for no search.
type kafkaLimits struct {
	router  *routing.Router
	conn    *netio.Conn
	cluster string
	client  *filter.Client

	version             uint64 // of the rate limits; 0: there are none
	principal, clientID string // that the buckets were chosen for
	buckets             []*limit.Bucket
	topics              []*limit.Limit
	until               int64         // no request is to be read before; see package limit
	topicDebt           int64         // the same for topics alone,
	owing               *limit.Bucket // the topic of it; nil: none
	owes                limit.Dimension
}

var _ kafka.Limiter = (*kafkaLimits)(nil)

// newKafkaLimits returns the limits of a client of a virtual cluster.
func (r *reconciler) newKafkaLimits(c *netio.Conn, cluster string, client *filter.Client) kafka.Limiter {
	return &kafkaLimits{router: r.router, conn: c, cluster: cluster, client: client}
}

// Request implements kafka.Limiter.
func (k *kafkaLimits) Request(key int16, clientID string, size int) {
	table := k.router.Table()
	if v := table.KafkaLimitsVersion(); v != k.version || v != 0 && (clientID != k.clientID || k.client.Principal != k.principal) {
		k.choose(table, v, clientID)
	}
	if len(k.buckets) == 0 {
		return
	}
	now := routing.LimitClock()
	k.charge(limit.Requests, 1, now)
	if key == int16(kmsg.Produce) {
		k.charge(limit.Produce, size, now)
	}
}

// Response implements kafka.Limiter.
func (k *kafkaLimits) Response(key int16, size int) {
	if len(k.buckets) > 0 && (key == int16(kmsg.Fetch) || key == int16(kmsg.ShareFetch)) {
		k.charge(limit.Fetch, size, routing.LimitClock())
	}
}

// charge charges every budget; the slowest decides.
func (k *kafkaLimits) charge(d limit.Dimension, n int, now int64) {
	for _, b := range k.buckets {
		if wait := b.Charge(d, int64(n), now); wait > 0 {
			k.until = max(k.until, now+int64(wait))
		}
	}
}

// ChargeTopic implements kafka.Limiter.
func (k *kafkaLimits) ChargeTopic(d filter.Direction, topic string, n int) {
	dimension := limit.Produce
	if d == filter.Response {
		dimension = limit.Fetch
	}
	for _, l := range k.topics {
		now := routing.LimitClock()
		b := l.Bucket(limit.Key{Text: topic, Cluster: k.cluster}, now)
		if wait := b.Charge(dimension, int64(n), now); wait > 0 {
			if until := now + int64(wait); until > k.topicDebt {
				k.topicDebt, k.owes = until, dimension
				k.owing, b = b, k.owing
			}
		}
		if b != nil {
			b.Release()
		}
	}
}

// Wait implements kafka.Limiter. A connection that is new, or a client that has just said
// who it is, waits for what it owes by others that it had before: whoever connects anew
// gains nothing.
func (k *kafkaLimits) Wait() time.Duration {
	table := k.router.Table()
	if v := table.KafkaLimitsVersion(); v != k.version || v != 0 && k.client.Principal != k.principal {
		k.choose(table, v, k.clientID)
	}
	if k.until == 0 && k.topicDebt == 0 {
		return 0
	}
	now := routing.LimitClock()
	if k.until > now { // a rate may have risen since
		k.until = min(k.until, now+int64(k.owed(now, (*limit.Bucket).Debt)))
	}
	if k.topicDebt > now && k.owing != nil {
		k.topicDebt = min(k.topicDebt, now+int64(k.owing.Debt(k.owes, now)))
	}
	wait := max(k.until, k.topicDebt) - now
	if wait <= 0 {
		k.until = 0
		k.forgetTopics()
		return 0
	}
	return time.Duration(wait)
}

// Throttle implements kafka.Limiter. A node that has had no demand for a budget of the
// cluster has a small part of it for the first moment: the client is told what it owes at
// an equal part, and is held longer if that does not come.
func (k *kafkaLimits) Throttle() time.Duration {
	wait := k.Wait()
	if wait == 0 {
		return 0
	}
	now := routing.LimitClock()
	debt := k.owed(now, (*limit.Bucket).EqualDebt)
	if k.topicDebt > now && k.owing != nil {
		debt = max(debt, k.owing.EqualDebt(k.owes, now))
	}
	return min(wait, debt)
}

// forgetTopics forgets what topics owe.
func (k *kafkaLimits) forgetTopics() {
	k.topicDebt = 0
	if k.owing != nil {
		k.owing.Release()
		k.owing = nil
	}
}

// owed returns for how long the buckets are in debt.
func (k *kafkaLimits) owed(now int64, debt func(*limit.Bucket, limit.Dimension, int64) time.Duration) (most time.Duration) {
	for _, b := range k.buckets {
		for _, d := range [...]limit.Dimension{limit.Requests, limit.Produce, limit.Fetch} {
			most = max(most, debt(b, d, now))
		}
	}
	return most
}

// choose finds the buckets of the rate limits in force. What these are owed stays owed.
func (k *kafkaLimits) choose(table *routing.Table, version uint64, clientID string) {
	k.release()
	if version != k.version {
		k.forgetTopics() // charged again with the next bytes of that topic
	}
	k.version, k.clientID, k.principal, k.until = version, clientID, k.client.Principal, 0
	if version == 0 {
		return
	}
	in := inputOf(k.conn)
	now := routing.LimitClock()
	q := routing.LimitQuery{
		Input: &in, Cluster: k.cluster, Kafka: &routing.KafkaClient{Principal: k.principal, ClientID: clientID}, Now: now,
	}
	k.buckets, k.topics = table.Limits(k.buckets, &q), table.TopicLimits(k.topics[:0], &q)
	if debt := k.owed(now, (*limit.Bucket).Debt); debt > 0 {
		k.until = now + int64(debt)
	}
}

// release gives the buckets back.
func (k *kafkaLimits) release() {
	releaseAll(k.buckets)
	clear(k.buckets)
	k.buckets = k.buckets[:0]
}

// Close implements kafka.Limiter.
func (k *kafkaLimits) Close() {
	k.release()
	k.forgetTopics()
}
