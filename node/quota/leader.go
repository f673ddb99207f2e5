package quota

import (
	"context"
	"iter"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/routing/limit"
	"penstock/routing/resource"
)

// ErrNotLeader says that this node does not lead.
var ErrNotLeader = api.Errorf(api.NotLeader, "this node is not the leader")

// errOvertaken refuses a report.
var errOvertaken = api.Errorf(api.Invalid, "the report is older than another of the node")

// LeaderConfig has what a Leader needs.
type LeaderConfig struct {
	// Limits iterates over all rate limits in force on this node.
	Limits  func() iter.Seq2[*limit.Limit, *resource.RateLimit]
	Members func() []string // IDs
	// Term returns the term in which this node leads and knows all that was agreed
	// before; not ok if it does not lead.
	Term func() (term uint64, ok bool)
	// Changes returns a channel that is closed when Term may have changed.
	Changes func() <-chan struct{}
	// Verify makes sure that no other node was elected before the call.
	Verify func(context.Context) error
}

// Leader answers reports while its node leads. Its methods may be called from any
// goroutine.
type Leader struct {
	LeaderConfig
	start time.Time

	mu      sync.Mutex
	alloc   *Allocator    // of the last term in which the node led; nil: none
	moved   chan struct{} // closed when answers that are held may be different
	reports uint64
	given   uint64 // leases, of earlier terms
}

// NewLeader makes the Leader of a node.
func NewLeader(cfg LeaderConfig) *Leader {
	return &Leader{LeaderConfig: cfg, start: time.Now().Add(-time.Second), moved: make(chan struct{})}
}

func (l *Leader) now() time.Duration { return time.Since(l.start) }

// Report answers a report of a member. What it gives is given only if no other node had
// been elected when the report came: a lease runs from before then, so it ends before any
// that a new leader gives. An answer that would change nothing for a node that is short
// waits until it would, for HoldTime at most: no time passes then between what others give
// back and the answer.
func (l *Leader) Report(ctx context.Context, node string, r *Report) (*Answer, error) {
	term, ok := l.Term()
	if !ok {
		return nil, ErrNotLeader
	}
	until := time.NewTimer(HoldTime)
	defer until.Stop()
	ans, hold, moved, ok := l.allocate(term, node, r, (*Allocator).Report, true)
	if !ok {
		return nil, errOvertaken
	}
	if err := l.Verify(ctx); err != nil {
		return nil, err
	}
	for last := false; hold && !last; {
		select {
		case <-moved:
		case <-until.C:
			last = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if ans, hold, moved, ok = l.allocate(term, node, r, (*Allocator).Retry, !last); !ok {
			return nil, errOvertaken
		}
	}
	if now, ok := l.Term(); !ok || now != term {
		return nil, ErrNotLeader
	}
	return &ans, nil
}

// decision is Report or Retry of an Allocator.
type decision func(*Allocator, time.Duration, string, *Report, []string, Budgets) (ans Answer, hold, ok bool)

// allocate decides about a report. hold is false unless the answer may be held; moved is
// closed when another decision may be different.
func (l *Leader) allocate(
	term uint64, node string, r *Report, decide decision, mayHold bool,
) (ans Answer, hold bool, moved <-chan struct{}, ok bool) {
	budgets := l.budgets()
	members := l.Members()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begin(term); l.alloc.Term() != term {
		return Answer{}, false, nil, false
	}
	ans, hold, ok = decide(l.alloc, l.now(), node, r, members, func(name string, dimension uint8) (Budget, bool) {
		b, ok := budgets[budgetKey{name, dimension}]
		return b, ok
	})
	hold = hold && mayHold
	if hold {
		l.alloc.Hold(node, r)
	} else {
		l.reports++
	}
	if l.alloc.Moved() {
		close(l.moved)
		l.moved = make(chan struct{})
	}
	return ans, hold, l.moved, ok
}

// begin makes the Allocator of a term, unless there is one of it or of a later one. The
// caller holds l.mu.
func (l *Leader) begin(term uint64) {
	if l.alloc != nil && l.alloc.Term() >= term {
		return
	}
	if l.alloc != nil {
		l.given += l.alloc.Given()
	}
	l.alloc = NewAllocator(term, l.now())
}

// Run notes when the node begins to lead, until ctx ends. What predecessors have given
// ends counted after that, whether anybody reports or not: so the first limit of a
// cluster that has had its leader for longer has its shares at once.
func (l *Leader) Run(ctx context.Context) {
	for {
		changes := l.Changes()
		if term, ok := l.Term(); ok {
			l.mu.Lock()
			l.begin(term)
			l.mu.Unlock()
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return
		}
	}
}

type budgetKey struct {
	limit     string
	dimension uint8
}

// budgets returns the budgets with scope cluster.
func (l *Leader) budgets() map[budgetKey]Budget {
	all := map[budgetKey]Budget{}
	for one, spec := range l.Limits() {
		if !one.Divided() {
			continue
		}
		for _, d := range limit.Dimensions {
			if rate := one.Budget(d); rate > 0 {
				all[budgetKey{one.Name(), uint8(d)}] = Budget{rate, float64(spec.FloorPercent())}
			}
		}
	}
	return all
}

// LeaderStatus counts what a node has done as the leader.
type LeaderStatus struct {
	Budgets        int    // with demand, in the present term
	Reports, Given uint64 // reports answered or refused, and leases given in them
}

// Status returns the counts; not all of them are 0 on a node that does not lead any
// more.
func (l *Leader) Status() LeaderStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LeaderStatus{Reports: l.reports, Given: l.given}
	if l.alloc != nil {
		s.Given += l.alloc.Given()
		if term, ok := l.Term(); ok && term == l.alloc.Term() {
			s.Budgets = len(l.alloc.budgets)
		}
	}
	return s
}

// Shares lists budgets with demand, with the IDs of nodes: those of a limit alone
// unless name is "".
func (l *Leader) Shares(name string) (*api.Shares, error) {
	term, ok := l.Term()
	if !ok {
		return nil, ErrNotLeader
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alloc == nil || l.alloc.Term() != term {
		return new(api.Shares), nil
	}
	list, all := l.alloc.list(l.now(), name, api.MaxBudgets)
	return &api.Shares{Budgets: list, More: all - len(list)}, nil
}
