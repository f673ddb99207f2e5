package stream

import (
	"fmt"
	"strconv"
	"time"

	"penstock/node/xds/snapshot"
)

// MaxWait is how long a client whose version is newer than this node's snapshot
// waits for the node.
const MaxWait = 5 * time.Second

// wildcard is the name of all resources.
const wildcard = "*"

// Config configures New.
type Config struct {
	// Delta selects the delta variant, otherwise it is the state of the world.
	Delta bool
	// Names keeps the names of subscriptions. Required.
	Names *Names
	// MaxNames bounds the names of one subscription, MaxName the bytes of each; 0:
	// no bound.
	MaxNames, MaxName int
}

// Request is a DiscoveryRequest or a DeltaDiscoveryRequest.
type Request struct {
	Type snapshot.Type
	// Nonce is that of the response answered.
	Nonce string
	// Rejected: the response was refused (NACK), for the reason Detail.
	Rejected bool
	Detail   string
	// Version and Names are of the state of the world: the last version accepted,
	// and all names subscribed to.
	Version string
	Names   []string
	// Subscribe, Unsubscribe and Known are of the delta variant; Known has the
	// versions of the resources that the client has, by name.
	Subscribe, Unsubscribe []string
	Known                  map[string]string
}

// Response is a DiscoveryResponse or a DeltaDiscoveryResponse.
type Response struct {
	Type           snapshot.Type
	Version, Nonce string
	// Resources and Removed are how many the response has.
	Resources, Removed int
	// Head and Body are the encoded message, one after the other. Sessions share the
	// Body, which must not be changed.
	Head, Body []byte
	// Since is when there was something to send: the state was made, or the client
	// asked for more.
	Since time.Time

	shared *encoded // keeps it for other sessions until this response is sent
}

// Result is what a request turned out to be.
type Result int

// The results of Request.
const (
	Subscribed Result = iota // a first request, or one that changes what is subscribed to
	Accepted                 // ACK
	Rejected                 // NACK
	Stale                    // it answers a response that is not the last
)

// BoundError is the error of a request that exceeds a bound of Config.
type BoundError struct {
	Bound string // "names" or "name"
	text  string
}

func (e *BoundError) Error() string { return e.text }

// Status is the state of one type of resources.
type Status struct {
	// Sent and Accepted are the versions of the last response sent and accepted.
	Sent, Accepted string
	// Detail is why the client refused a response, at RejectedAt; zero: never.
	Detail     string
	RejectedAt time.Time
	// Refused: that was the last response.
	Refused bool
	// Behind is since when the client has not accepted all that there is for it;
	// zero: it has.
	Behind time.Time
	// Names is how many it has subscribed to; All: to all resources.
	Names int
	All   bool
}

// Session is the state of one stream. Its methods must not be called
// concurrently.
type Session struct {
	cfg          Config
	state        *State
	view         snapshot.View
	subs         [snapshot.Types]*subscription
	nonce        uint64    // of the last response
	sentClusters bool      // a response had clusters
	asked        time.Time // when the client changed what it is subscribed to
}

// New returns the session of a new stream, whose client has this view.
func New(cfg Config, state *State, view snapshot.View) *Session {
	return &Session{cfg: cfg, state: state, view: view}
}

// State returns the state served.
func (s *Session) State() *State { return s.state }

// Request takes a request. If the request exceeds a bound, it returns a
// *BoundError and the stream must end.
func (s *Session) Request(r *Request, now time.Time) (Result, error) {
	if err := s.check(r); err != nil {
		return Stale, err
	}
	sub := s.subs[r.Type]
	result := Subscribed
	if sub == nil {
		sub = newSubscription(s, r.Type)
		s.subs[r.Type] = sub
		sub.open(r, now)
		s.asked = now
	} else {
		names, all := sub.names, sub.all
		result = sub.answer(r, now)
		switch {
		case s.cfg.Delta: // even if the nonce is stale
			sub.edit(r)
		case result != Stale:
			sub.replace(r.Names)
		}
		if sub.names != names || sub.all != all {
			s.asked = now
		}
	}
	sub.settle(now)
	return result, s.checkNames(r.Type, len(sub.names.sorted))
}

// check returns an error if a request exceeds a bound.
func (s *Session) check(r *Request) error {
	if err := s.checkNames(r.Type, max(len(r.Names), len(r.Subscribe), len(r.Unsubscribe), len(r.Known))); err != nil {
		return err
	}
	for _, list := range [][]string{r.Names, r.Subscribe} {
		for _, name := range list {
			if limit := s.cfg.MaxName; limit > 0 && len(name) > limit {
				return &BoundError{"name", fmt.Sprintf("the name of a resource has %d bytes; the maximum is %d", len(name), limit)}
			}
		}
	}
	return nil
}

func (s *Session) checkNames(t snapshot.Type, count int) error {
	if limit := s.cfg.MaxNames; limit > 0 && count > limit {
		return &BoundError{"names", fmt.Sprintf("%d names of resources of type %s; the maximum is %d", count, t, limit)}
	}
	return nil
}

// Update replaces the state and the view, which must be of the same service.
func (s *Session) Update(state *State, view snapshot.View, now time.Time) {
	since, before := s.state, s.view
	s.state, s.view = state, view
	for _, sub := range s.subs {
		if sub != nil {
			sub.update(since, before)
		}
	}
	for _, sub := range s.subs {
		if sub != nil {
			sub.settle(now)
		}
	}
}

// Next returns the next response to send; ok is false if there is none.
func (s *Session) Next(now time.Time) (r Response, ok bool) {
	for _, sub := range s.subs {
		if sub == nil || s.mustWait(sub.t) {
			continue
		}
		r, ok = sub.next(now)
		sub.settle(now)
		if ok {
			return r, true
		}
	}
	return Response{}, false
}

// mustWait reports whether resources of a type wait for those that they may refer
// to: listeners and routes for clusters and endpoints (make before break).
func (s *Session) mustWait(t snapshot.Type) bool {
	return (t == snapshot.Listener || t == snapshot.Route) && (s.subs[snapshot.Cluster].pending() || s.subs[snapshot.Endpoint].pending())
}

// routesSettled reports whether the client has accepted or refused all listeners
// and routes that there are for it.
func (s *Session) routesSettled() bool {
	for _, t := range []snapshot.Type{snapshot.Listener, snapshot.Route} {
		if sub := s.subs[t]; sub != nil && (sub.pending() || !sub.answered) {
			return false
		}
	}
	return true
}

// Due returns when Next must be called even if nothing happens; zero: never.
func (s *Session) Due() time.Time {
	var due time.Time
	for _, sub := range s.subs {
		if sub != nil && !sub.waits.IsZero() && (due.IsZero() || sub.waits.Before(due)) {
			due = sub.waits
		}
	}
	return due
}

// Status returns the state of each type; nil: the client has not asked for it.
func (s *Session) Status() (all [snapshot.Types]*Status) {
	for t, sub := range s.subs {
		if sub != nil {
			status := sub.status
			status.Names, status.All = len(sub.names.sorted), sub.all
			all[t] = &status
		}
	}
	return all
}

// respond makes a response to be sent now.
func (s *Session) respond(t snapshot.Type, sum digest, resources []*snapshot.Resource, removed []string) Response {
	s.nonce++
	shared := s.state.encode(t, s.cfg.Delta, resources, removed)
	r := Response{
		Type: t, Nonce: strconv.FormatUint(s.nonce, 10), Version: version{s.state.Index(), sum}.String(),
		Resources: len(resources), Removed: len(removed), Body: shared.bytes, Since: later(s.state.Made, s.asked), shared: shared,
	}
	head := make([]byte, 0, sizeText(fieldVersion, len(r.Version))+sizeText(fieldNonce, len(r.Nonce)))
	r.Head = appendText(appendText(head, fieldVersion, r.Version), fieldNonce, r.Nonce)
	return r
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
