package etcd

import (
	"fmt"
	"strings"
	"testing"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestJSONKeys(t *testing.T) {
	k := newKeys("/svc/", JSON)
	web, ns := provider.Query{Service: "web"}, provider.Query{Service: "ns/web"}
	sink := providertest.NewSink(web, ns)
	put := func(key, value, wantService string) {
		t.Helper()
		if got := k.apply("/svc/"+key, []byte(value), false); got != wantService {
			t.Errorf("%s is of service %q, want %q", key, got, wantService)
		}
	}
	put("web/1", `{"address":"10.0.0.1:80"}`, "web")
	put("web/2", `{"address":"10.0.0.2:80","weight":0,"tags":{"v":"2"},"state":"terminating"}`, "web")
	put("ns/web/1", `{"address":"10.0.0.3:80"}`, "ns/web")
	put("web", `{"address":"10.0.0.4:80"}`, "")
	put("web/", `{"address":"10.0.0.4:80"}`, "")
	k.report(sink, []provider.Query{web, ns}, nil)
	sink.Await(t, web, "10.0.0.1:80; 10.0.0.2:80*0{v=2} terminating")
	sink.Await(t, ns, "10.0.0.3:80")

	put("web/1", `{"address":`, "web")
	k.report(sink, []provider.Query{web, ns}, map[string]bool{"web": true})
	sink.AwaitWarning(t, web, "key /svc/web/1: not {address, weight, priority, tags, state} as JSON")
	sink.Await(t, web, "10.0.0.1:80; 10.0.0.2:80*0{v=2} terminating") // the last value that could be read
	if sink.Reports() != 3 {
		t.Errorf("%d reports: a service that did not change was reported", sink.Reports())
	}

	k.apply("/svc/web/1", nil, true)
	k.apply("/svc/web/2", nil, true)
	k.report(sink, []provider.Query{web}, nil)
	sink.Await(t, web, "none")
	if len(k.values) != 1 || len(k.services) != 1 {
		t.Errorf("%d values of %d services are left", len(k.values), len(k.services))
	}
}

func TestJSONValues(t *testing.T) {
	for value, want := range map[string]string{
		`{"address":"a:1"} {}`:                  "goes on after the object",
		`{"address":"a:1","weigth":2}`:          "unknown field",
		`{"address":"a:1","weight":"2"}`:        "cannot unmarshal string",
		`{"address":"a:1","state":"gone"}`:      `state "gone" must be`,
		`{"weight":1}`:                          "address is missing",
		`[]`:                                    "cannot unmarshal array",
		``:                                      "EOF",
		`"` + strings.Repeat("x", 70_000) + `"`: "the value has 70002 bytes; the maximum is 65536",
	} {
		_, err := newKeys("/", JSON).parse("web/1", []byte(value))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %q in it", value, err, want)
		}
	}
}

func TestTiDBServersLiveWhileTheirTTLDoes(t *testing.T) {
	k := newKeys("/topology/tidb/", TiDB)
	q := provider.Query{Service: "anything"}
	sink := providertest.NewSink(q)
	apply := func(key, value string, deleted bool) {
		service := k.apply("/topology/tidb/"+key, []byte(value), deleted)
		k.report(sink, []provider.Query{q}, map[string]bool{service: true})
	}
	info := `{"version":"8.0.11-TiDB-v8.5.0","git_hash":"d13e52e","ip":"10.0.0.1","status_port":10080,"labels":{"zone":"a"}}`
	apply("10.0.0.1:4000/info", info, false)
	sink.Await(t, q, "none")
	apply("10.0.0.1:4000/ttl", "1700000000000000000", false)
	sink.Await(t, q, "10.0.0.1:4000{status_port=10080 version=8.0.11-TiDB-v8.5.0 zone=a}")
	apply("10.0.0.1:4000/ttl", "", true) // its lease ended
	sink.Await(t, q, "none")
	apply("10.0.0.1:4000/ttl", "1700000030000000000", false)
	apply("10.0.0.1:4000/info", "not JSON", false)
	sink.AwaitWarning(t, q, "key /topology/tidb/10.0.0.1:4000/info: not TiDB's topology")
	sink.Await(t, q, "10.0.0.1:4000{status_port=10080 version=8.0.11-TiDB-v8.5.0 zone=a}")
}

// Any keys and values, in any order: the lists agree with what is there.
func FuzzKeys(f *testing.F) {
	f.Add("web/1", `{"address":"10.0.0.1:80"}`, false)
	f.Add("a/b/c", `{"address":"x:1","weight":-1}`, false)
	f.Add("10.0.0.1:4000/info", `{"labels":{"a":"b"}}`, true)
	f.Add("/", "null", true)
	f.Fuzz(func(t *testing.T, key, value string, tidb bool) {
		format := JSON
		if tidb {
			format = TiDB
		}
		k := newKeys("/p/", format)
		service := k.apply("/p/"+key, []byte(value), false)
		list, fault := k.endpoints(service)
		if len(list) > 1 || len(list) == 1 && list[0].Address == "" {
			t.Errorf("one key is the endpoints %v", list)
		}
		if _, err := k.parse(key, []byte(value)); err != nil && len(k.services) > 0 && fault == nil {
			t.Errorf("the fault %v is not reported", err)
		}
		k.apply("/p/"+key, nil, true)
		if len(k.values) != 0 || len(k.services) != 0 {
			t.Errorf("something is left: %v", fmt.Sprint(k.values, k.services))
		}
	})
}
