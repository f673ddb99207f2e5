package wire

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// endpointsOf returns the node endpoints of a decoded response.
func endpointsOf(m message) reflect.Value {
	v := reflect.ValueOf(m).Elem()
	if f := v.FieldByName("NodeEndpoints"); f.IsValid() {
		return f
	}
	return v.FieldByName("Brokers")
}

// eachEndpointed calls do for all walkable messages with node endpoints.
func eachEndpointed(do func(key, version int16)) {
	carriers(func(key, version int16) {
		if Walkable(Response, key, version) {
			do(key, version)
		}
	})
}

// Rule 10: the length of the message was sent before its endpoints. Whatever
// length addresses get, the message keeps its own; clients get endpoints that
// should be shown, in their order, and the rest is unchanged.
func TestWalkedEndpointsKeepTheirLength(t *testing.T) {
	all, some, none := 0, 0, 0
	eachEndpointed(func(key, version int16) {
		t.Run(fmt.Sprint(Name(key), version), func(t *testing.T) {
			for seed := range uint64(100) {
				rnd := rand.New(rand.NewPCG(seed, 6))
				m, body := randomMessage(t, rnd, Response, key, version)
				hosts := map[int32]string{}
				to := func(id int32, host string, port int32) (string, int32, bool, error) {
					if _, ok := hosts[id]; !ok {
						hosts[id] = strings.Repeat("v", max(0, len(host)+int(id)%20))
					}
					return hosts[id], port + 1, id%7 != 0, nil
				}
				got, err := walk(t, rnd, Response, key, version, body, &Edits{Node: to}, 64)
				if err != nil {
					t.Fatal(err)
				}
				mapSlice(endpointsOf(m), to)
				answer := decode(t, Response, key, version, got)
				want, have := endpointsOf(m), endpointsOf(answer)
				isSubsequence(t, have, want)
				switch {
				case want.Len() == 0:
				case have.Len() == want.Len():
					all++
				case have.Len() > 0:
					some++
				default:
					none++
				}
				want.SetZero()
				have.SetZero()
				if !reflect.DeepEqual(m, answer) {
					t.Fatalf("the rest changed:\ngot  %+v\nwant %+v", answer, m)
				}
			}
		})
	})
	if all == 0 || some == 0 || none == 0 {
		t.Errorf("all endpoints fitted %d times, some %d times, none %d times: each should occur", all, some, none)
	}
}

func isSubsequence(t *testing.T, have, want reflect.Value) {
	t.Helper()
	at := 0
	for i := range have.Len() {
		for at < want.Len() && !reflect.DeepEqual(have.Index(i).Interface(), want.Index(at).Interface()) {
			at++
		}
		if at++; at > want.Len() {
			t.Fatalf("endpoint %+v is not one of %+v", have.Index(i), want)
		}
	}
}

// Every difference in length that one endpoint can cause is filled.
func TestEveryGapIsFilled(t *testing.T) {
	eachEndpointed(func(key, version int16) {
		m := newMessage(t, Response, key, version)
		long := strings.Repeat("h", 400)
		endpointsOf(m).Set(reflect.MakeSlice(endpointsOf(m).Type(), 1, 1))
		endpointsOf(m).Index(0).FieldByName("Host").SetString(long)
		body := m.AppendTo(nil)
		for n := range len(long) + 1 {
			got, err := walk(t, rand.New(rand.NewPCG(uint64(n), 7)), Response, key, version, body, &Edits{
				Node: func(int32, string, int32) (string, int32, bool, error) { return long[:n], 1, true, nil },
			}, 50)
			if err != nil {
				t.Fatal(err)
			}
			have := endpointsOf(decode(t, Response, key, version, got))
			// The gap is len(long)-n, or one more if the varint of the host's length
			// shrinks. No gap leaves the endpoint out.
			if have.Len() != 1 || have.Index(0).FieldByName("Host").Len() != n {
				t.Fatalf("%s v%d: a host of %d bytes in place of %d is left out", Name(key), version, n, len(long))
			}
		}
	})
}

// The length of a small message that has arrived whole is sent after the edit:
// addresses of any length are shown. Most messages with endpoints are small.
func TestEndpointsOfASmallMessageMayGrow(t *testing.T) {
	to := func(id int32, host string, port int32) (string, int32, bool, error) {
		return host + ".of.a.much.longer.name.example", port, true, nil
	}
	eachEndpointed(func(key, version int16) {
		for seed := range uint64(50) {
			m, body := randomMessage(t, rand.New(rand.NewPCG(seed, 10)), Response, key, version)
			if len(body) > MaxHeld {
				continue
			}
			var w Walker
			w.Init(Response, key, version, len(body), &Edits{Node: to})
			out, view, n, pass, err := w.Next(nil, append(body, "next"...))
			if err != nil || n != len(body) || pass != 0 || !w.Done() {
				t.Fatalf("%d of %d bytes, %d pass, %v", n, len(body), pass, err)
			}
			if g, known := w.Growth(); !known || len(out)+len(view) != len(body)+g {
				t.Fatalf("%d bytes became %d, expected a growth of %d", len(body), len(out)+len(view), g)
			}
			mapSlice(endpointsOf(m), to)
			plain(reflect.ValueOf(m).Elem())
			if got := decode(t, Response, key, version, append(out, view...)); !reflect.DeepEqual(got, m) {
				t.Fatalf("%s v%d:\ngot  %+v\nwant %+v", Name(key), version, got, m)
			}
		}
	})
}

// If the virtual address of a broker is too long to fit, clients see neither
// that nor the broker's own address.
func TestEndpointsThatDoNotFitAreLeftOut(t *testing.T) {
	m := kmsg.NewPtrFetchResponse()
	m.Version = 16
	b := kmsg.NewFetchResponseBroker()
	b.NodeID, b.Host, b.Port = 3, "beefy", 9092
	m.Brokers = append(m.Brokers, b)
	body := m.AppendTo(nil)
	got, err := walk(t, rand.New(rand.NewPCG(1, 1)), Response, keyFetch, 16, body, &Edits{
		Node: func(int32, string, int32) (string, int32, bool, error) { return "broker-3.t1.example", 9192, true, nil },
	}, 10)
	if err != nil || strings.Contains(string(got), "beefy") {
		t.Fatalf("%v, %q", err, got)
	}
	if have := decode(t, Response, keyFetch, 16, got).(*kmsg.FetchResponse); len(have.Brokers) != 0 || have.UnknownTags.Len() != 0 {
		t.Errorf("got %+v", have)
	}
	if len(got) != len(body) {
		t.Errorf("%d bytes became %d", len(body), len(got))
	}
}
