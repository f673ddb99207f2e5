package authorize

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch (API key 9): Describe on the group and on each topic. A list of all
// topics has those that Describe allows.
//
//	v0-7   one group; its error stands with each partition before v2
//	v8-9   several groups
//	v10+   topics by id

func (c *call) offsetFetch(r *kmsg.OffsetFetchRequest) error {
	if r.Version < 8 {
		return c.offsetFetchOne(r)
	}
	var all []id
	if r.Version >= 10 {
		for i := range r.Groups {
			for j := range r.Groups[i].Topics {
				all = append(all, r.Groups[i].Topics[j].TopicID)
			}
		}
	}
	return c.resolve(len(all), func(i int) id { return all[i] }, func() error { return c.offsetFetchGroups(r) })
}

func (c *call) offsetFetchOne(r *kmsg.OffsetFetchRequest) error {
	if !c.group(Describe, r.Group) {
		return answer(c, func(resp *kmsg.OffsetFetchResponse) {
			if r.Version >= 2 {
				resp.ErrorCode = groupAuthorizationFailed
				return
			}
			resp.Topics = mapped(r.Topics, func(t *kmsg.OffsetFetchRequestTopic) kmsg.OffsetFetchResponseTopic {
				return refusedOffsets(t, groupAuthorizationFailed)
			})
		})
	}
	if r.Topics == nil {
		onResponse(c, func(c *call, resp *kmsg.OffsetFetchResponse) error {
			takeOut(&resp.Topics, func(t *kmsg.OffsetFetchResponseTopic) bool { return c.sees(Topic, t.Topic) })
			return nil
		})
		return nil
	}
	denied := takeOut(&r.Topics, func(t *kmsg.OffsetFetchRequestTopic) bool { return c.topic(Describe, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.OffsetFetchResponse) {
		for i := range denied {
			resp.Topics = append(resp.Topics, refusedOffsets(&denied[i], topicAuthorizationFailed))
		}
	})
}

func refusedOffsets(t *kmsg.OffsetFetchRequestTopic, code int16) kmsg.OffsetFetchResponseTopic {
	return kmsg.OffsetFetchResponseTopic{Topic: t.Topic,
		Partitions: mapped(t.Partitions, func(p *int32) kmsg.OffsetFetchResponseTopicPartition {
			one := kmsg.NewOffsetFetchResponseTopicPartition()
			one.Partition, one.ErrorCode, one.Offset, one.LeaderEpoch, one.Metadata = *p, code, -1, -1, message("")
			return one
		})}
}

// refusedGroupTopic is a topic in the answer about a group.
func refusedGroupTopic(t *kmsg.OffsetFetchRequestGroupTopic, code int16) kmsg.OffsetFetchResponseGroupTopic {
	return kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID,
		Partitions: mapped(t.Partitions, func(p *int32) kmsg.OffsetFetchResponseGroupTopicPartition {
			one := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			one.Partition, one.ErrorCode, one.Offset, one.LeaderEpoch, one.Metadata = *p, code, -1, -1, message("")
			return one
		})}
}

func (c *call) offsetFetchGroups(r *kmsg.OffsetFetchRequest) error {
	byID := r.Version >= 10
	changed, lists := false, false
	refused := map[string][]kmsg.OffsetFetchResponseGroupTopic{} // by group
	for i := range r.Groups {
		lists = lists || r.Groups[i].Topics == nil
	}
	denied := takeOut(&r.Groups, func(g *kmsg.OffsetFetchRequestGroup) bool {
		if !c.group(Describe, g.Group) {
			return false
		}
		if g.Topics == nil {
			return true
		}
		takeOut(&g.Topics, func(t *kmsg.OffsetFetchRequestGroupTopic) bool {
			code := c.byNameOrID(Describe, byID, t.Topic, t.TopicID)
			if code != 0 {
				refused[g.Group] = append(refused[g.Group], refusedGroupTopic(t, code))
				changed = true
			}
			return code == 0
		})
		return true
	})
	if len(denied) == 0 && !changed && !lists {
		return nil
	}
	if changed || len(denied) > 0 {
		c.m.MarkChanged()
	}
	finish := func(resp *kmsg.OffsetFetchResponse) {
		for i := range resp.Groups {
			g := &resp.Groups[i]
			takeOut(&g.Topics, func(t *kmsg.OffsetFetchResponseGroupTopic) bool { return c.seesGroupTopic(byID, t) })
			if g.ErrorCode == 0 {
				g.Topics = append(g.Topics, refused[g.Group]...)
			}
		}
		for i := range denied {
			one := kmsg.NewOffsetFetchResponseGroup()
			one.Group, one.ErrorCode = denied[i].Group, groupAuthorizationFailed
			resp.Groups = append(resp.Groups, one)
		}
	}
	if len(r.Groups) == 0 {
		return answer(c, finish)
	}
	onResponse(c, func(c *call, resp *kmsg.OffsetFetchResponse) error {
		if !byID {
			finish(resp)
			return nil
		}
		var all []id
		for i := range resp.Groups {
			for j := range resp.Groups[i].Topics {
				all = append(all, resp.Groups[i].Topics[j].TopicID)
			}
		}
		return c.resolve(len(all), func(i int) id { return all[i] }, func() error { finish(resp); return nil })
	})
	return nil
}

// seesGroupTopic reports whether a list of all offsets shows a topic.
func (c *call) seesGroupTopic(byID bool, t *kmsg.OffsetFetchResponseGroupTopic) bool {
	name, ok := t.Topic, true
	if byID {
		name, ok = c.ids.Get(t.TopicID)
	}
	return ok && c.sees(Topic, name)
}
