package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"penstock/routing/provider"
)

// Some control planes answer a refusal by sending the same again at once. After
// nackBurst refusals a session waits, so that there is one in nackInterval.
const (
	nackInterval = time.Second
	nackBurst    = 5
)

// maxQueue is how many requests may wait to be sent on a stream.
const maxQueue = 1000

// errNotReading is why a session ends whose requests are not read.
var errNotReading = errors.New("it does not read requests")

// event is what a stream has received: a response, or the error that ended it.
type event struct {
	stream   *stream
	response *response
	err      error
}

// session is one connection of a source. All its state, and that of the source,
// belongs to the goroutine of run. Two more for each stream send and receive, so
// that a control plane which reads no requests until its responses are read
// cannot come to a standstill.
type session struct {
	*Source
	ctx    context.Context
	cancel context.CancelCauseFunc
	sink   provider.Sink
	conn   *grpc.ClientConn

	streams    map[string]*stream // by method
	goroutines sync.WaitGroup
	events     chan event
	nacks      *rate.Limiter
	timer      *time.Timer // for the next answer that is due

	queries  map[string][]provider.Query // by cluster
	wanting  map[string][]provider.Query // by EDS resource
	services map[string]string           // the EDS resource of each cluster in queries
	// clustersDue is when CDS has to have answered; zero: no longer awaited.
	clustersDue time.Time
	// edsAnswers and cdsAnswers are whether there was a response on this
	// connection. unasked is the type of one that nobody asked for.
	edsAnswers, cdsAnswers bool
	unasked                string
	// nameless is why a resource of unknown name was refused, by its type.
	nameless map[string]error
}

func newSession(ctx context.Context, source *Source, sink provider.Sink, conn *grpc.ClientConn) *session {
	s := &session{
		Source: source, sink: sink, conn: conn,
		streams: map[string]*stream{}, events: make(chan event),
		nacks:    rate.NewLimiter(rate.Every(nackInterval), nackBurst),
		nameless: map[string]error{},
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.eds.restart()
	s.cds.restart()
	for _, a := range s.assignments {
		a.pending, a.due = true, time.Time{}
	}
	return s
}

// close ends the streams.
func (s *session) close() {
	s.cancel(nil)
	s.goroutines.Wait()
}

// run answers queries until there are none, or an error ends the session.
func (s *session) run() error {
	s.timer = time.NewTimer(s.cfg.Timeout)
	defer s.timer.Stop()
	alive := time.NewTicker(s.cfg.KeepAlive) // gRPC ends a stream whose connection does not answer
	defer alive.Stop()
	queries, replaced := s.sink.Wanted()
	err := s.want(queries)
	for err == nil {
		select {
		case <-s.ctx.Done():
			err = s.ctx.Err()
		case <-replaced:
			if queries, replaced = s.sink.Wanted(); len(queries) == 0 {
				return nil
			}
			err = s.want(queries)
		case e := <-s.events:
			if err = e.err; err == nil {
				err = s.handle(e)
			}
		case <-s.timer.C:
			err = s.expire(time.Now())
		case <-alive.C:
			s.confirm()
		}
	}
	// What a stream says of its end matters less than why it was ended here.
	return s.explain(cmp.Or(context.Cause(s.ctx), err))
}

// want replaces the queries.
func (s *session) want(queries []provider.Query) error {
	s.queries = make(map[string][]provider.Query, len(queries))
	for _, q := range queries {
		if err := checkQuery(q); err != nil {
			s.sink.Failed(q, err)
			continue
		}
		s.queries[q.Service] = append(s.queries[q.Service], q)
	}
	maps.DeleteFunc(s.clusters, func(name string, c cluster) bool { return c.removed && s.queries[name] == nil })
	if s.cfg.Clusters {
		if r := s.cds.subscribe(nil); r != nil {
			if err := s.send(r); err != nil {
				return err
			}
			s.clustersDue = time.Now().Add(s.cfg.Timeout)
		}
	}
	s.services = nil // every query may be new to the sink, also one that was there before
	return s.resolve()
}

func checkQuery(q provider.Query) error {
	switch {
	case q.Service == "" || q.Service == "*":
		return fmt.Errorf("service %q: the name of one cluster is required", q.Service)
	case !utf8.ValidString(q.Service):
		return fmt.Errorf("service %q is not UTF-8", q.Service)
	case len(q.Service) > maxName:
		return fmt.Errorf("service %.40q... has %d bytes; the maximum is %d", q.Service, len(q.Service), maxName)
	case q.Port != "":
		return fmt.Errorf("port %q: endpoints of xDS have their ports; leave it out", q.Port)
	}
	return nil
}

// resolve finds the EDS resource of each cluster and subscribes to them. Clusters
// that have another resource than before get what is known of it.
func (s *session) resolve() error {
	before := s.services
	s.services = make(map[string]string, len(s.queries))
	s.wanting = make(map[string][]provider.Query, len(s.queries))
	for name, queries := range s.queries {
		c, listed := cluster{service: name}, true
		if s.cfg.Clusters {
			c, listed = s.clusters[name]
		}
		switch {
		case !listed && s.clustersDue.IsZero():
			s.fail(queries, s.unlisted(name))
		case c.removed:
			s.report(queries, nil)
		case c.err != nil:
			s.fail(queries, c.err)
		}
		if c.service != "" {
			s.services[name] = c.service
			s.wanting[c.service] = append(s.wanting[c.service], queries...)
		}
	}
	names := slices.Sorted(maps.Keys(s.wanting))
	maps.DeleteFunc(s.assignments, func(name string, _ *assignment) bool { return s.wanting[name] == nil })
	for _, name := range names {
		if s.assignments[name] == nil {
			s.assignments[name] = &assignment{pending: true}
		}
	}
	if r := s.eds.subscribe(names); r != nil {
		if err := s.send(r); err != nil {
			return err
		}
	}
	due := time.Now().Add(s.cfg.Timeout)
	for _, a := range s.assignments {
		if a.pending && a.due.IsZero() {
			a.due = due
		}
	}
	s.schedule()
	for name, service := range s.services {
		if before[name] != service {
			s.deliver(service, s.queries[name])
		}
	}
	return nil
}

// schedule sets the timer for the next answer that is due.
func (s *session) schedule() {
	next := s.clustersDue
	for _, a := range s.assignments {
		if a.pending && (next.IsZero() || a.due.Before(next)) {
			next = a.due
		}
	}
	if !next.IsZero() {
		s.timer.Reset(time.Until(next))
	}
}

// expire gives up waiting for what is due. A resource known from an earlier
// stream is taken for unchanged then: the control plane was told its version, and
// need not send it again.
func (s *session) expire(now time.Time) error {
	for name, a := range s.assignments {
		if !a.pending || now.Before(a.due) {
			continue
		}
		a.pending = false
		if !a.known {
			a.err = s.silence(name)
		}
		s.deliver(name, s.wanting[name])
	}
	if !s.clustersDue.IsZero() && !now.Before(s.clustersDue) {
		s.clustersDue = time.Time{}
		return s.resolve()
	}
	s.schedule()
	return nil
}

// deliver tells queries what is known of a resource.
func (s *session) deliver(name string, queries []provider.Query) {
	switch a := s.assignments[name]; {
	case a.err != nil:
		s.fail(queries, a.err)
	case a.known && !a.pending:
		s.report(queries, a.endpoints)
	}
}

// report reports endpoints. The sink keeps what it is given, so it gets copies.
func (s *session) report(queries []provider.Query, endpoints []provider.Endpoint) {
	for _, q := range queries {
		s.sink.Report(q, slices.Clone(endpoints))
	}
}

// confirm tells that what is known is the same still.
func (s *session) confirm() {
	for name, a := range s.assignments {
		if a.known && !a.pending && a.err == nil {
			for _, q := range s.wanting[name] {
				s.sink.Confirm(q)
			}
		}
	}
}

func (s *session) fail(queries []provider.Query, err error) {
	for _, q := range queries {
		s.sink.Failed(q, err)
	}
}

// send queues a request for the stream of its type, which it opens if needed.
func (s *session) send(r *request) error {
	method := s.cfg.methodOf(r.typeURL)
	st := s.streams[method]
	if st == nil {
		var err error
		if st, err = openStream(s.ctx, s.conn, method, s.cfg.Delta, s.node); err != nil {
			return err
		}
		s.streams[method] = st
		s.goroutines.Go(func() { s.transmit(st) })
		s.goroutines.Go(func() { s.receive(st) })
	}
	select {
	case st.requests <- r:
		return nil
	default:
		return errNotReading
	}
}

// transmit sends the requests for a stream. gRPC waits for ever until there is
// room for one.
func (s *session) transmit(st *stream) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case r := <-st.requests:
			overdue := time.AfterFunc(s.cfg.Timeout, func() { s.cancel(errNotReading) })
			err := st.send(r)
			overdue.Stop()
			if err != nil {
				s.cancel(err)
			}
		}
	}
}

// receive passes on what a stream receives, until it ends.
func (s *session) receive(st *stream) {
	for {
		r, err := st.receive()
		select {
		case s.events <- event{st, r, err}:
		case <-s.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
