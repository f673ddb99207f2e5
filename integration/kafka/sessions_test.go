package kafka

import (
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
)

// together creates a topic whose partitions are all led by broker 0, and
// returns its ID and the leader's address.
func (r *run) together(name string, partitions int32) (topic string, id [16]byte, at string) {
	r.t.Helper()
	cl := r.client()
	defer cl.Close()
	topic = r.uniqueName(name)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, -1, -1
	for p := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = p, []int32{0}
		one.ReplicaAssignment = append(one.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(r.ctx, cl)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		r.t.Fatalf("%s: topic %s: %v, %s", r.name, topic, err, r.text(resp))
	}
	testkit.WaitFor(r.t, topic+" to be led", func() bool {
		meta := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		meta.Topics = append(meta.Topics, t)
		resp, err := meta.RequestWith(r.ctx, cl)
		if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != int(partitions) {
			return false
		}
		id = resp.Topics[0].TopicID
		for _, b := range resp.Brokers {
			if b.NodeID == 0 {
				at = net.JoinHostPort(b.Host, fmt.Sprint(b.Port))
			}
		}
		return resp.Topics[0].Partitions[0].ErrorCode == 0
	})
	// The leader itself may apply the topic later than others.
	c, err := r.raw(r.ctx, at)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	defer c.Close()
	testkit.WaitFor(r.t, topic+" to be served", func() bool {
		resp, _, err := c.ask(ends(topic, partitions))
		if err != nil {
			r.t.Fatalf("%s: %v", r.name, err)
		}
		for _, p := range resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			if p.ErrorCode != 0 {
				return false
			}
		}
		return true
	})
	return topic, id, at
}

// ends returns a request for the end offsets of partitions.
func ends(topic string, partitions int32) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 7, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for p := range partitions {
		one := kmsg.NewListOffsetsRequestTopicPartition()
		one.Partition, one.Timestamp = p, -1
		t.Partitions = append(t.Partitions, one)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// connect opens a raw connection that is closed at the end of the test.
func (r *run) connect(at string) *rawConn {
	r.t.Helper()
	c, err := r.raw(r.ctx, at)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends a request on a raw connection and records the masked answer.
func (r *run) exchange(c *rawConn, what string, req kmsg.Request) kmsg.Response {
	r.t.Helper()
	resp, _, err := c.ask(req)
	if err != nil {
		r.record("%s: %s", what, failure(err))
		return nil
	}
	r.record("%s: %s", what, r.text(resp))
	return resp
}

// fetchSessions uses incremental fetches (KIP-227): the broker's state of
// earlier requests on a connection determines the meaning of later ones.
func fetchSessions(r *run) {
	topic, id, at := r.together("sessions", 3)
	cl := r.client()
	for _, version := range []int16{7, 12, 13, 17} {
		c := r.connect(at)
		fetch := func(session, epoch int32, offset int64, partitions ...int32) *kmsg.FetchRequest {
			req := kmsg.NewPtrFetchRequest()
			req.Version, req.SessionID, req.SessionEpoch, req.MaxWaitMillis, req.MinBytes = version, session, epoch, 10, 0
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = topic, id
			for _, p := range partitions {
				one := kmsg.NewFetchRequestTopicPartition()
				one.Partition, one.FetchOffset, one.PartitionMaxBytes = p, offset, 1<<20
				t.Partitions = append(t.Partitions, one)
			}
			if len(t.Partitions) > 0 {
				req.Topics = append(req.Topics, t)
			}
			return req
		}
		whole, err := endOf(r, cl, topic)
		if err != nil {
			r.t.Fatalf("%s: %v", r.name, err)
		}
		first := r.exchange(c, "all three", fetch(0, 0, whole, 0, 1, 2))
		if first == nil {
			return
		}
		session := first.(*kmsg.FetchResponse).SessionID
		r.record("v%d has a session: %v", version, session != 0)
		r.exchange(c, "nothing new", fetch(session, 1, 0))
		r.produce(cl, records(topic, 3, 3)...)
		r.exchange(c, "what is new", fetch(session, 2, 0))
		r.exchange(c, "two moved on", fetch(session, 3, whole+1, 0, 2))
		r.exchange(c, "the same epoch again", fetch(session, 3, 0))
		forget := fetch(session, 4, 0)
		old := kmsg.NewFetchRequestForgottenTopic()
		old.Topic, old.TopicID, old.Partitions = topic, id, []int32{1}
		forget.ForgottenTopics = append(forget.ForgottenTopics, old)
		r.exchange(c, "one forgotten", forget)
		r.exchange(c, "a session that nobody has", fetch(session^0x55, 5, 0))
		r.exchange(c, "the end", fetch(session, -1, 0))
	}
}

// endOf returns the end offset of partition 0; all partitions have the same.
func endOf(r *run, cl *kgo.Client, topic string) (int64, error) {
	resp, err := ends(topic, 1).RequestWith(r.ctx, cl)
	if err != nil {
		return 0, err
	}
	return resp.Topics[0].Partitions[0].Offset, nil
}

// byIdentity refers to topics by ID, before and after they are recreated under
// the same name.
func byIdentity(r *run) {
	topic, id, at := r.together("identity", 1)
	r.produce(r.client(), records(topic, 3, 1)...)
	c := r.connect(at)
	look := func(what string, id [16]byte) {
		meta := kmsg.NewPtrMetadataRequest()
		meta.Version = 12
		t := kmsg.NewMetadataRequestTopic()
		t.TopicID = id
		meta.Topics = append(meta.Topics, t)
		r.exchange(c, what+", described", meta)
		fetch := kmsg.NewPtrFetchRequest()
		fetch.Version, fetch.MaxWaitMillis, fetch.SessionEpoch = 16, 10, -1
		ft := kmsg.NewFetchRequestTopic()
		ft.TopicID = id
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 1 << 20
		ft.Partitions = append(ft.Partitions, p)
		fetch.Topics = append(fetch.Topics, ft)
		r.exchange(c, what+", fetched", fetch)
	}
	look("there", id)
	look("unknown", [16]byte{1, 2, 3})
	gone := kmsg.NewPtrDeleteTopicsRequest()
	gone.Version, gone.TimeoutMillis = 6, 10_000
	for _, one := range [][16]byte{id, {4, 5, 6}} {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.TopicID = one
		gone.Topics = append(gone.Topics, t)
	}
	r.exchange(c, "deleted by identity", gone)
	again := id
	for again == id {
		_, again, at = r.together("identity", 1)
	}
	c = r.connect(at)
	testkit.WaitFor(r.t, "the old identity to be gone", func() bool {
		meta := kmsg.NewPtrMetadataRequest()
		meta.Version = 12
		t := kmsg.NewMetadataRequestTopic()
		t.TopicID = id
		meta.Topics = append(meta.Topics, t)
		resp, _, err := c.ask(meta)
		return err == nil && resp.(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0
	})
	look("the old one", id)
	look("the new one", again)
}
