package dataplane

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka"
	kafkasession "penstock/kafka/session"
	"penstock/netio"
	"penstock/node/accesslog"
	"penstock/node/trace"
)

// kafkaConnected exports the span of connecting to a broker, as traceConnected does.
func (t *tracing) kafkaConnected(c *netio.Conn, p *kafka.Connection) {
	policies := t.tracer.Policies()
	if len(policies) == 0 {
		return
	}
	var e ending
	e.begin(c, p.Cluster())
	e.Took = timeToConnect(&e.times, e.age)
	if !e.WantedBy(policies) {
		return
	}
	e.complete(t, c)
	e.Export(policies, e.connectSpan(&accesslog.Record{
		ID: c.ID(), Listener: c.Listener(), Service: p.Cluster(), Endpoint: p.Upstream(), Attempts: p.Attempts(),
	}, e.SampledBy(policies)))
}

// kafkaExchanged exports the span of a Produce or a Fetch. Each begins a trace: a
// connection makes too many for one, and their protocol has no place for a context.
func (t *tracing) kafkaExchanged(c *netio.Conn, p *kafka.Connection, x kafkasession.Exchange) {
	policies := t.tracer.Policies()
	if len(policies) == 0 {
		return
	}
	o := trace.Outcome{
		Listener: c.Listener(), Service: p.Cluster(), TraceID: trace.NewTraceID(), Failed: x.Error != 0, Took: timeOfExchange(&x),
	}
	if !o.WantedBy(policies) {
		return
	}
	o.Export(policies, t.exchangeSpan(c, p, &x, flagsOf(o.SampledBy(policies)), o.TraceID))
}

// timeOfExchange is what counts for a slow one. A broker may answer a Fetch as late as the
// client allows, so of that the proxy's own part counts alone, with the time in which the
// client takes the answer.
func timeOfExchange(x *kafkasession.Exchange) time.Duration {
	if x.Key == int16(kmsg.Fetch) {
		return x.Total - x.Broker
	}
	return x.Total
}

// exchangeSpan makes the span of a request to Kafka.
func (t *tracing) exchangeSpan(c *netio.Conn, p *kafka.Connection, x *kafkasession.Exchange, flags byte, id trace.ID) *trace.Span {
	now := time.Now()
	name, kind := "produce", "send"
	if x.Key == int16(kmsg.Fetch) {
		name, kind = "fetch", "receive"
	}
	s := &trace.Span{
		TraceID: id, SpanID: trace.NewSpanID(), Flags: flags, Kind: trace.Client, Name: name + " " + p.Cluster(),
		Start: now.Add(-x.Total), End: now,
	}
	if x.Sent > 0 {
		s.Events = append(s.Events, trace.Event{Name: "sent", At: s.Start.Add(x.Sent)})
		if x.Broker > 0 {
			s.Events = append(s.Events, trace.Event{Name: "answered", At: s.Start.Add(x.Sent + x.Broker)})
		}
	}
	connection := t.placeOf(trace.IDOf(c.UniqueID()), c.ID())
	s.Links = []trace.Link{{TraceID: connection.trace, SpanID: connection.span}}
	a := make(attrs, 0, 32)
	a.text("messaging.system", "kafka")
	a.text("messaging.operation.name", name)
	a.text("messaging.operation.type", kind)
	who := p.Client()
	a.text(trace.KeyKafkaClientID, who.ClientID)
	a.server(p.Upstream())
	a.text(trace.KeyListener, c.Listener())
	a.text(trace.KeyService, p.Cluster())
	a.text("penstock.kafka.broker", p.Broker())
	a = append(a, trace.Int(trace.KeyConnection, int64(c.ID())),
		trace.Int("penstock.kafka.correlation_id", int64(x.Correlation)), trace.Int("penstock.kafka.api_version", int64(x.Version)),
		trace.Int("penstock.kafka.request.size", int64(x.Request)), trace.Int("penstock.kafka.response.size", int64(x.Response)),
		trace.Float("penstock.kafka.broker.duration", x.Broker.Seconds()),
		trace.Float("penstock.kafka.proxy.duration", max(x.Total-x.Broker, 0).Seconds()))
	if x.Answered {
		a = append(a, trace.Bool("penstock.kafka.answered", true))
	}
	if x.Throttled {
		a = append(a, trace.Bool("penstock.kafka.throttled", true))
	}
	if x.Error != 0 {
		s.Error = kafkaError(x.Error)
		a.text("error.type", s.Error)
	}
	s.Attrs = a
	addClient(s, c.Peer(), c.Client(), "", who.Principal)
	return s
}

// kafkaError returns the name of an error code of Kafka, or its number.
func kafkaError(code int16) string {
	if known := kerr.TypedErrorForCode(code); known != nil && known.Code == code {
		return known.Message
	}
	return strconv.Itoa(int(code))
}
