package dataplane

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"penstock/netio"
)

// Stream is the traffic that takes one way, from a listener to an endpoint.
type Stream struct {
	StreamKey
	Connections     int64   // open now
	InRate, OutRate float64 // bytes per second
}

// StreamKey names the way of a stream.
type StreamKey struct {
	Listener string
	// Route is what chose the backend, such as MeshTCPRoute/canary; "": nothing did.
	Route       string
	Destination string // the service that the listener names, or the virtual cluster
	Service     string // whose endpoints are used
	Subset      string // the tags of the backend; "": all endpoints
	Endpoint    string // "": none yet, or each request has its own
}

const (
	// streamsEvery is how often the streams are computed at most, and the least time that
	// rates are measured over.
	streamsEvery = time.Second
	// streamsKept is how long after the last question the bytes of connections that end
	// are still counted. A question after that begins anew.
	streamsKept = 15 * time.Second
	// maxVisit is the same for a visit that does not end.
	maxVisit = time.Minute
	// maxStreamKeys bounds the ways that a loop tells apart. The resources give their
	// number, and no client can raise it.
	maxStreamKeys = 100_000
)

// streams sums up the connections by their ways while somebody asks for it. Relays know
// nothing of that: the bytes that took a way between two visits of all connections are
// those of the open ones at the second, less those of the open ones at the first, and
// those of the connections that have ended in between.
type streams struct {
	traffic *traffic
	engine  *netio.Engine
	began   time.Time
	loops   []streamLoop

	turn chan struct{} // holds one. Whoever has taken it may touch what follows.
	at   time.Time     // of the last visit; zero: none that counts
	open volumes
	last []Stream
	drop *time.Timer // forgets the others when nobody asks
}

// volume is a number of connections and of their bytes.
type volume struct{ connections, in, out int64 }

// volumes has at most maxStreamKeys entries.
type volumes map[way]volume

func (m volumes) add(w way, v volume) {
	sum, known := m[w]
	if known || len(m) < maxStreamKeys {
		m[w] = volume{sum.connections + v.connections, sum.in + v.in, sum.out + v.out}
	}
}

// streamLoop is what a loop knows of its connections that have ended. Only its goroutine
// touches it.
type streamLoop struct {
	until time.Duration // since streams.began: the end of counting; 0: it counts nothing
	// visiting says that a visit is under way. It has seen the connections whose ID is
	// seen or above, as the newest come first.
	visiting bool
	seen     uint64
	// gone is what connections that have ended bring to the visit under way or the next
	// one; later what those bring to the one after it that the visit has seen.
	gone, later volumes
	_           [64]byte
}

func newStreams(t *traffic, e *netio.Engine) *streams {
	s := &streams{traffic: t, engine: e, began: time.Now(), loops: make([]streamLoop, e.Loops()), turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	s.drop = time.AfterFunc(streamsKept, s.forget)
	return s
}

func (s *streams) close() { s.drop.Stop() }

// forget drops what nobody asks for any more.
func (s *streams) forget() {
	select {
	case <-s.turn:
		s.at, s.open, s.last = time.Time{}, nil, nil
		s.turn <- struct{}{}
	default: // somebody asks
	}
}

// ended counts the bytes of a connection that ends, on its loop.
func (s *streams) ended(c *netio.Conn) {
	if s.loops[c.Loop()].until == 0 {
		return
	}
	if w, ok := s.traffic.wayOf(c); ok {
		in, out := c.Bytes()
		s.count(c, w, volume{in: int64(in), out: int64(out)})
	}
}

// moved counts the bytes of a connection that goes on another way, on its loop.
func (s *streams) moved(c *netio.Conn, from, to way) {
	in, out := c.Bytes()
	s.count(c, from, volume{in: int64(in), out: int64(out)})
	s.count(c, to, volume{in: -int64(in), out: -int64(out)})
}

func (s *streams) count(c *netio.Conn, w way, v volume) {
	l := &s.loops[c.Loop()]
	switch {
	case l.until == 0:
	case time.Since(s.began) > l.until: // nobody asks any more
		*l = streamLoop{}
	case l.visiting && c.ID() >= l.seen:
		l.later.add(w, v)
	default:
		l.gone.add(w, v)
	}
}

// visit goes through all connections. It returns what is open, and what has ended since
// the last visit; afresh: there is none.
func (s *streams) visit(ctx context.Context, afresh bool) (open, gone volumes, err error) {
	open, gone = volumes{}, volumes{}
	var mu sync.Mutex
	err = s.engine.Visit(ctx, func(loop int) (func(c *netio.Conn) bool, func()) {
		l, here := &s.loops[loop], volumes{}
		if afresh || l.gone == nil {
			l.gone = volumes{}
		}
		l.later, l.visiting, l.seen, l.until = volumes{}, true, 1<<64-1, time.Since(s.began)+maxVisit
		each := func(c *netio.Conn) bool {
			l.seen = c.ID()
			if w, ok := s.traffic.wayOf(c); ok {
				in, out := c.Bytes()
				here.add(w, volume{1, int64(in), int64(out)})
			}
			return true
		}
		return each, func() {
			ended := l.gone
			l.gone, l.later, l.visiting, l.until = l.later, nil, false, time.Since(s.began)+streamsKept
			mu.Lock()
			defer mu.Unlock()
			for w, v := range here {
				open.add(w, v)
			}
			for w, v := range ended {
				gone.add(w, v)
			}
		}
	})
	return open, gone, err
}

// look visits the connections and computes the streams since the last visit.
func (s *streams) look(ctx context.Context, afresh bool) error {
	now := time.Now()
	open, gone, err := s.visit(ctx, afresh)
	if err != nil {
		s.at, s.open, s.last = time.Time{}, nil, nil
		return err
	}
	if s.last = nil; !afresh {
		s.last = streamsOf(open, gone, s.open, now.Sub(s.at))
	}
	s.at, s.open = now, open
	s.drop.Reset(streamsKept)
	return nil
}

// streamsOf computes the streams between two visits, those with the most connections
// first.
func streamsOf(open, gone, before volumes, over time.Duration) []Stream {
	all := map[StreamKey]volume{}
	add := func(m volumes, sign int64) {
		for w, v := range m {
			key := w.stream()
			sum := all[key]
			if sign > 0 {
				sum.connections += v.connections
			}
			sum.in, sum.out = sum.in+sign*v.in, sum.out+sign*v.out
			all[key] = sum
		}
	}
	add(open, 1)
	add(gone, 1)
	add(before, -1)
	list := make([]Stream, 0, len(all))
	for key, v := range all {
		if v.connections > 0 || v.in > 0 || v.out > 0 {
			rate := func(n int64) float64 { return float64(max(n, 0)) / over.Seconds() }
			list = append(list, Stream{key, v.connections, rate(v.in), rate(v.out)})
		}
	}
	slices.SortFunc(list, func(a, b Stream) int {
		return cmp.Or(
			cmp.Compare(b.Connections, a.Connections), cmp.Compare(b.InRate+b.OutRate, a.InRate+a.OutRate),
			cmp.Compare(a.Listener, b.Listener), cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Route, b.Route),
			cmp.Compare(a.Service, b.Service), cmp.Compare(a.Subset, b.Subset), cmp.Compare(a.Endpoint, b.Endpoint),
		)
	})
	return list
}

// stream returns the names of a way.
func (w *way) stream() StreamKey {
	key := StreamKey{Listener: w.flow.listener, Destination: w.destination, Service: w.service, Endpoint: w.endpoint()}
	if w.via != nil {
		key.Route, key.Subset = w.via.Route, w.via.Subset
	}
	return key
}

// Streams returns the traffic by its ways, those with the most connections first, and
// when it was measured. Rates are those of the time since the last question, a second at
// least: the first one waits for that long. It is computed once a second, however many ask.
func (d *Dataplane) Streams(ctx context.Context) ([]Stream, time.Time, error) {
	s := d.streams
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, time.Time{}, ctx.Err()
	}
	defer func() { s.turn <- struct{}{} }()
	since := time.Since(s.at)
	if s.last != nil && since < streamsEvery {
		return s.last, s.at, nil
	}
	if s.at.IsZero() || since > streamsKept {
		if err := s.look(ctx, true); err != nil {
			return nil, time.Time{}, err
		}
		since = 0
	}
	if rest := streamsEvery - since; rest > 0 {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, time.Time{}, ctx.Err()
		}
	}
	if err := s.look(ctx, false); err != nil {
		return nil, time.Time{}, err
	}
	return s.last, s.at, nil
}
