package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"penstock/node/api"
	"penstock/node/rpc"
)

// request is one request about a service.
type request struct {
	key   string
	do    string // "put", "delete", "get"
	value int    // of a put: port of the service's only endpoint
}

// outcome is the answer to a request.
type outcome struct {
	value   int  // of a get; 0: not found
	unknown bool // may have acted, or may still act
}

// register models a service as clients see it: a value that is put, deleted and
// read, each at one moment between request and answer.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[string][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(request).key
			keys[k] = append(keys[k], op)
		}
		var parts [][]porcupine.Operation
		for _, p := range keys {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		s, o, now := input.(request), output.(outcome), state.(int)
		switch s.do {
		case "put":
			return true, s.value
		case "delete":
			// perform reports "not found" as a success, too.
			return true, 0
		default:
			return o.value == now, now
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

var portOf = regexp.MustCompile(`127\.0\.0\.1:(\d+)`)

// perform sends a request to a node. sure is false if it failed and cannot have
// acted: then the request is not part of the history.
func perform(ctx context.Context, c *rpc.Client, s request) (o outcome, sure bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	switch s.do {
	case "put":
		doc := fmt.Sprintf(`{"kind":"Service","name":%q,"spec":{"endpoints":[{"address":"127.0.0.1:%d"}]}}`, s.key, s.value)
		_, err = rpc.Call[api.ApplyResult](ctx, c, api.MethodApply,
			api.ApplyRequest{Documents: [][]byte{[]byte(doc)}, Wait: api.Wait{Nodes: -1}})
	case "delete":
		_, err = rpc.Call[api.DeleteResult](ctx, c, api.MethodDelete,
			api.DeleteRequest{Kind: "Service", Name: s.key, Wait: api.Wait{Nodes: -1}})
	default:
		var r *api.GetResult
		r, err = rpc.Call[api.GetResult](ctx, c, api.MethodGet, api.GetRequest{Kind: "Service", Name: s.key})
		if err == nil {
			m := portOf.FindSubmatch(r.Documents[0].Data)
			o.value, err = strconv.Atoi(string(m[1]))
		}
	}
	var refusal *api.Error
	switch {
	case err == nil:
		return o, true
	case errors.As(err, &refusal) && refusal.Code == api.NotFound:
		return o, true
	case s.do == "get":
		return o, false
	case errors.As(err, &refusal) &&
		slices.Contains([]api.Code{
			api.NoLeader, api.NotLeader, api.Busy, api.Unavailable, api.Refused,
		}, refusal.Code):
		return o, false
	case errors.Is(err, rpc.ErrUnreachable) && !errors.Is(err, rpc.ErrLost):
		return o, false
	}
	o.unknown = true
	return o, true
}

// recordHistory runs clients on all nodes until the fault is over, and returns
// the history of their requests and answers.
func (f *cluster) recordHistory(clients int, keys []string, fault func()) []porcupine.Operation {
	f.t.Helper()
	var mu sync.Mutex
	var history []porcupine.Operation
	stop := make(chan struct{})
	var running sync.WaitGroup
	began := time.Now()
	for i := range clients {
		m := f.members[i%len(f.members)]
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), uint64(began.UnixNano()))) //nolint:gosec // no secret
			var c *rpc.Client
			defer func() {
				if c != nil {
					c.Close()
				}
			}()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
				}
				if c == nil {
					var err error
					if c, err = rpc.Dial(f.t.Context(), m.sock()); err != nil {
						c = nil
						continue
					}
				}
				s := request{
					key:   keys[random.IntN(len(keys))],
					do:    []string{"put", "put", "get", "get", "delete"}[random.IntN(5)],
					value: 1 + i*1000 + n%1000,
				}
				call := time.Since(began).Nanoseconds()
				o, sure := perform(f.t.Context(), c, s)
				end := time.Since(began).Nanoseconds()
				select {
				case <-c.Done():
					c.Close()
					c = nil
				default:
				}
				if !sure {
					continue
				}
				if o.unknown {
					end = int64(time.Hour)
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: i, Input: s, Call: call, Output: o, Return: end})
				mu.Unlock()
			}
		})
	}
	fault()
	close(stop)
	running.Wait()
	return history
}

// Whatever happens to nodes and links, the history of all clients is
// linearizable.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	histories := 5
	if long() {
		histories = 100
	}
	l := newLab(t, 3)
	f := startClusterIn(l)
	backend := l.echoOutside()
	f.members[0].apply(serviceOnAll("svc", "9100", backend))
	tr := startTraffic(f, "9100", 100)
	pause := func(d time.Duration) { <-time.After(d) }
	asked, unknown := 0, 0
	for n := range histories {
		keys := []string{fmt.Sprintf("h%d-a", n), fmt.Sprintf("h%d-b", n)}
		leader := f.waitLeader()
		at := slices.Index(f.members, leader) + 1
		history := f.recordHistory(6, keys, func() {
			pause(500 * time.Millisecond)
			switch n % 5 {
			case 0:
				tr.excuseNode(leader)
				leader.kill()
				pause(1500 * time.Millisecond)
				leader.launch()
			case 1:
				l.split([]int{at}, slices.DeleteFunc([]int{1, 2, 3}, func(h int) bool { return h == at }))
				pause(2500 * time.Millisecond)
				l.heal()
			case 2:
				l.cutOneWay(at, at%3+1)
				l.cutOneWay(at, (at+1)%3+1)
				pause(2500 * time.Millisecond)
				l.heal()
			case 3:
				l.cut(at, at%3+1)
				pause(2 * time.Second)
				l.heal()
			case 4:
				other := f.members[at%3]
				tr.excuseNode(other)
				other.kill()
				pause(time.Second)
				other.launch()
			}
			pause(500 * time.Millisecond)
		})
		f.waitSettled(3)
		for _, m := range f.members {
			tr.endExcuse(m)
		}
		for _, op := range history {
			asked++
			if op.Output.(outcome).unknown {
				unknown++
			}
		}
		switch result := porcupine.CheckOperationsTimeout(register, history, time.Minute); result {
		case porcupine.Ok:
		case porcupine.Illegal:
			for _, op := range history {
				t.Logf("%3d %12d %12d %s", op.ClientId, op.Call, op.Return, register.DescribeOperation(op.Input, op.Output))
			}
			t.Fatalf("history %d could not have been seen with one copy", n)
		default:
			t.Errorf("history %d of %d steps was not checked in time", n, len(history))
		}
	}
	tr.mustBeUnbroken()
	t.Logf("%d histories, %d steps, %d of unknown outcome", histories, asked, unknown)
	if asked < histories*50 {
		t.Errorf("%d steps in %d histories: too few to say anything", asked, histories)
	}
}
