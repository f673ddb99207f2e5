package multitenant

import (
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// lists visits the lists of a message with their paths.
func lists(v reflect.Value, path string, visit func(path string, list reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			lists(v.Elem(), path, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "UnknownTags" {
				lists(v.Field(i), path+"."+f.Name, visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			lists(v.Index(i), path, visit)
		}
		visit(path, v)
	}
}

// passing returns a message after the filter, decoded; nil if the filter does
// not read it whole or closes the connection.
func passing(t *testing.T, ten *tenant, d filter.Direction, key, version int16, body []byte) any {
	x := filter.NewExchange(key, version, "", quiet{t})
	m := filter.NewMessage(d, key, version, body)
	if ten.Wants(d, key, version) != filter.Whole {
		return nil
	}
	c := opened(ten)
	if d == filter.Request {
		r := kmsg.RequestForKey(key)
		r.SetVersion(version)
		if c.Request(&x, &m) != nil || r.ReadFrom(m.Body()) != nil {
			return nil
		}
		return r
	}
	if key == int16(kmsg.DeleteACLs) {
		x.State = expandedCounts{1}
	}
	r := kmsg.ResponseForKey(key)
	r.SetVersion(version)
	if c.Response(&x, &m) != nil || r.ReadFrom(m.Body()) != nil {
		return nil
	}
	return r
}

// A null list differs from an empty one: a null list of topics often means all
// topics, and in an answer that something is unknown.
func TestNullListsStayNull(t *testing.T) {
	ten := newTenant(t, "z4de")
	ten.ids.learn(someID)
	tried := 0
	everyVersion(t, ten, func(key, version int16) {
		for _, d := range []filter.Direction{filter.Request, filter.Response} {
			make1 := func() (v reflect.Value, encode func() []byte) {
				if d == filter.Request {
					r := kmsg.RequestForKey(key)
					fill(reflect.ValueOf(r).Elem(), "", "orders", someID)
					r.SetVersion(version)
					return reflect.ValueOf(r), func() []byte { return r.AppendTo(nil) }
				}
				r := kmsg.ResponseForKey(key)
				fill(reflect.ValueOf(r).Elem(), "", "z4de-orders", someID)
				r.SetVersion(version)
				return reflect.ValueOf(r), func() []byte { return r.AppendTo(nil) }
			}
			var paths []string
			v, _ := make1()
			lists(v, "", func(path string, _ reflect.Value) { paths = append(paths, path) })
			for _, path := range paths {
				if key == int16(kmsg.ElectLeaders) && path == ".Topics" {
					continue // a null list becomes the list of the tenant's topics
				}
				for _, list := range []func(reflect.Type) reflect.Value{reflect.Zero,
					func(of reflect.Type) reflect.Value { return reflect.MakeSlice(of, 0, 0) }} {
					before, encode := make1()
					lists(before, "", func(at string, v reflect.Value) {
						if at == path {
							v.Set(list(v.Type()))
						}
					})
					body := encode()
					// Compare the encoded forms: many lists cannot be null.
					was, is := map[string]bool{}, map[string]bool{}
					decoded := reflect.New(before.Type().Elem())
					decoded.Interface().(interface{ SetVersion(v int16) }).SetVersion(version)
					if err := decoded.Interface().(interface{ ReadFrom(b []byte) error }).ReadFrom(body); err != nil {
						t.Fatal(err)
					}
					lists(decoded, "", func(at string, v reflect.Value) { was[at] = v.IsNil() })
					after := passing(t, ten, d, key, version, body)
					if after == nil {
						continue
					}
					lists(reflect.ValueOf(after), "", func(at string, v reflect.Value) { is[at] = v.IsNil() })
					if tried++; was[path] != is[path] {
						t.Errorf("%s v%d, direction %d: %s was null: %v, is: %v", wire.Name(key), version, d, path, was[path], is[path])
					}
				}
			}
		}
	})
	if tried < 1000 {
		t.Errorf("only %d lists were checked", tried)
	}
}
