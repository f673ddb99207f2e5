package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// String describes a request for tests.
func (r *request) String() string {
	if r == nil {
		return "nothing"
	}
	var parts []string
	add := func(key, value string) {
		if value != "" {
			parts = append(parts, key+"="+value)
		}
	}
	add("names", strings.Join(r.names, ","))
	add("version", r.version)
	add("subscribe", strings.Join(r.subscribe, ","))
	add("unsubscribe", strings.Join(r.unsubscribe, ","))
	var known []string
	for name, version := range r.known {
		known = append(known, name+":"+version)
	}
	slices.Sort(known)
	add("known", strings.Join(known, ","))
	add("nonce", r.nonce)
	add("fault", r.fault)
	return strings.Join(parts, " ")
}

// step is one request of a subscription.
type step struct {
	request *request
	want    string
}

func check(t *testing.T, steps ...step) {
	t.Helper()
	for i, s := range steps {
		if got := s.request.String(); got != s.want {
			t.Errorf("request %d: %q, want %q", i, got, s.want)
		}
	}
}

func TestStateOfTheWorld(t *testing.T) {
	s := subscription{typeURL: endpointType, known: map[string]string{}}
	accept := func(version, nonce string, names ...string) *request {
		for _, name := range names {
			s.known[name] = version
		}
		return s.answer(&response{version: version, nonce: nonce}, "")
	}
	check(t,
		step{s.subscribe(nil), "nothing"}, // it would mean everything
		step{s.subscribe([]string{"a", "b"}), "names=a,b"},
		step{s.subscribe([]string{"a", "b"}), "nothing"},
		step{accept("1", "n1", "a", "b"), "names=a,b version=1 nonce=n1"},
		step{s.subscribe([]string{"a", "c"}), "names=a,c version=1 nonce=n1"},
		step{s.answer(&response{version: "2", nonce: "n2"}, "bad"), "names=a,c version=1 nonce=n2 fault=bad"},
		step{accept("3", "n3", "c"), "names=a,c version=3 nonce=n3"},
	)
	s.restart()
	check(t,
		step{s.subscribe([]string{"a", "c"}), "names=a,c version=3"},
		step{s.subscribe(nil), "version=3"},
	)
	s.restart()
	// The version of a response does not say that the client has resources which it
	// asks for anew.
	check(t, step{s.subscribe([]string{"a"}), "names=a"})
}

func TestDelta(t *testing.T) {
	s := subscription{typeURL: endpointType, delta: true, known: map[string]string{}}
	check(t,
		step{s.subscribe(nil), "nothing"},
		step{s.subscribe([]string{"a", "b"}), "subscribe=a,b"},
	)
	s.known["a"], s.known["b"] = "1", "2"
	check(t,
		step{s.answer(&response{version: "x", nonce: "n1"}, ""), "nonce=n1"},
		step{s.answer(&response{version: "y", nonce: "n2"}, "bad"), "nonce=n2 fault=bad"},
		step{s.subscribe([]string{"b", "c"}), "subscribe=c unsubscribe=a"},
	)
	s.restart()
	check(t,
		step{s.subscribe([]string{"b", "c"}), "subscribe=b,c known=b:2"},
		step{s.subscribe([]string{"b"}), "unsubscribe=c"},
		step{s.subscribe(nil), "unsubscribe=b"},
	)
}

func TestWildcards(t *testing.T) {
	for _, delta := range []bool{false, true} {
		s := subscription{typeURL: clusterType, delta: delta, wildcard: true, known: map[string]string{}}
		check(t, step{s.subscribe(nil), ""}, step{s.subscribe(nil), "nothing"})
		s.known["a"] = "1"
		check(t, step{s.answer(&response{version: "1", nonce: "n1"}, ""), map[bool]string{false: "version=1 nonce=n1", true: "nonce=n1"}[delta]})
		s.restart()
		check(t, step{s.subscribe(nil), map[bool]string{false: "version=1", true: "known=a:1"}[delta]})
	}
}

func TestLongTextsAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	for _, r := range []response{{nonce: long}, {version: long}, {resources: []resource{{name: long}}}, {resources: []resource{{version: long}}}} {
		if err := r.check(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("of %d bytes; the maximum is %d", maxName+1, maxName)) {
			t.Error(err)
		}
	}
	fits := response{nonce: long[1:], version: long[1:]}
	if err := fits.check(); err != nil {
		t.Error(err)
	}
}
