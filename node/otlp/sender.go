package otlp

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// giveUp is how long a batch is tried again.
	giveUp = time.Minute
	// maxWait bounds the wait between two attempts.
	maxWait = 15 * time.Second
	// maxRetryAfter bounds the wait that a collector may ask for.
	maxRetryAfter = 5 * time.Minute
	// warnEvery is the least time between two lines in the log about one signal.
	warnEvery = time.Minute
)

// sender sends batches of one signal, one after the other.
type sender struct {
	signal  Signal
	name    string // of the Telemetry
	counts  *counts
	log     *slog.Logger
	retry   time.Duration // before the second attempt
	limit   time.Duration // how long a batch is tried
	timeout time.Duration // of an attempt
	hide    func(string) string
	queued  func() int
	stop    chan struct{} // closed to end: no more waiting
	ended   bool          // nothing is sent any more; of the goroutine that sends

	mu     sync.Mutex
	fault  string
	warned time.Time
	told   bool // that it fails
}

func (s *sender) state(name string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := State{
		Telemetry: name, Signal: s.signal, Exported: s.counts.exported.Load(), Failures: s.counts.failures.Load(), Fault: s.fault,
		Dropped: map[Reason]uint64{}, Queued: s.queued(),
	}
	for r := range reasons {
		st.Dropped[r] = s.counts.dropped[r].Load()
	}
	return st
}

// deliver sends a batch of n items, repeatedly if that helps, and counts what became of
// it. It returns when the batch is sent or lost, at the latest when ctx ends.
func (s *sender) deliver(ctx context.Context, n int, attempt func(context.Context) error) {
	begin, wait := time.Now(), s.retry
	for {
		err, taken := s.try(ctx, n, attempt)
		if err == nil {
			s.counts.exported.Add(uint64(taken))
			s.counts.drop(Refused, n-taken)
			return
		}
		again, after := err.again()
		pause := wait/2 + rand.N(wait/2+1)
		wait = min(2*wait, maxWait)
		if after > 0 {
			pause = min(after, maxRetryAfter)
		}
		switch {
		case !again:
			s.counts.drop(Refused, n)
			return
		case after <= 0 && time.Since(begin)+pause > s.limit:
			s.counts.drop(Unreachable, n)
			return
		case !s.sleep(ctx, pause):
			s.lose(n)
			return
		}
	}
}

// lose counts a batch that is not sent because the exporter ends.
func (s *sender) lose(n int) {
	s.ended = true
	s.counts.drop(Stopped, n)
}

// try sends a batch once. taken is how much of it the collector took.
func (s *sender) try(ctx context.Context, n int, attempt func(context.Context) error) (failed *sendError, taken int) {
	var answer answer
	ctx, cancel := context.WithTimeout(withAnswer(ctx, &answer), s.timeout)
	defer cancel()
	err := attempt(ctx)
	if err != nil {
		s.counts.failures.Add(1)
		failed = asSendError(ctx, err, s.timeout)
		s.note(failed.hidden(s.hide))
		return failed, 0
	}
	refused := int(min(max(answer.rejected, 0), int64(n)))
	if refused > 0 {
		s.note(answer.refused(refused, n).hidden(s.hide))
	} else {
		s.note("")
	}
	return nil, n - refused
}

// sleep waits; false: the exporter ends.
func (s *sender) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stop:
		return false
	case <-ctx.Done():
		return false
	}
}

// note records how an attempt ended, and logs what is new.
func (s *sender) note(fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
	switch now := time.Now(); {
	case fault != "" && !s.told && now.Sub(s.warned) >= warnEvery:
		s.told, s.warned = true, now
		s.log.Warn("cannot send to the OpenTelemetry collector", "telemetry", s.name, "signal", s.signal.String(), "error", fault)
	case fault == "" && s.told:
		s.told = false
		s.log.Info("the OpenTelemetry collector takes what is sent again", "telemetry", s.name, "signal", s.signal.String())
	}
}

// sendError is why an attempt failed.
type sendError struct {
	text  string
	said  string        // by the collector: it may repeat what it was sent
	retry bool          // it may succeed later
	after time.Duration // at the earliest; 0: the collector does not say
}

func (e *sendError) Error() string { return e.text }

// hidden returns the text with what the collector said, from which hide removes secrets.
func (e *sendError) hidden(hide func(string) string) string {
	if e.said == "" {
		return e.text
	}
	return e.text + ": " + shown(hide(e.said))
}

func (e *sendError) again() (bool, time.Duration) { return e.retry, e.after }

// asSendError returns the error of an attempt as a sendError. What was no answer of the
// collector may succeed later.
func asSendError(ctx context.Context, err error, timeout time.Duration) *sendError {
	var known *sendError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &sendError{text: "no answer within " + timeout.String(), retry: true}
	}
	return &sendError{text: bounded(reason(err).Error()), retry: true}
}
