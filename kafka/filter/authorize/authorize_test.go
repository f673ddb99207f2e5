package authorize

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/routing/resource"
)

// Whoever brings another API or version must say here what it needs: until then it is not
// offered where permissions apply.
func TestEveryCarriedAPIIsInTheTable(t *testing.T) {
	for key := int16(0); key <= wire.MaxKey; key++ {
		_, highest, ok := wire.Known(key)
		a := apiOf(key)
		switch {
		case !ok && a != nil:
			t.Errorf("%s is in the table and not carried", wire.Name(key))
		case ok && a == nil && hidden[key] == "":
			t.Errorf("%s is carried, and neither in the table nor hidden", wire.Name(key))
		case a != nil && hidden[key] != "":
			t.Errorf("%s is in the table and hidden", wire.Name(key))
		case a != nil && a.highest != highest:
			t.Errorf("%s is known up to v%d, and in the table up to v%d: look at what is new", wire.Name(key), highest, a.highest)
		}
	}
}

func requests(operations []string, topics ...string) resource.KafkaRequests {
	return resource.KafkaRequests{Operations: operations, Topics: topics}
}

func permission(name, action string, from []resource.TrafficSource, k ...resource.KafkaRequests) Permission {
	return Permission{name, &resource.TrafficPermission{Action: action, From: from,
		To: []resource.PermissionDestination{{VirtualClusters: []string{"shop"}, Kafka: k}}}}
}

func TestDecisions(t *testing.T) {
	list := []Permission{
		permission("read", "allow", nil, requests([]string{"consume"}, "orders*")),
		permission("admin", "allow", []resource.TrafficSource{{Principals: []string{"User:root"}}}, resource.KafkaRequests{}),
		permission("config", "allow", nil, requests([]string{"alterConfigs"}, "bills")),
		permission("secret", "deny", []resource.TrafficSource{{Principals: []string{"User:guest"}}}, requests(nil, "orders-secret")),
		permission("audit", "shadowDeny", nil, requests(nil, "orders-audit")),
	}
	to := []resource.PermissionDestination{{VirtualClusters: []string{"shop"}, Kafka: []resource.KafkaRequests{requests(nil, "rules")}}}
	list = append(list, Permission{"rules", &resource.TrafficPermission{To: to, Rules: []resource.PermissionRule{
		{Action: "allow"}, {Action: "deny", From: []resource.TrafficSource{{Principals: []string{"User:guest"}}}},
	}}})
	if Compile("other", list) != nil {
		t.Error("another cluster has rules")
	}
	rules := Compile("shop", list)
	for _, c := range []struct {
		who  string
		o    Operation
		kind ResourceType
		name string
		want Decision
	}{
		{"User:a", Read, Topic, "orders", Decision{Allowed: true, Rule: "read to[0]"}},
		{"User:a", Describe, Topic, "orders-eu", Decision{Allowed: true, Rule: "read to[0]"}},
		{"User:a", Write, Topic, "orders", Decision{}},
		{"User:a", Read, Topic, "order", Decision{}},
		{"User:a", Read, Group, "orders", Decision{}},
		{"User:a", DescribeConfigs, Topic, "bills", Decision{Allowed: true, Rule: "config to[0]"}},
		{"User:a", Read, Topic, "orders-secret", Decision{Allowed: true, Rule: "read to[0]"}},
		{"User:guest", Read, Topic, "orders-secret", Decision{Rule: "secret to[0]"}},
		{"", Read, Topic, "orders-secret", Decision{Rule: "secret to[0]"}}, // it may be guest
		{"", Alter, Cluster, ClusterName, Decision{}},                      // and not root for certain
		{"User:a", Write, Topic, "rules", Decision{Allowed: true, Rule: "rules to[0]"}},
		{"User:guest", Write, Topic, "rules", Decision{Rule: "rules to[0]"}},
		{"User:root", Alter, Cluster, ClusterName, Decision{Allowed: true, Rule: "admin to[0]"}},
		{"User:a", Read, Topic, "orders-audit", Decision{Allowed: true, Rule: "read to[0]", Shadow: "audit to[0]"}},
	} {
		a := rules.For(&filter.Client{Principal: c.who}, "")
		if got := a.Decide(c.o, c.kind, c.name); got != c.want {
			t.Errorf("%q %s %s %s: %+v, want %+v", c.who, c.o, c.kind, c.name, got, c.want)
		}
	}
}

func TestClientsAreTold(t *testing.T) {
	known := &filter.Client{
		Listener: "one", Address: netip.MustParseAddr("10.0.0.7"), Identity: "spiffe://corp/web", Service: "web",
		Tags: map[string]string{"zone": "eu"}, Principal: "User:alice",
	}
	undecided := *known
	undecided.Identity, undecided.IdentityUndecided = "", true
	for _, c := range []struct {
		from   resource.TrafficSource
		client *filter.Client
		want   match
	}{
		{resource.TrafficSource{Principals: []string{"User:al*"}}, known, yes},
		{resource.TrafficSource{Principals: []string{"User:alic"}}, known, no},
		{resource.TrafficSource{ClientIDs: []string{"app-*"}}, known, yes},
		{resource.TrafficSource{ClientIDs: []string{"app"}}, known, no},
		{resource.TrafficSource{Identities: []string{"spiffe://corp/*"}}, known, yes},
		{resource.TrafficSource{Identities: []string{"spiffe://other/*"}}, &undecided, maybe},
		{resource.TrafficSource{Identities: []string{"spiffe://other/*"}, Principals: []string{"User:bob"}}, &undecided, no},
		{resource.TrafficSource{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Services: []string{"web"}}, known, yes},
		{resource.TrafficSource{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}, known, no},
		{resource.TrafficSource{Tags: map[string]string{"zone": "us"}}, known, no},
	} {
		if got := matchSource(&c.from, c.client, "app-1"); got != c.want {
			t.Errorf("%+v: %d, want %d", c.from, got, c.want)
		}
	}
	long := knownClientID(string(make([]byte, 64)))
	if matchesName(string(make([]byte, 64)), long) || !matchesName(string(make([]byte, 9))+"*", long) {
		t.Error("a client id that was cut is taken for a whole one")
	}
}

// KIP-679: an idempotent producer may write to some topic, unless denies cover all that is
// allowed.
func TestSomeTopicIsEnoughForIdempotence(t *testing.T) {
	write := []string{"produce"}
	for _, c := range []struct {
		allow, deny string
		want        bool
	}{
		{"orders", "bills", true}, {"orders", "orders", false}, {"orders*", "or*", false},
		{"or*", "orders", true}, {"*", "a*", true}, {"a", "*", false},
	} {
		a := Compile("shop", []Permission{
			permission("a", "allow", nil, requests(write, c.allow)), permission("b", "deny", nil, requests(write, c.deny)),
		}).For(&filter.Client{}, "")
		if got := a.Some(Write, Topic).Allowed; got != c.want {
			t.Errorf("allow %s, deny %s: %v", c.allow, c.deny, got)
		}
	}
}

// broker answers what it is asked with what a test says, and keeps the requests.
type broker struct {
	requests []kmsg.Request
	answer   func(kmsg.Request) kmsg.Response
	client   kmsg.Response
}

func (b *broker) ToBroker(c *filter.Call) error {
	r, err := c.Message().DecodeRequest()
	if err != nil {
		return err
	}
	b.requests = append(b.requests, r)
	resp := b.answer(r)
	resp.SetVersion(c.Version())
	return c.Respond(resp.AppendTo(nil))
}

func (b *broker) ToClient(c *filter.Call) error {
	var err error
	m := filter.NewMessage(filter.Response, c.Key(), c.Version(), c.Message().Body())
	b.client, err = m.DecodeResponse()
	c.Done()
	return err
}

func (b *broker) Dropped(c *filter.Call) error { c.Done(); return nil }

// ask sends a request through the filter.
func ask(t rapid.TB, rules *Rules, who *filter.Client, b *broker, r kmsg.Request) kmsg.Response {
	t.Helper()
	chain, err := filter.NewChain([]filter.Filter{New(Config{Rules: func() *Rules { return rules }})})
	if err != nil {
		t.Fatal(err)
	}
	c := chain.Open(filter.Info{Client: who}, b).Begin(r.Key(), r.GetVersion(), "app", false)
	if err := c.Request(r.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return b.client
}

// No name that is denied reaches the broker, and none of another appears in an answer about
// all topics.
func TestDeniedNamesAreNeitherSentNorShown(t *testing.T) {
	all := []string{"a", "a-1", "b", "b-1", "c"}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom([]string{"a", "a*", "b*", "c", "*"})
		rules := Compile("shop", []Permission{
			permission("allow", "allow", nil, requests([]string{"consume"}, rapid.SliceOfN(pattern, 1, 3).Draw(t, "allow")...)),
			permission("deny", "deny", nil, requests(nil, rapid.SliceOfN(pattern, 1, 2).Draw(t, "deny")...)),
		})
		a := rules.For(&filter.Client{}, "")
		allowed := func(name string) bool { return a.Decide(Describe, Topic, name).Allowed }
		b := &broker{answer: func(r kmsg.Request) kmsg.Response {
			resp := kmsg.NewPtrMetadataResponse()
			names := all
			if q := r.(*kmsg.MetadataRequest); q.Topics != nil {
				names = nil
				for _, topic := range q.Topics {
					if names = append(names, *topic.Topic); !allowed(*topic.Topic) {
						t.Errorf("the broker was asked about %s", *topic.Topic)
					}
				}
			}
			for i, name := range names {
				topic := kmsg.NewMetadataResponseTopic()
				topic.Topic, topic.TopicID = &name, id{byte(i + 1)}
				resp.Topics = append(resp.Topics, topic)
			}
			return resp
		}}
		q := kmsg.NewPtrMetadataRequest()
		q.Version = rapid.Int16Range(1, 12).Draw(t, "version")
		var named []string
		if rapid.Bool().Draw(t, "named") {
			named = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 4, rapid.ID).Draw(t, "names")
			for i := range named {
				topic := kmsg.NewMetadataRequestTopic()
				topic.Topic = &named[i]
				q.Topics = append(q.Topics, topic)
			}
		}
		resp := ask(t, rules, &filter.Client{}, b, q).(*kmsg.MetadataResponse)
		for _, topic := range resp.Topics {
			switch {
			case allowed(*topic.Topic) != (topic.ErrorCode == 0):
				t.Errorf("%s has error %d", *topic.Topic, topic.ErrorCode)
			case !allowed(*topic.Topic) && (named == nil || topic.ErrorCode != topicAuthorizationFailed || topic.TopicID != id{}):
				t.Errorf("the client was shown %+v", topic)
			}
		}
		if named != nil && len(resp.Topics) != len(named) {
			t.Errorf("asked for %v, answered %d", named, len(resp.Topics))
		}
	})
}

// An id is decided by its name, which the broker is asked for once.
func TestTopicIDsAreNames(t *testing.T) {
	rules := Compile("shop", []Permission{permission("a", "allow", nil, requests([]string{"produce"}, "mine"))})
	topics := map[id]string{{1}: "mine", {2}: "other"}
	b := &broker{answer: func(r kmsg.Request) kmsg.Response {
		switch q := r.(type) {
		case *kmsg.MetadataRequest:
			resp := kmsg.NewPtrMetadataResponse()
			for _, topic := range q.Topics {
				one := kmsg.NewMetadataResponseTopic()
				if one.TopicID, one.ErrorCode = topic.TopicID, unknownTopicID; topics[topic.TopicID] != "" {
					name := topics[topic.TopicID]
					one.Topic, one.ErrorCode = &name, 0
				}
				resp.Topics = append(resp.Topics, one)
			}
			return resp
		case *kmsg.ProduceRequest:
			resp := kmsg.NewPtrProduceResponse()
			for _, topic := range q.Topics {
				if topic.TopicID != (id{1}) {
					t.Errorf("the broker was sent %v", topic.TopicID)
				}
				resp.Topics = append(resp.Topics, kmsg.ProduceResponseTopic{TopicID: topic.TopicID,
					Partitions: []kmsg.ProduceResponseTopicPartition{kmsg.NewProduceResponseTopicPartition()}})
			}
			return resp
		}
		return nil
	}}
	q := kmsg.NewPtrProduceRequest()
	q.Version, q.Acks = 13, -1
	for i := range byte(3) {
		topic := kmsg.NewProduceRequestTopic()
		topic.TopicID, topic.Partitions = id{i + 1}, []kmsg.ProduceRequestTopicPartition{kmsg.NewProduceRequestTopicPartition()}
		q.Topics = append(q.Topics, topic)
	}
	resp := ask(t, rules, &filter.Client{}, b, q).(*kmsg.ProduceResponse)
	codes := ""
	for _, topic := range resp.Topics {
		codes += fmt.Sprintf("%d:%d ", topic.TopicID[0], topic.Partitions[0].ErrorCode)
	}
	if want := fmt.Sprintf("1:0 2:%d 3:%d ", topicAuthorizationFailed, unknownTopicID); codes != want {
		t.Errorf("answered %s, want %s", codes, want)
	}
}

// BenchmarkDecide measures a decision among 1,000 rules, of which one in ten is for the
// client: the first one about a name, and those that are remembered.
func BenchmarkDecide(b *testing.B) {
	var list []Permission
	for i := range 1000 {
		list = append(list, permission(fmt.Sprint("p", i), "allow",
			[]resource.TrafficSource{{Principals: []string{fmt.Sprint("User:", i%10)}}}, requests([]string{"consume"}, fmt.Sprint("t-", i, "-*"))))
	}
	rules := Compile("shop", list)
	c := &call{conn: &conn{Filter: New(Config{Rules: func() *Rules { return rules }}), client: &filter.Client{Principal: "User:9"}}}
	c.x = &filter.Exchange{}
	c.refresh("app")
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.applied.Decide(Read, Topic, "t-999-x")
		}
	})
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.refresh("app")
			c.topic(Read, "t-999-x")
		}
	})
}

// FuzzRequests feeds requests of any bytes to every handler: none panics.
func FuzzRequests(f *testing.F) {
	for key := int16(0); key <= wire.MaxKey; key++ {
		if a := apiOf(key); a != nil {
			r := kmsg.RequestForKey(key)
			r.SetVersion(a.highest)
			f.Add(key, a.highest, r.AppendTo(nil))
		}
	}
	rules := Compile("shop", []Permission{permission("a", "allow", nil, requests([]string{"consume"}, "a*"))})
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a := apiOf(key)
		if a == nil || version < 0 || version > a.highest {
			return
		}
		b := &broker{answer: func(r kmsg.Request) kmsg.Response { return r.ResponseKind() }}
		chain, err := filter.NewChain([]filter.Filter{New(Config{Rules: func() *Rules { return rules }})})
		if err != nil {
			t.Fatal(err)
		}
		c := chain.Open(filter.Info{Client: &filter.Client{}}, b).Begin(key, version, "app", false)
		_ = c.Request(body)
	})
}
