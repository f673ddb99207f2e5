package multitenant

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/kafka/filter"
)

// Only the prefix of names is removed from a message, not other occurrences of
// its letters.
func TestMessageLosesThePrefixOfNames(t *testing.T) {
	for _, c := range []struct{ prefix, text, want string }{
		{"c-", "This server does not host topic-partition c-a-0.", "This server does not host topic-partition a-0."},
		{"c-", "Topic 'c-c-a' already exists.", "Topic 'c-a' already exists."},
		{"c-", "c-a, c-b and basic-c-d", "a, b and basic-c-d"},
		{"c-", "the topic c- is empty", "the topic c- is empty"},
		{"c", "consumer cannot: 'corders', name=corders (corders)", "consumer cannot: 'orders', name=orders (orders)"},
		{"z4de-", "collides with existing topic: z4de-a_b", "collides with existing topic: a_b"},
		{"a.b-", "[a.b-x, a.b-y]", "[x, y]"},
	} {
		ten := &tenant{prefix: c.prefix}
		got := c.text
		if ten.unprefixMessage(&got); got != c.want {
			t.Errorf("with the prefix %q, %q becomes %q, want %q", c.prefix, c.text, got, c.want)
		}
	}
}

func TestMessageKeepsOtherWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ten := &tenant{prefix: rapid.StringMatching(`[a-c.]{1,2}[-._]`).Draw(t, "prefix")}
		word := rapid.StringMatching(`[a-c._-]{1,6}`)
		gap := rapid.SampledFrom([]string{" ", ", ", "'", ": ", "/", ") ("})
		var said, want strings.Builder
		for range rapid.IntRange(0, 8).Draw(t, "words") {
			w := word.Draw(t, "word")
			switch rapid.Bool().Draw(t, "name") {
			case true:
				said.WriteString(ten.prefix + w)
				want.WriteString(w)
			case false:
				w = strings.TrimLeft(w, ten.prefix[:1]) // must not begin with the prefix
				said.WriteString(w)
				want.WriteString(w)
			}
			g := gap.Draw(t, "gap")
			said.WriteString(g)
			want.WriteString(g)
		}
		text := said.String()
		if ten.unprefixMessage(&text); text != want.String() {
			t.Errorf("with the prefix %q, %q becomes %q, want %q", ten.prefix, said.String(), text, want.String())
		}
	})
}

// A refused topic name does not disclose the name of another tenant's topic.
func TestCollisionMessageNamesNoForeignTopic(t *testing.T) {
	ten := newTenant(t, "a")
	ten.prefix = "a.b-"
	for name, want := range map[string]string{
		"a_b-x.y": "Topic 'x_y' collides with existing topic",
		"a.b-x.y": "Topic 'x_y' collides with existing topic: x.y",
	} {
		text := "Topic 'a.b-x_y' collides with existing topic: " + name
		r := kmsg.NewPtrCreateTopicsResponse()
		r.Version = 7
		one := kmsg.NewCreateTopicsResponseTopic()
		one.Topic, one.ErrorCode, one.ErrorMessage = "a.b-x_y", 17, &text
		r.Topics = append(r.Topics, one)
		x := filter.NewExchange(r.Key(), r.Version, "", nil)
		m := filter.NewMessage(filter.Response, r.Key(), r.Version, r.AppendTo(nil))
		if err := ten.Open(filter.Info{}).Response(&x, &m); err != nil {
			t.Fatal(err)
		}
		got := kmsg.NewPtrCreateTopicsResponse()
		got.Version = r.Version
		if err := got.ReadFrom(m.Body()); err != nil {
			t.Fatal(err)
		}
		if said := *got.Topics[0].ErrorMessage; said != want {
			t.Errorf("for %s the client gets %q, want %q", name, said, want)
		}
	}
}

// ignorant is a broker that knows no topic IDs.
type ignorant struct{ asked int }

func (*ignorant) Answer(*filter.Exchange, kmsg.Response) {}
func (*ignorant) Drop(*filter.Exchange)                  {}
func (g *ignorant) Ask(_ *filter.Exchange, req kmsg.Request, then func(kmsg.Response, error) error) {
	g.asked += len(req.(*kmsg.MetadataRequest).Topics)
	_ = then(kmsg.NewPtrMetadataResponse(), nil)
}

// Any number of unknown IDs is answered, each with its own ID, and the
// connection remembers no more of them than before.
func TestManyUnknownIDsAreAnswered(t *testing.T) {
	const n = 7000
	for name, reply := range map[string]func([]id) (kmsg.Request, kmsg.Response){
		"Metadata": func(list []id) (kmsg.Request, kmsg.Response) {
			q, r := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()
			for _, t := range list {
				topic := kmsg.NewMetadataRequestTopic()
				topic.TopicID = t
				q.Topics = append(q.Topics, topic)
				r.Topics = append(r.Topics, kmsg.MetadataResponseTopic{TopicID: t, ErrorCode: 100})
			}
			return q, r
		},
		"DeleteTopics": func(list []id) (kmsg.Request, kmsg.Response) {
			q, r := kmsg.NewPtrDeleteTopicsRequest(), kmsg.NewPtrDeleteTopicsResponse()
			for _, t := range list {
				q.Topics = append(q.Topics, kmsg.DeleteTopicsRequestTopic{TopicID: t})
				r.Topics = append(r.Topics, kmsg.DeleteTopicsResponseTopic{TopicID: t, ErrorCode: 100})
			}
			return q, r
		},
		"OffsetFetch": func(list []id) (kmsg.Request, kmsg.Response) {
			q, r := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewPtrOffsetFetchResponse()
			q.Groups, r.Groups = make([]kmsg.OffsetFetchRequestGroup, 1), make([]kmsg.OffsetFetchResponseGroup, 1)
			r.Groups[0].Group = "a-"
			for _, t := range list {
				q.Groups[0].Topics = append(q.Groups[0].Topics, kmsg.OffsetFetchRequestGroupTopic{TopicID: t})
				r.Groups[0].Topics = append(r.Groups[0].Topics, kmsg.OffsetFetchResponseGroupTopic{TopicID: t})
			}
			return q, r
		},
	} {
		t.Run(name, func(t *testing.T) {
			ten := newTenant(t, "a")
			c := ten.Open(filter.Info{}).(*conn)
			said := make([]id, n)
			for i := range said {
				said[i] = id{1, byte(i >> 8), byte(i)}
			}
			q, _ := reply(said)
			version := min(q.MaxVersion(), 13)
			broker := new(ignorant)
			x := filter.NewExchange(q.Key(), version, "", broker)
			q.SetVersion(version)
			m := filter.NewMessage(filter.Request, q.Key(), version, q.AppendTo(nil))
			if err := c.Request(&x, &m); err != nil {
				t.Fatal(err)
			}
			sent := make([]id, n)
			for i := range said {
				if sent[i] = ten.ids.substitute(said[i]); ten.ids.original(sent[i]) != said[i] {
					t.Fatal("the original id cannot be restored from its substitute")
				}
			}
			_, r := reply(sent)
			r.SetVersion(version)
			m = filter.NewMessage(filter.Response, q.Key(), version, r.AppendTo(nil))
			if err := c.Response(&x, &m); err != nil {
				t.Fatal(err)
			}
			_, want := reply(said)
			want.SetVersion(version)
			if w, ok := want.(*kmsg.OffsetFetchResponse); ok {
				w.Groups[0].Group = ""
			}
			if got := string(m.Body()); got != string(want.AppendTo(nil)) {
				t.Error("the response has other ids than the request")
			}
			if ten.ids.owns(sent[0]) || ten.ids.owns(said[0]) {
				t.Error("an id that no topic has counts as the tenant's")
			}
			if kept := len(c.substitutes.newer) + len(c.substitutes.older); kept > 2*maxSubstitutes {
				t.Errorf("%d ids are remembered", kept)
			}
		})
	}
}

// The same within a fetch session, where records follow an ID.
func TestManyUnknownIDsOfAFetchSession(t *testing.T) {
	ten := newTenant(t, "a")
	c := ten.Open(filter.Info{}).(*conn)
	x := filter.NewExchange(1, 13, "", new(ignorant))
	var list []*id
	for i := range 5000 {
		list = append(list, &id{1, byte(i >> 8), byte(i)})
	}
	if err := (&call{conn: c, x: &x}).updateSession(&c.fetchSession, 0, list, nil); err != nil {
		t.Fatal(err)
	}
	for i, sent := range list {
		if err := c.restoreFetchedID(sent); err != nil || *sent != (id{1, byte(i >> 8), byte(i)}) {
			t.Fatalf("id %d: %x, %v", i, *sent, err)
		}
	}
	foreign := id{9}
	if err := c.restoreFetchedID(&foreign); err == nil {
		t.Error("an id that the session has not named was accepted")
	}
}
