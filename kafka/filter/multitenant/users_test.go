package multitenant

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// answering records the filter's answers.
type answering struct {
	quiet
	got kmsg.Response
}

func (a *answering) Answer(_ *filter.Exchange, r kmsg.Response) { a.got = r }

// ask sends a request through a tenant's filter, and returns the filter's
// answer or the request for the broker.
func ask(t *testing.T, ten *tenant, r kmsg.Request) (answer kmsg.Response, sent kmsg.Request, x *filter.Exchange) {
	t.Helper()
	a := &answering{quiet: quiet{t}}
	exchange := filter.NewExchange(r.Key(), r.GetVersion(), "", a)
	m := filter.NewMessage(filter.Request, r.Key(), r.GetVersion(), r.AppendTo(nil))
	if err := ten.Open(filter.Info{}).Request(&exchange, &m); err != nil {
		t.Fatal(err)
	}
	sent = kmsg.RequestForKey(r.Key())
	sent.SetVersion(r.GetVersion())
	if err := sent.ReadFrom(m.Body()); err != nil {
		t.Fatal(err)
	}
	return a.got, sent, &exchange
}

func users(names ...string) *kmsg.DescribeUserSCRAMCredentialsRequest {
	r := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	for _, name := range names {
		r.Users = append(r.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: name})
	}
	return r
}

// If users belong to the cluster, a tenant has no users and no quotas.
func TestTenantWithoutItsOwnUsers(t *testing.T) {
	ten := newTenant(t, "z4de")
	answer, _, _ := ask(t, ten, users())
	if r, ok := answer.(*kmsg.DescribeUserSCRAMCredentialsResponse); !ok || r.ErrorCode != 0 || len(r.Results) != 0 {
		t.Errorf("all users are %+v", answer)
	}
	answer, _, _ = ask(t, ten, users("a", "b", "a"))
	var said []string
	for _, x := range answer.(*kmsg.DescribeUserSCRAMCredentialsResponse).Results {
		said = append(said, fmt.Sprint(x.User, " ", x.ErrorCode))
	}
	if got := fmt.Sprint(said); got != "[a 92 b 91]" {
		t.Errorf("some users are %s", got)
	}
	r := kmsg.NewPtrDescribeClientQuotasResponse()
	r.Entries = []kmsg.DescribeClientQuotasResponseEntry{{Entity: []kmsg.DescribeClientQuotasResponseEntryEntity{{Type: "user",
		Name: kmsg.StringPtr("z4de-a")}}}}
	c := &call{conn: ten.Open(filter.Info{}).(*conn)}
	if err := c.describeQuotasResponse(r); err != nil || len(r.Entries) > 0 {
		t.Errorf("the quotas are %+v, %v", r.Entries, err)
	}
}

// If users have the tenant's prefix, it sees exactly those.
func TestTenantWithItsOwnUsers(t *testing.T) {
	ten := newTenant(t, "z4de")
	ten.principals = true
	answer, sent, x := ask(t, ten, users("a"))
	if name := sent.(*kmsg.DescribeUserSCRAMCredentialsRequest).Users[0].Name; answer != nil || name != "z4de-a" {
		t.Errorf("the broker is asked for %q, the answer is %v", name, answer)
	}
	r := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	for _, name := range []string{"z4de-a", "other-a", "admin"} {
		r.Results = append(r.Results, kmsg.DescribeUserSCRAMCredentialsResponseResult{User: name})
	}
	c := &call{conn: ten.Open(filter.Info{}).(*conn), x: x}
	if err := c.describeUsersResponse(r); err != nil || len(r.Results) != 1 || r.Results[0].User != "a" {
		t.Errorf("the users are %+v, %v", r.Results, err)
	}
	q := kmsg.NewPtrDescribeClientQuotasResponse()
	for _, name := range []*string{kmsg.StringPtr("z4de-a"), kmsg.StringPtr("other-a"), nil} {
		q.Entries = append(q.Entries, kmsg.DescribeClientQuotasResponseEntry{
			Entity: []kmsg.DescribeClientQuotasResponseEntryEntity{{Type: "client-id", Name: kmsg.StringPtr("c")}, {Type: "user", Name: name}},
		})
	}
	q.Entries = append(q.Entries,
		kmsg.DescribeClientQuotasResponseEntry{Entity: []kmsg.DescribeClientQuotasResponseEntryEntity{{Type: "client-id"}}})
	if err := c.describeQuotasResponse(q); err != nil || len(q.Entries) != 1 || *q.Entries[0].Entity[1].Name != "a" {
		t.Errorf("the quotas are %+v, %v", q.Entries, err)
	}
}

// A tenant may remove a throttle from a broker, which has no effect, and may
// change nothing else.
func TestRemovingBrokerThrottlesIsANoOp(t *testing.T) {
	ten := newTenant(t, "z4de")
	for name, c := range map[string]struct {
		op   kmsg.IncrementalAlterConfigOp
		code int16
	}{
		"leader.replication.throttled.rate":   {kmsg.IncrementalAlterConfigOpDelete, 0},
		"follower.replication.throttled.rate": {kmsg.IncrementalAlterConfigOpSet, clusterAuthorizationFailed},
		"log.retention.ms":                    {kmsg.IncrementalAlterConfigOpDelete, clusterAuthorizationFailed},
	} {
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.Version = 1
		r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
			ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1",
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Op: c.op, Value: kmsg.StringPtr("1")}},
		}}
		_, sent, x := ask(t, ten, r)
		if n := len(sent.(*kmsg.IncrementalAlterConfigsRequest).Resources); n != 0 {
			t.Errorf("%s: %d brokers are changed", name, n)
		}
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		if err := (&call{conn: ten.Open(filter.Info{}).(*conn), x: x}).incrementalConfigsResponse(resp); err != nil {
			t.Fatal(err)
		}
		if len(resp.Resources) != 1 || resp.Resources[0].ErrorCode != c.code {
			t.Errorf("%s: %+v, want the error %d", name, resp.Resources, c.code)
		}
	}
}
