// Package logs keeps the last lines of a node's logs in memory: those of its own log,
// and the records of its access log. It writes nothing anywhere and reads nothing back: a
// node that starts has none.
//
// The lines are in four rings, each with a share of the budget in bytes, so that many lines
// of one kind do not push out the others: a node under heavy traffic keeps its warnings, and
// the failures are not lost among the connections that ended well. Lines are kept as
// typed values, about 150 bytes for a connection, and become text when they are read.
//
//	l := logs.New(logs.Config{Node: "n1", Budget: 8 << 20})
//	log := slog.New(l.Handler(slog.NewTextHandler(os.Stderr, nil)))
//	access := accesslog.New(accesslog.Config{Memory: l})
//	last := l.Read(&api.LogsHereRequest{LogFilter: api.LogFilter{Reason: "no_route"}, Limit: 100})
package logs

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"penstock/node/accesslog"
	"penstock/node/api"
)

// DefaultBudget is the default of Config.Budget, MinBudget the least that makes sense.
const (
	DefaultBudget = 8 << 20
	MinBudget     = 1 << 20
)

// Ring is a kind of lines that has a ring of its own.
type Ring int

// The rings.
const (
	Own      Ring = iota // the node's own lines below warnings
	Warnings             // its warnings and errors
	Failures             // connections and requests that failed
	Access               // those that did not
	rings                // the number of them
)

func (r Ring) String() string { return [...]string{"own", "warnings", "failures", "access"}[r] }

// eighths are the shares of the rings in the budget.
var eighths = [rings]int{Own: 2, Warnings: 1, Failures: 2, Access: 3}

// Config is the configuration of Logs.
type Config struct {
	Node   string // the node's name
	Budget int    // bytes; 0: DefaultBudget
}

// Logs has the last lines of a node. Its methods are safe for concurrent use.
type Logs struct {
	node    string
	scratch sync.Pool // of *scratch

	mu sync.Mutex
	// position is the number of the last line. It begins with the time, so that
	// positions from before a restart are below it.
	position uint64
	rings    [rings]ring
}

// scratch is memory in which a line is put together.
type scratch struct {
	payload []byte
	attrs   []slog.Attr
}

// New makes empty Logs.
func New(cfg Config) *Logs {
	l := &Logs{node: cfg.Node, position: uint64(time.Now().UnixNano())} //nolint:gosec // positive until 2262
	l.scratch.New = func() any { return new(scratch) }
	for i := range l.rings {
		l.rings[i] = newRing(cmp.Or(cfg.Budget, DefaultBudget) / 8 * eighths[i])
	}
	return l
}

// Put keeps a record of the access log.
func (l *Logs) Put(r *accesslog.Record) {
	into := Access
	if r.Failed() {
		into = Failures
	}
	s := l.scratch.Get().(*scratch)
	defer l.scratch.Put(s)
	s.attrs = r.AppendAttrs(s.attrs[:0])
	l.add(into, s, r.At, slog.LevelInfo, r.Event.String())
}

// add keeps a line with the attributes of s.
func (l *Logs) add(into Ring, s *scratch, at time.Time, level slog.Level, message string) {
	s.payload = appendLine(s.payload[:0], at, level, message, s.attrs)
	clear(s.attrs) // they may hold much
	l.mu.Lock()
	defer l.mu.Unlock()
	l.position++
	l.rings[into].add(l.position, at, s.payload)
}

// RingStats are the counts of a ring.
type RingStats struct {
	Bytes, Lines int
	Forgotten    uint64 // lines that made room for later ones
}

// Stats returns the counts, by Ring.
func (l *Logs) Stats() (all [rings]RingStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.rings {
		all[i] = l.rings[i].stats()
	}
	return all
}

// maxConnectionLines bounds the lines about one connection.
const maxConnectionLines = 200

// OfConnection returns the last lines about a connection of this node, in order.
func (l *Logs) OfConnection(id uint64) []api.LogEntry {
	return l.Read(&api.LogsHereRequest{LogFilter: api.LogFilter{Connection: id}, Limit: maxConnectionLines}).Entries
}
