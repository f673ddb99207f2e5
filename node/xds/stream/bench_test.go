package stream

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

// BenchmarkUpdate is one change of one endpoint for one client of 1,000 services,
// with its response and the answer to it.
func BenchmarkUpdate(b *testing.B) {
	world, list := manyServices(1000)
	now := time.Unix(0, 0)
	first, second := NewState(world.Snapshot(), now), NewState(world.Put(snapshot.Endpoint, list[500], "2").Snapshot(), now)
	for _, delta := range []bool{true, false} {
		b.Run(fmt.Sprintf("delta=%v", delta), func(b *testing.B) {
			s := subscribed(b, NewNames(), first, delta, list)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				state := []*State{second, first}[i%2]
				s.Update(state, state.View("web"), now)
				answerAll(b, s, list, now)
			}
		})
	}
}

// BenchmarkMemory reports the memory of a stream with 1,000 names, which are
// those of other streams or not.
func BenchmarkMemory(b *testing.B) {
	for _, shared := range []bool{true, false} {
		b.Run(fmt.Sprintf("shared=%v", shared), func(b *testing.B) {
			world, list := manyServices(1000)
			state, kept := NewState(world.Snapshot(), time.Unix(0, 0)), NewNames()
			const streams = 500
			sessions := make([]*Session, streams)
			before := heap()
			for i := range sessions {
				own := append([]string{}, list...)
				if !shared {
					own[0] = fmt.Sprint("own-", i)
				}
				sessions[i] = subscribed(b, kept, state, true, own)
			}
			b.ReportMetric(float64(heap()-before)/streams, "B/stream")
			runtime.KeepAlive(sessions)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers of the first have freed
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func manyServices(n int) (*snapshottest.World, []string) {
	world, list := snapshottest.New("web", "web"), make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("service-%04d", i)
		world.Put(snapshot.Endpoint, list[i], "1")
	}
	return world, list
}

// subscribed returns a session whose client has accepted these endpoints.
func subscribed(b *testing.B, kept *Names, state *State, delta bool, list []string) *Session {
	b.Helper()
	now := time.Unix(0, 0)
	s := New(Config{Delta: delta, Names: kept}, state, state.View("web"))
	r := &Request{Type: snapshot.Endpoint, Names: list}
	if delta {
		r = &Request{Type: snapshot.Endpoint, Subscribe: list}
	}
	if _, err := s.Request(r, now); err != nil {
		b.Fatal(err)
	}
	answerAll(b, s, list, now)
	return s
}

// answerAll accepts the response that is due.
func answerAll(b *testing.B, s *Session, list []string, now time.Time) {
	r, ok := s.Next(now)
	if !ok {
		b.Fatal("no response is due")
	}
	answer := &Request{Type: r.Type, Nonce: r.Nonce}
	if !s.cfg.Delta {
		answer.Version, answer.Names = r.Version, list
	}
	if result, err := s.Request(answer, now); err != nil || result != Accepted {
		b.Fatal(result, err)
	}
}
