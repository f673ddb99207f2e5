package consul

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// agent stands in for Consul: it serves /v1/health/service/NAME as the
// documentation of the HTTP API describes it, with blocking queries, filters by
// tag, ACLs and consistency. TestTheStandInAnswersAsDocumented holds it to the
// documented shape.
type agent struct {
	mu         sync.Mutex
	index      uint64
	services   map[string][]entry
	changed    chan struct{} // closed at each change
	token      string        // the only one that may read; "": ACLs are off
	filtered   bool          // the token may not see all instances
	leaderless bool
	requests   []*http.Request
	// instead answers a request, unless it returns false.
	instead func(w http.ResponseWriter, r *http.Request, n int) bool
}

// entry is an instance in the documented shape.
type entry struct {
	Node struct {
		ID, Node, Address, Datacenter string
		TaggedAddresses, Meta         map[string]string
	}
	Service struct {
		ID, Service     string
		Tags            []string
		Address         string
		TaggedAddresses map[string]taggedAddress
		Meta            map[string]string
		Port            int
		Weights         struct{ Passing, Warning int }
		Namespace       string
		Locality        *struct{ Region, Zone string } `json:",omitempty"`
	}
	Checks []entryCheck
}

type taggedAddress struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
}

type entryCheck struct {
	Node, CheckID, Name, Status, Notes, Output, ServiceID, ServiceName string
	ServiceTags                                                        []string
	Namespace                                                          string
}

func newAgent() *agent {
	return &agent{index: 7, services: map[string][]entry{}, changed: make(chan struct{})}
}

// entryOf returns an instance with a passing check.
func entryOf(address string, port int, tags ...string) entry {
	var e entry
	e.Node.Node, e.Node.Address, e.Node.Datacenter = "n1", "10.9.9.9", "dc1"
	e.Service.Address, e.Service.Port, e.Service.Tags = address, port, tags
	e.Service.Weights.Passing, e.Service.Weights.Warning = 1, 1
	e.Checks = []entryCheck{{Node: "n1", CheckID: "serfHealth", Status: "passing"}}
	return e
}

// set replaces the instances of a service, at a new index.
func (a *agent) set(service string, entries ...entry) {
	a.change(func() {
		a.index += 10
		a.services[service] = entries
	})
}

// change changes the agent and wakes the queries that block.
func (a *agent) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

var tagTerm = regexp.MustCompile(`^"([^"]+)" in Service\.Tags$`)

// ServeHTTP implements http.Handler.
func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	n, instead, token := len(a.requests), a.instead, a.token
	a.mu.Unlock()
	if instead != nil && instead(w, r, n) {
		return
	}
	service, ok := strings.CutPrefix(r.URL.Path, "/v1/health/service/")
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case token != "" && r.Header.Get("X-Consul-Token") != token:
		http.Error(w, "ACL not found", http.StatusForbidden)
		return
	}
	if !a.block(r) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []entry{}
	for _, e := range a.services[service] {
		all := true
		for term := range strings.SplitSeq(r.FormValue("filter"), " and ") {
			if m := tagTerm.FindStringSubmatch(term); m != nil {
				all = all && slices.Contains(e.Service.Tags, m[1])
			} else if term != "" {
				http.Error(w, "Failed to create boolean expression evaluator", http.StatusBadRequest)
				return
			}
		}
		if all {
			list = append(list, e)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Consul-Index", strconv.FormatUint(a.index, 10))
	w.Header().Set("X-Consul-Knownleader", strconv.FormatBool(!a.leaderless))
	w.Header().Set("X-Consul-Lastcontact", "0")
	if a.filtered {
		w.Header().Set("X-Consul-Results-Filtered-By-ACLs", "true")
	}
	json.NewEncoder(w).Encode(list)
}

// block waits until the index is above that of the request, or its wait is over,
// and returns false if the client went.
func (a *agent) block(r *http.Request) bool {
	index, _ := strconv.ParseUint(r.FormValue("index"), 10, 64)
	if index == 0 {
		return true
	}
	wait, err := time.ParseDuration(r.FormValue("wait"))
	if err != nil {
		wait = 5 * time.Minute
	}
	wait = min(wait, 10*time.Minute)
	over := time.After(wait + wait/16)
	for {
		a.mu.Lock()
		answers, changed := a.index > index, a.changed
		a.mu.Unlock()
		if answers {
			return true
		}
		select {
		case <-changed:
		case <-over:
			return true
		case <-r.Context().Done():
			return false
		}
	}
}

// sample has the documented shape of an answer, field by field.
const sample = `[
  {
    "Node": {
      "ID": "8f0d1c52-3b1e-4a55-9a0e-2f1c6d1f7f11",
      "Node": "rack1-7",
      "Address": "10.1.10.12",
      "Datacenter": "dc1",
      "TaggedAddresses": {"lan": "10.1.10.12", "wan": "198.51.100.12"},
      "Meta": {"instance_type": "large"}
    },
    "Service": {
      "ID": "redis-1",
      "Service": "redis",
      "Tags": ["primary"],
      "Address": "10.1.10.13",
      "TaggedAddresses": {
        "lan": {"address": "10.1.10.13", "port": 8000},
        "wan": {"address": "198.51.100.2", "port": 80}
      },
      "Meta": {"redis_version": "4.0"},
      "Port": 8000,
      "Weights": {"Passing": 10, "Warning": 1},
      "Namespace": "default"
    },
    "Checks": [
      {
        "Node": "rack1-7",
        "CheckID": "service:redis",
        "Name": "Service 'redis' check",
        "Status": "passing",
        "Notes": "",
        "Output": "",
        "ServiceID": "redis-1",
        "ServiceName": "redis",
        "ServiceTags": ["primary"],
        "Namespace": "default"
      },
      {
        "Node": "rack1-7",
        "CheckID": "serfHealth",
        "Name": "Serf Health Status",
        "Status": "passing",
        "Notes": "",
        "Output": "",
        "ServiceID": "",
        "ServiceName": "",
        "ServiceTags": [],
        "Namespace": "default"
      }
    ]
  }
]`

// sampleEntry is the instance of sample.
func sampleEntry() entry {
	var e entry
	e.Node.ID, e.Node.Node, e.Node.Address, e.Node.Datacenter = "8f0d1c52-3b1e-4a55-9a0e-2f1c6d1f7f11", "rack1-7", "10.1.10.12", "dc1"
	e.Node.TaggedAddresses = map[string]string{"lan": "10.1.10.12", "wan": "198.51.100.12"}
	e.Node.Meta = map[string]string{"instance_type": "large"}
	e.Service.ID, e.Service.Service, e.Service.Tags, e.Service.Address = "redis-1", "redis", []string{"primary"}, "10.1.10.13"
	e.Service.TaggedAddresses = map[string]taggedAddress{"lan": {"10.1.10.13", 8000}, "wan": {"198.51.100.2", 80}}
	e.Service.Meta = map[string]string{"redis_version": "4.0"}
	e.Service.Port, e.Service.Namespace = 8000, "default"
	e.Service.Weights.Passing, e.Service.Weights.Warning = 10, 1
	e.Checks = []entryCheck{
		{
			Node: "rack1-7", CheckID: "service:redis", Name: "Service 'redis' check", Status: "passing",
			ServiceID: "redis-1", ServiceName: "redis", ServiceTags: []string{"primary"}, Namespace: "default",
		},
		{Node: "rack1-7", CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing", ServiceTags: []string{}, Namespace: "default"},
	}
	return e
}

func TestTheStandInAnswersAsDocumented(t *testing.T) {
	var want, got any
	if err := json.Unmarshal([]byte(sample), &want); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]entry{sampleEntry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	compare(t, "", got, want)
}

// compare compares JSON values field by field.
func compare(t *testing.T, path string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for name := range g {
			if _, ok := want[name]; !ok {
				t.Errorf("%s/%s is not documented", path, name)
			}
		}
		for name := range want {
			compare(t, path+"/"+name, g[name], want[name])
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(want) {
			t.Errorf("%s has %d elements, documented are %d", path, len(g), len(want))
			return
		}
		for i := range want {
			compare(t, path+"/"+strconv.Itoa(i), g[i], want[i])
		}
	default:
		if got != want {
			t.Errorf("%s is %v, documented is %v", path, got, want)
		}
	}
}
