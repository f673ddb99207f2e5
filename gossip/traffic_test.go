package gossip

import (
	"fmt"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// BenchmarkIdle measures what one of five idle nodes sends with the default
// timing, and how long until all members see a death. With -short it measures
// two seconds of each instead of a minute.
//
//	go test ./gossip -run - -bench Idle -benchtime 1x
func BenchmarkIdle(b *testing.B) {
	var all []*Gossip
	defer func() {
		for _, g := range all {
			g.Close()
		}
	}()
	id := func(i int) string { return fmt.Sprintf("%032x", i) }
	for i := range 5 {
		g, err := Open(Config{ID: id(i), Bind: fmt.Sprintf("127.0.0.%d:0", i+1), Label: id(99), Keys: [][]byte{key(1)},
			Meta: Meta{Name: "node-" + id(i)[:4], Cluster: "10.0.0.1:7001", HTTP: "10.0.0.1:8080", Version: "v1.2.3", Zone: "zone-a"}})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, g)
		if i > 0 {
			if _, err := g.Join(b.Context(), []string{all[0].Addr()}); err != nil {
				b.Fatal(err)
			}
		}
		if err := g.SetFacts(make([]byte, 300), false); err != nil {
			b.Fatal(err)
		}
	}
	settle, span := 10*time.Second, 60*time.Second
	if testing.Short() {
		settle, span = time.Second, 2*time.Second
	}
	for b.Loop() {
		<-time.After(settle)
		measure := func(what string) {
			before := sent(all)
			<-time.After(span)
			b.ReportMetric(float64(sent(all)-before)/span.Seconds()/5, what)
		}
		measure("idle-B/s/node")
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { // all nodes change their facts every second
			defer close(done)
			for i := byte(1); ; i++ {
				for _, g := range all {
					_ = g.SetFacts(append(make([]byte, 299), i), false)
				}
				select {
				case <-time.After(time.Second):
				case <-stop:
					return
				}
			}
		}()
		measure("facts-B/s/node")
		close(stop)
		<-done
		begun := time.Now()
		all[4].Close()
		for _, g := range all[:4] {
			testkit.Poll(30*time.Second, func() bool {
				for _, m := range g.Members() {
					if m.ID == id(4) {
						return m.State == Dead
					}
				}
				return false
			})
		}
		b.ReportMetric(time.Since(begun).Seconds(), "dead-s")
	}
}

func sent(all []*Gossip) (n int64) {
	for _, g := range all {
		n += g.transport.sent.Load()
	}
	return n
}
