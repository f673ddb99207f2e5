// Package audit records who did what to the cluster, and which traffic
// permissions denied.
//
// What was done is replicated: an entry of the store for each administrative act,
// written in the same batch as the change where the act changes the store
// (Log.Ops), else right afterwards through the leader (Log.Run), or before it where
// the node may be gone afterwards (Log.Now). The entries form rings, bounded in number and age.
//
// What was refused or denied stays on the node that did so, in tables whose size
// does not depend on how often that happens: a line for each rule and source, with
// a count (table). A flood of denials by one rule changes only that rule's lines.
//
//	log := audit.New(audit.Config{...})
//	server := rpc.NewServer(rpc.Config{Audit: log.Record})
//	catalog := catalog.New(catalog.Config{Audit: log})
//	log.Join(audit.Cluster{...})
//	go log.Run(ctx)
//	log.Denied(&audit.Denial{...}) // on any goroutine
package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/rpc"
)

// The bounds of each ring unless others are configured.
const (
	DefaultEntries = 5000
	DefaultAge     = 90 * 24 * time.Hour
)

const (
	// MaxEntries bounds what may be configured: three rings with entries of at most
	// 2 KiB stay below the store's limit for internal entries.
	MaxEntries = 10_000
	// maxQueue bounds the acts that wait for the leader.
	maxQueue = 1000
	// logged is how many lines a second the process's log gets about denials.
	logged = 10
)

// Store is the replicated content.
type Store interface {
	Propose(ctx context.Context, b *store.Batch) (store.Pending, error)
	Snapshot() store.Snapshot
}

// Config has what a Log needs.
type Config struct {
	// Entries and Age bound each ring; 0: the defaults.
	Entries int
	Age     time.Duration
	Log     *slog.Logger
}

// Cluster is what a Log needs of the node's cluster.
type Cluster struct {
	Node  string // the node's name
	Store Store
	// Leads reports whether this node's store accepts batches.
	Leads func() bool
	// ToLeader has the leader record acts of this node: there, Add does.
	ToLeader func(context.Context, *api.AuditActs) error
}

// Log is the audit log of a node. Its methods are safe for concurrent use.
type Log struct {
	cfg     Config
	cluster atomic.Pointer[Cluster] // nil until Join
	rings   rings

	mu sync.Mutex
	// position numbers the changes of the tables. It begins with the time, so that
	// positions from before a restart are below it.
	position uint64
	refused  table
	denied   table
	queue    []api.AuditEntry // done, and not recorded yet
	lines    *rate.Limiter    // of the process's log
	unsaid   uint64           // denials without a line since the last one

	wake chan struct{} // capacity 1: the queue is not empty
	// flushing has an element while a goroutine takes entries from the queue.
	flushing chan struct{} // capacity 1
	dropped  atomic.Uint64 // entries that were not recorded
}

// New returns the log of a node.
func New(cfg Config) *Log {
	cfg.Entries, cfg.Age = cmp.Or(cfg.Entries, DefaultEntries), cmp.Or(cfg.Age, DefaultAge)
	return &Log{
		cfg: cfg, refused: newTable(), denied: newTable(), position: uint64(time.Now().UnixNano()), //nolint:gosec // positive until 2262
		lines: rate.NewLimiter(logged, logged), wake: make(chan struct{}, 1), flushing: make(chan struct{}, 1),
	}
}

// Join gives the log the cluster that its entries are replicated in. What is
// recorded before waits for it.
func (l *Log) Join(c Cluster) { l.cluster.Store(&c) }

// node returns the node's name; "" before Join.
func (l *Log) node() string {
	if c := l.cluster.Load(); c != nil {
		return c.Node
	}
	return ""
}

// Stats are the counts of a node.
type Stats struct {
	Entries map[string]int // of the replicated rings, by name
	Kept    int            // lines about what this node refused and denied
	// Dropped are entries that could not be recorded, and lines that made room for
	// others, of this node.
	Dropped uint64
}

// Stats returns the counts.
func (l *Log) Stats() Stats {
	s := Stats{Entries: map[string]int{}}
	if c := l.cluster.Load(); c != nil {
		snap := c.Store.Snapshot()
		for _, r := range ringNames {
			s.Entries[r] = 0
			for range snap.Kind(kindOf(r)) {
				s.Entries[r]++
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Kept = l.refused.size() + l.denied.size()
	s.Dropped = l.dropped.Load() + l.refused.evicted + l.denied.evicted
	return s
}

// Record takes a finished call of the admin server. It never waits.
func (l *Log) Record(e rpc.Event) {
	entry := l.entryOf(&e)
	if err := e.Err; err != nil {
		entry.Outcome, entry.Error = api.AuditRefused, cut(err.Error())
		if e := new(api.Error); errors.As(err, &e) && e.Code == api.UnknownOutcome {
			entry.Outcome = api.AuditUnknown
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.position++
		l.refused.add(entry.Who+"\x00"+entry.Token, line{
			who: entry.Who, from: hostOf(entry.From), act: entry.Act, what: entry.What, outcome: entry.Outcome,
		}, &entry, l.position)
		return
	}
	if e.Recorded || onlyWithChange[e.Method] {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= maxQueue {
		l.dropped.Add(1)
		return
	}
	l.queue = append(l.queue, entry)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// onlyWithChange are the methods whose calls that changed nothing are not acts:
// dry runs, and applies of what is there already.
var onlyWithChange = map[string]bool{
	api.MethodApply: true, api.MethodRollback: true, api.MethodRestore: true,
}

// entryOf returns the entry of a call that succeeded.
func (l *Log) entryOf(e *rpc.Event) api.AuditEntry {
	return api.AuditEntry{
		At: e.At.UTC(), Count: 1, Node: l.node(), Who: cut(e.Principal.Name), Role: string(e.Principal.Role),
		Token: e.Principal.TokenID, From: e.Peer, Via: e.Via, Act: e.Method, What: cut(e.Summary), Outcome: api.AuditDone,
	}
}

// Denial is traffic that a permission denied, or would have.
type Denial struct {
	Act  string // connect, request or kafka
	Who  string // SPIFFE ID or Kafka's principal; "": none
	From string // the client's address without its port
	What string // the destination
	// Method and Path are those of an HTTP request, the path without its query; "": it is
	// none.
	Method, Path string
	Rule         string // the permission that denies it, or that names the destination; "": none
	Error        string
	// Said: the process's log has a line about it already.
	Said bool
}

// Denied counts a denial, and logs a line about it unless there are too many. It
// never waits.
func (l *Log) Denied(d *Denial) {
	e := api.AuditEntry{
		At: time.Now().UTC(), Count: 1, Node: l.node(), Who: cut(d.Who), From: d.From, Act: d.Act, What: cut(d.What), Request: d.request(),
		Rule: d.Rule, Outcome: api.AuditDenied, Error: cut(d.Error),
	}
	l.mu.Lock()
	l.position++
	l.denied.add(d.Rule, line{who: e.Who, from: e.From, act: e.Act, what: e.What, outcome: e.Outcome}, &e, l.position)
	say, unsaid := !d.Said && l.lines.Allow(), l.unsaid
	switch {
	case say:
		l.unsaid = 0
	case !d.Said:
		l.unsaid++
	}
	l.mu.Unlock()
	if say {
		l.cfg.Log.Info("denied", "permission", cmp.Or(d.Rule, "none allows it"), "who", e.Who, "from", e.From, "act", e.Act,
			"what", e.What, "request", e.Request, "error", e.Error, "unlogged", unsaid)
	}
}

// Bounds of a request in a line, in bytes.
const (
	maxMethod  = 32
	maxRequest = 256
)

// request returns the method and the path of a line.
func (d *Denial) request() string {
	if d.Method == "" {
		return ""
	}
	return cutTo(cutTo(d.Method, maxMethod)+" "+cutTo(d.Path, maxRequest), maxRequest)
}

// Kept returns the lines about what this node refused and denied that have changed
// after a position of earlier, the oldest first.
func (l *Log) Kept(_ context.Context, r *api.AuditKeptRequest) (*api.AuditKept, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := time.Now().Add(-l.cfg.Age)
	out := &api.AuditKept{Entries: []api.AuditEntry{}, Position: l.position}
	for _, t := range []*table{&l.refused, &l.denied} {
		t.expire(oldest)
		out.Entries = t.changed(out.Entries, r.After)
	}
	Sort(out.Entries)
	return out, nil
}
