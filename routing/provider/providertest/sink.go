// Package providertest tests sources of endpoints: its Sink records what a
// source reports, and waits for it.
package providertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/routing/provider"
)

// patience is how long a wait lasts before the test fails; far longer than
// anything needs on a busy machine.
const patience = 2 * time.Minute

// Sink is a provider.Sink that records.
type Sink struct {
	mu       sync.Mutex
	wanted   []provider.Query
	replaced chan struct{}
	changed  chan struct{} // closed at each report and failure
	answers  map[provider.Query][]provider.Endpoint
	failures map[provider.Query]error
	warnings map[provider.Query]error
	confirms map[provider.Query]int // since the last report
	reports  int
}

// NewSink returns a sink that wants the queries.
func NewSink(queries ...provider.Query) *Sink {
	return &Sink{
		wanted: queries, replaced: make(chan struct{}), changed: make(chan struct{}),
		answers: map[provider.Query][]provider.Endpoint{}, failures: map[provider.Query]error{},
		warnings: map[provider.Query]error{}, confirms: map[provider.Query]int{},
	}
}

// Start runs a source until the test ends, which waits for it.
func (s *Sink) Start(t testing.TB, source provider.Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := source.Run(ctx, s); ctx.Err() == nil {
			s.FailedAll(fmt.Errorf("the source ended: %w", err))
		}
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the source does not end with its context")
		}
	})
}

// Want replaces the wanted queries.
func (s *Sink) Want(queries ...provider.Query) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = queries
	close(s.replaced)
	s.replaced = make(chan struct{})
}

// Wanted implements provider.Sink.
func (s *Sink) Wanted() (queries []provider.Query, replaced <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted, s.replaced
}

// Report implements provider.Sink.
func (s *Sink) Report(q provider.Query, endpoints []provider.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[q] = endpoints
	delete(s.failures, q)
	delete(s.warnings, q)
	delete(s.confirms, q)
	s.reports++
	s.notify()
}

// Confirm implements provider.Sink.
func (s *Sink) Confirm(q provider.Query) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.answers[q]; known && s.failures[q] == nil {
		s.confirms[q]++
		s.notify()
	}
}

// Warn implements provider.Sink.
func (s *Sink) Warn(q provider.Query, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings[q] = err
	s.notify()
}

// Failed implements provider.Sink.
func (s *Sink) Failed(q provider.Query, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[q] = err
	s.notify()
}

// FailedAll implements provider.Sink.
func (s *Sink) FailedAll(err error) {
	queries, _ := s.Wanted()
	for _, q := range queries {
		s.Failed(q, err)
	}
}

func (s *Sink) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Text returns the last answer to a query, sorted: the endpoints joined by "; ",
// each as "address", "address*weight" unless that is 1, "{k=v k=v}" if there are
// tags, and its state unless it is ready. It is "none" for an answer without
// endpoints and "" without an answer.
func (s *Sink) Text(q provider.Query) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text(q)
}

func (s *Sink) text(q provider.Query) string {
	endpoints, known := s.answers[q]
	if !known {
		return ""
	}
	list := make([]string, len(endpoints))
	for i := range endpoints {
		list[i] = text(&endpoints[i])
	}
	slices.Sort(list)
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, "; ")
}

func text(e *provider.Endpoint) string {
	s := e.Address
	if e.Weight != 1 {
		s += fmt.Sprintf("*%d", e.Weight)
	}
	if e.Priority != 0 {
		s += fmt.Sprintf(" priority %d", e.Priority)
	}
	if len(e.Tags) > 0 {
		var tags []string
		for k, v := range e.Tags {
			tags = append(tags, k+"="+v)
		}
		slices.Sort(tags)
		s += "{" + strings.Join(tags, " ") + "}"
	}
	if e.State != provider.Ready {
		s += " " + e.State.String()
	}
	return s
}

// Err returns the error of a query since its last answer; nil: it has not
// failed.
func (s *Sink) Err(q provider.Query) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures[q]
}

// Reports returns the number of reports so far.
func (s *Sink) Reports() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports
}

// Await waits until the last answer to a query has this Text.
func (s *Sink) Await(t testing.TB, q provider.Query, want string) {
	t.Helper()
	s.await(t, func() (bool, string) {
		return s.text(q) == want, fmt.Sprintf("%v is %q (failure: %v), want %q", q, s.text(q), s.failures[q], want)
	})
}

// AwaitCount waits until the last answer to a query has n endpoints.
func (s *Sink) AwaitCount(t testing.TB, q provider.Query, n int) {
	t.Helper()
	s.await(t, func() (bool, string) {
		return len(s.answers[q]) == n, fmt.Sprintf("%v has %d endpoints (failure: %v), want %d", q, len(s.answers[q]), s.failures[q], n)
	})
}

// AwaitFailure waits until a query has failed with an error that contains part.
func (s *Sink) AwaitFailure(t testing.TB, q provider.Query, part string) {
	t.Helper()
	s.await(t, func() (bool, string) {
		err := s.failures[q]
		return err != nil && strings.Contains(err.Error(), part), fmt.Sprintf("%v: error %v, want %q in it", q, err, part)
	})
}

// AwaitWarning waits until there is a warning beside the last answer to a query
// that contains part.
func (s *Sink) AwaitWarning(t testing.TB, q provider.Query, part string) {
	t.Helper()
	s.await(t, func() (bool, string) {
		err := s.warnings[q]
		return err != nil && strings.Contains(err.Error(), part), fmt.Sprintf("%v: warning %v, want %q in it", q, err, part)
	})
}

// AwaitConfirmed waits until the last answer to a query was confirmed n times,
// without another report in between.
func (s *Sink) AwaitConfirmed(t testing.TB, q provider.Query, n int) {
	t.Helper()
	s.await(t, func() (bool, string) {
		return s.confirms[q] >= n, fmt.Sprintf("%v was confirmed %d times (failure: %v), want %d", q, s.confirms[q], s.failures[q], n)
	})
}

// await waits until met, which is called with s.mu held, is true.
func (s *Sink) await(t testing.TB, met func() (ok bool, now string)) {
	t.Helper()
	over := time.After(patience)
	for {
		s.mu.Lock()
		ok, now := met()
		changed := s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-over:
			t.Fatal(now)
		}
	}
}
