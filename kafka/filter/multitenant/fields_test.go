package multitenant

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// names are the fields of requests and responses, by their own name or that of
// their list, that hold names of a tenant's objects.
var names = []string{
	"Topic", "SourceTopics", "RepartitionSinkTopics", "SinkTopic", "TopicNames", "SubscribedTopicNames", "SubscribedTopics",
	"Group", "GroupID", "Groups", "GroupIDs",
	"TransactionalID", "TransactionalIDs", "TransactionID", "CoordinatorKey", "CoordinatorKeys", "Key", "ResourceName",
}

// fill sets every field of a message: one element in each list, name in each
// field of names, and a non-zero value in all others.
func fill(v reflect.Value, field, name string, topicID id) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), field, name, topicID)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte{1})
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), field, name, topicID)
	case reflect.Array:
		v.Set(reflect.ValueOf(topicID))
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Name != "Version" && f.Name != "UnknownTags" {
				fill(v.Field(i), f.Name, name, topicID)
			}
		}
	case reflect.String:
		v.SetString("other")
		if slices.Contains(names, field) {
			v.SetString(name)
		}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(2) // a topic, if the field is a resource type
		if field == "ResourcePatternType" {
			v.SetInt(int64(kmsg.ACLResourcePatternTypeLiteral))
		}
	}
}

// texts lists the fields of a message that hold names, with their values.
func texts(v reflect.Value, field, path string, found map[string]string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			texts(v.Elem(), field, path, found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			texts(v.Index(i), field, path, found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				texts(v.Field(i), f.Name, path+"."+f.Name, found)
			}
		}
	case reflect.String:
		setting := strings.HasSuffix(path, "Configs.Key") || strings.HasSuffix(path, "ClientTags.Key")
		if slices.Contains(names, field) && !setting {
			found[path] = v.String()
		}
	}
}

// quiet fails the test if the filter answers or drops a request.
type quiet struct{ t *testing.T }

func (q quiet) Answer(*filter.Exchange, kmsg.Response) { q.t.Error("answered") }
func (q quiet) Drop(*filter.Exchange)                  { q.t.Error("dropped") }
func (q quiet) Ask(*filter.Exchange, kmsg.Request, func(kmsg.Response, error) error) {
	q.t.Error("asked")
}

func newTenant(t *testing.T, key string) *tenant {
	t.Helper()
	f, err := (&Config{TenantKey: key}).Provision(filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return f.(*tenant)
}

// opened returns a connection that knows the session ID set by fill.
func opened(ten *tenant) filter.Conn {
	c := ten.Open(filter.Info{})
	c.(*conn).recordSession(2)
	return c
}

var someID = id{1, 2, 3}

// everyVersion calls do for each API and version offered to tenants, except for
// APIs that are never forwarded.
func everyVersion(t *testing.T, ten *tenant, do func(key, version int16)) {
	t.Helper()
	n := 0
	for key := range int16(wire.MaxKey + 1) {
		least, most, ok := wire.Known(key)
		if !ok || key == int16(kmsg.DescribeClientQuotas) || key == int16(kmsg.DescribeUserSCRAMCredentials) {
			continue // users_test.go
		}
		offered := ten.Versions(key, filter.Range{Min: least, Max: most})
		for v := offered.Min; v <= offered.Max; v++ {
			n++
			do(key, v)
		}
	}
	if n < 150 {
		t.Fatalf("only %d API versions were checked", n)
	}
}

// A name field without the prefix would refer to another tenant's object. This
// test finds fields that a later kmsg adds.
func TestEveryNameInARequestGetsThePrefix(t *testing.T) {
	ten := newTenant(t, "z4de")
	ten.ids.learn(someID)
	everyVersion(t, ten, func(key, version int16) {
		if ten.Wants(filter.Request, key, version) == filter.Walk {
			return // covered by the tests of wire
		}
		r := kmsg.RequestForKey(key)
		fill(reflect.ValueOf(r).Elem(), "", "orders", someID)
		r.SetVersion(version)
		m := filter.NewMessage(filter.Request, key, version, r.AppendTo(nil))
		if ten.Wants(filter.Request, key, version) == filter.Whole {
			x := filter.NewExchange(key, version, "", quiet{t})
			if err := opened(ten).Request(&x, &m); err != nil {
				t.Errorf("%s v%d: %v", wire.Name(key), version, err)
				return
			}
		}
		got := kmsg.RequestForKey(key)
		got.SetVersion(version)
		if err := got.ReadFrom(m.Body()); err != nil {
			t.Errorf("%s v%d: %v", wire.Name(key), version, err)
			return
		}
		found := map[string]string{}
		texts(reflect.ValueOf(got), "", wire.Name(key), found)
		for path, value := range found {
			if value != "" && value != "z4de-orders" {
				t.Errorf("%s v%d: %s is %q", wire.Name(key), version, path, value)
			}
		}
	})
}

// The same for responses, with names of the tenant and of others.
func TestNoNameInAResponseKeepsThePrefix(t *testing.T) {
	ten := newTenant(t, "z4de")
	ten.ids.learn(someID)
	for _, name := range []string{"z4de-orders", "other-orders"} {
		everyVersion(t, ten, func(key, version int16) {
			if ten.Wants(filter.Response, key, version) != filter.Whole {
				return
			}
			r := kmsg.ResponseForKey(key)
			fill(reflect.ValueOf(r).Elem(), "", name, someID)
			r.SetVersion(version)
			m := filter.NewMessage(filter.Response, key, version, r.AppendTo(nil))
			x := filter.NewExchange(key, version, "", quiet{t})
			if key == int16(kmsg.DeleteACLs) {
				x.State = expandedCounts{1}
			}
			what := fmt.Sprintf("%s v%d", wire.Name(key), version)
			if err := ten.Open(filter.Info{}).Response(&x, &m); err != nil {
				if strings.HasPrefix(name, ten.prefix) {
					t.Errorf("%s: %v", what, err)
				}
				return // closing is safe, too
			}
			got := kmsg.ResponseForKey(key)
			got.SetVersion(version)
			if err := got.ReadFrom(m.Body()); err != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			found := map[string]string{}
			texts(reflect.ValueOf(got), "", wire.Name(key), found)
			for path, value := range found {
				if value != "" && value != "orders" {
					t.Errorf("%s: %s is %q", what, path, value)
				}
			}
			if !strings.HasPrefix(name, ten.prefix) && len(found) > 0 {
				for path, value := range found {
					if value != "" {
						t.Errorf("%s shows another's %s as %q", what, path, value)
					}
				}
			}
		})
	}
}

func TestClusterWideAPIsAreHidden(t *testing.T) {
	ten := newTenant(t, "z4de")
	for _, name := range []string{
		"AlterClientQuotas", "AlterUserSCRAMCredentials",
		"CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
		"UpdateFeatures", "DescribeQuorum", "WriteTxnMarkers", "UnregisterBroker",
	} {
		found := false
		for key := range int16(kmsg.MaxKey + 1) {
			if kmsg.NameForKey(key) == name {
				found = true
				if r := ten.Versions(key, filter.Range{Min: 0, Max: 10}); r.Min <= r.Max {
					t.Errorf("%s is offered to tenants: %v", name, r)
				}
			}
		}
		if !found {
			t.Errorf("there is no API %s", name)
		}
	}
}

// Rule 13: what the broker would evaluate over the names of all tenants is not
// offered, or is translated (expressions_test.go).
func TestNoRegularExpressionReachesTheBroker(t *testing.T) {
	ten := newTenant(t, "z4de")
	for key, most := range map[int16]int16{int16(kmsg.ConsumerGroupHeartbeat): 1, int16(kmsg.ListTransactions): 1} {
		if r := ten.Versions(key, filter.Range{Min: 0, Max: 5}); r.Max != most {
			t.Errorf("%s up to v%d, want v%d", wire.Name(key), r.Max, most)
		}
	}
}
