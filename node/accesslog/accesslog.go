// Package accesslog writes lines about proxied connections, and about HTTP
// requests that are routed individually, to any number of sinks.
//
// Write never blocks: it queues a record for a goroutine that gives it to each sink,
// or drops and counts it if the queue is full. A sink does not block either. Lines is
// the sink that formats records and writes them to an Output, from a queue and a
// goroutine of its own, so that an output that stalls delays no other one.
//
//	log := accesslog.New(accesslog.Config{})
//	log.Add(accesslog.NewLines(accesslog.LinesConfig{Name: "stderr", Output: accesslog.To(os.Stderr)}))
//	if log.Wants(reason) {
//		log.Write(accesslog.Record{Event: accesslog.Closed, Reason: reason, Listener: "edge", ...})
//	}
//	log.Close()
package accesslog

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Sink takes records. Its methods are safe for concurrent use.
type Sink interface {
	// Name is unique among the sinks of a log: its label in metrics.
	Name() string
	// Put takes a record, or drops and counts it. It never waits, and keeps no pointer to
	// the record, which other sinks get too.
	Put(r *Record)
	// Stats returns what became of the records.
	Stats() Stats
	// Close writes what is queued, as far as that takes no more than a few seconds. There
	// is no Put after it.
	Close()
}

// Stats are the counts of a sink.
type Stats struct {
	Written uint64 // records
	Dropped uint64 // records: no room, or unsent when the sink was closed
	Errors  uint64 // failed attempts to write; the records are written later, or dropped
	Queued  int    // bytes that wait
}

// Config is the configuration of a Log. Zero values mean the defaults.
type Config struct {
	// Memory takes each record that is written, also if there is no other sink. The log
	// does not close it. Nil: none does.
	Memory interface{ Put(r *Record) }
	// Queue is the number of records that may be queued: 8192.
	Queue int
}

// Log is an access log. Its methods are safe for concurrent use, and those that the
// data plane calls do nothing on a nil Log.
type Log struct {
	memory interface{ Put(r *Record) } // nil: none
	queue  chan Record
	lost   atomic.Uint64 // records that found the queue full
	// ordinary says that records of ordinary ends are wanted: there are sinks.
	ordinary atomic.Bool
	stop     chan struct{} // closed by Close
	done     chan struct{} // closed when each record is given to the sinks

	mu    sync.Mutex // held while the sinks get a record
	sinks []Sink
}

// New makes a Log without sinks. The caller must close it.
func New(cfg Config) *Log {
	l := &Log{
		memory: cfg.Memory, queue: make(chan Record, cmp.Or(cfg.Queue, 8192)),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go l.run()
	return l
}

// Add adds a sink. It gets the records that are taken from the queue from now on, and
// the log closes it.
func (l *Log) Add(s Sink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sinks = append(l.sinks, s)
	l.ordinary.Store(true)
}

// Remove removes a sink and closes it. It gets no record afterwards.
func (l *Log) Remove(s Sink) {
	l.mu.Lock()
	l.sinks = slices.DeleteFunc(l.sinks, func(one Sink) bool { return one == s })
	l.ordinary.Store(len(l.sinks) > 0)
	l.mu.Unlock()
	s.Close()
}

// Wants reports whether anything takes a record of an end with this reason. If not, the
// caller need not make one.
func (l *Log) Wants(reason string) bool {
	return l != nil && (l.ordinary.Load() || l.memory != nil && !Ordinary(reason))
}

// WantsRequest is Wants for a request that was answered with this status; 0: it was not.
func (l *Log) WantsRequest(reason string, status int) bool {
	return l != nil && (l.ordinary.Load() || l.memory != nil && failedRequest(reason, status))
}

// Write queues a record, or drops it if the queue is full. It takes ownership of
// r.Request.
func (l *Log) Write(r Record) {
	if l == nil {
		return
	}
	r.truncate()
	select {
	case l.queue <- r:
	default:
		l.lost.Add(1)
	}
}

// Close writes the queued records and closes the sinks. Later records are lost.
func (l *Log) Close() {
	close(l.stop)
	<-l.done
	l.mu.Lock()
	sinks := l.sinks
	l.sinks = nil
	l.mu.Unlock()
	var closing sync.WaitGroup
	for _, s := range sinks {
		closing.Go(s.Close)
	}
	closing.Wait()
}

// run gives records to the sinks until the log is closed.
func (l *Log) run() {
	defer close(l.done)
	for {
		select {
		case r := <-l.queue:
			l.put(&r)
		case <-l.stop:
			for {
				select {
				case r := <-l.queue:
					l.put(&r)
				default:
					return
				}
			}
		}
	}
}

func (l *Log) put(r *Record) {
	if l.memory != nil {
		l.memory.Put(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sinks {
		s.Put(r)
	}
}

// Lost returns the number of records that no sink got, because the queue was full.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// SinkStats are the counts of one sink.
type SinkStats struct {
	Sink string
	Stats
}

// Sinks returns the counts of the sinks.
func (l *Log) Sinks() []SinkStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]SinkStats, len(l.sinks))
	for i, s := range l.sinks {
		all[i] = SinkStats{s.Name(), s.Stats()}
	}
	return all
}

// Reopen has the sinks that write files open them anew: another program may have moved
// them.
func (l *Log) Reopen() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sinks {
		if f, ok := s.(interface{ Reopen() }); ok {
			f.Reopen()
		}
	}
}

// truncate cuts s to n bytes and copies it, so that the queue does not keep
// the rest in memory.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(s[:n])
}
