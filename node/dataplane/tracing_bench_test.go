package dataplane

import (
	"net"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio"
	"penstock/node/nodetest"
	"penstock/node/trace"
)

// nowhere drops spans.
type nowhere struct{}

func (nowhere) Export(*trace.Span) {}

func tracerOf(sample float64) *trace.Tracer {
	t := new(trace.Tracer)
	t.Set([]*trace.Policy{{Sample: sample, Client: 1, Overall: 1, Errors: true, Slow: time.Hour, To: nowhere{}}})
	return t
}

// BenchmarkClose is what tracing does at the end of a connection, on its loop: without a
// policy, for a connection that is not in the sample, for one of a hundred that is, and for
// each. Exporting is not among it.
func BenchmarkClose(b *testing.B) {
	p := start(b, nodetest.PlainService("apps", testkit.Listen(b).Addr().String()))
	c, err := net.Dial("tcp", p.at(b, "apps"))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	testkit.WaitFor(b, "the connection", func() bool {
		return p.metric(b, `penstock_connections{listener="apps",service="apps"}`) == "1"
	})
	off, none, all := new(trace.Tracer), tracerOf(0), tracerOf(1)
	for _, v := range []struct {
		name   string
		tracer func(i int) *trace.Tracer
	}{
		{"off", func(int) *trace.Tracer { return off }},
		{"not sampled", func(int) *trace.Tracer { return none }},
		{"1 %", func(i int) *trace.Tracer {
			if i%100 == 0 {
				return all
			}
			return none
		}},
		{"100 %", func(int) *trace.Tracer { return all }},
	} {
		b.Run(v.name, func(b *testing.B) {
			done, asked := make(chan struct{}), false
			p.Engine.DrainSome(0, netio.Drained, func(c *netio.Conn) bool { // on the loop, more than once
				if asked {
					return false
				}
				asked = true
				defer close(done)
				t := c.Plan().(*plan).traffic
				before := t.tracing.tracer
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					t.tracing.tracer = v.tracer(i)
					t.traceClosed(c, netio.ClientFIN)
				}
				t.tracing.tracer = before
				return false
			})
			<-done
		})
	}
}
