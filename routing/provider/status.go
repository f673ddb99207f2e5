package provider

import "time"

// Status is the state of a provider.
type Status struct {
	Name string
	// Err is why the source ended last; "" while it runs. Failed: it cannot run at
	// all.
	Err     string
	Failed  bool
	Queries []QueryStatus // sorted
	Counts
}

// Counts are totals of a Runner.
type Counts struct {
	Answers, Failures uint64 // by query
	Changes           uint64 // of endpoints in force
}

// QueryStatus is the state of one query.
type QueryStatus struct {
	Query
	// Endpoints is how many are in force, Unused how many of the last answer are
	// left out, the first of them for the reason Fault.
	Endpoints, Unused int
	Fault             string
	// Answered is the time of the last answer, zero before the first; Changed that
	// of the last change in force.
	Answered, Changed time.Time
	// Stale is true if the endpoints are not confirmed: the last attempt failed,
	// with Err, after Failures in a row, or there was no answer yet.
	Stale    bool
	Err      string
	Failures int
	// Warning is what is wrong beside the last answer; "": nothing.
	Warning string
	// HeldSince is since when removals are held back; zero: none are. Expired: the
	// answer was stale for too long, and its endpoints were removed.
	HeldSince time.Time
	Expired   bool
}

// Status returns the state of the provider.
func (r *Runner) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Name: r.cfg.Name, Err: r.err, Counts: r.counts, Queries: make([]QueryStatus, 0, len(r.wanted))}
	for _, wanted := range r.wanted {
		q := r.queries[wanted]
		s.Queries = append(s.Queries, QueryStatus{
			Query:     q.Query,
			Endpoints: len(q.applied), Unused: q.latest.unused, Fault: q.latest.fault,
			Answered: q.answered, Changed: q.changed,
			Stale: q.err != "" || !q.known && len(q.applied) > 0, Err: q.err, Failures: q.failures, Warning: q.warning,
			HeldSince: q.held, Expired: q.expired,
		})
	}
	return s
}
