package accesslog

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Line is a formatted record.
type Line struct {
	At     time.Time
	Failed bool
	Text   []byte // without a newline
}

// An Output writes lines. One goroutine calls its methods, but for Reopen.
type Output interface {
	// Write writes lines in order, until ctx ends. It returns how many were written; if
	// not all, why, and it is called again with the rest.
	Write(ctx context.Context, lines []Line) (n int, err error)
	Close() error
}

const (
	// DefaultQueue bounds the bytes of lines that wait for an output.
	DefaultQueue = 4 << 20
	// lineOverhead is what a line in the queue takes beside its text, in bytes.
	lineOverhead = 64
	// minRetry and maxRetry bound the time between attempts to write.
	minRetry, maxRetry = 100 * time.Millisecond, 5 * time.Second
	// closeTimeout bounds how long an output is waited for when its sink is closed.
	closeTimeout = 3 * time.Second
	// maxBatch bounds the lines of one Write.
	maxBatch = 1000
)

// LinesConfig is the configuration of Lines.
type LinesConfig struct {
	Name   string
	Output Output
	// Format is that of the lines; nil: text.
	Format Format
	// Sampling picks the records.
	Sampling Sampling
	// Queue bounds the bytes that wait for the output; 0: DefaultQueue.
	Queue int
	// Log is told when the output begins to fail, and when it works again; nil: nothing is.
	Log *slog.Logger
}

// Lines is a sink that formats records and writes them to an Output.
type Lines struct {
	cfg     LinesConfig
	sampler sampler

	written, dropped, errors atomic.Uint64

	mu     sync.Mutex
	queue  []Line
	queued int           // bytes of the queue, and of what is being written
	closed bool          // no more lines come
	wake   chan struct{} // capacity 1: there are lines, or it is closed

	ctx  context.Context // of Write; ends closeTimeout after closed
	stop context.CancelFunc
	done chan struct{}
}

var _ Sink = (*Lines)(nil)

// NewLines makes the sink. The caller, or the Log that it is added to, must close it.
func NewLines(cfg LinesConfig) *Lines {
	cfg.Queue = cmp.Or(cfg.Queue, DefaultQueue)
	if cfg.Format == nil {
		cfg.Format = slogFormat(false)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Lines{cfg: cfg, sampler: sampler{of: cfg.Sampling}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	go l.run()
	return l
}

// Name implements Sink.
func (l *Lines) Name() string { return l.cfg.Name }

// Stats implements Sink.
func (l *Lines) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Written: l.written.Load(), Dropped: l.dropped.Load(), Errors: l.errors.Load(), Queued: l.queued}
}

// Put implements Sink. It is called by one goroutine: that of the log.
func (l *Lines) Put(r *Record) {
	weight := l.sampler.weight(r)
	if weight == 0 {
		return
	}
	own := *r
	own.Sampled = weight
	text := l.cfg.Format(nil, &own)
	if len(text) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.queued+len(text)+lineOverhead > l.cfg.Queue {
		l.dropped.Add(1)
		return
	}
	l.queue = append(l.queue, Line{At: r.At, Failed: r.Failed(), Text: text})
	l.queued += len(text) + lineOverhead
	l.signal()
}

func (l *Lines) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Reopen makes an output that can do so open its file anew.
func (l *Lines) Reopen() {
	if o, ok := l.cfg.Output.(interface{ Reopen() }); ok {
		o.Reopen()
	}
}

// Close implements Sink. It gives up an output that does not return.
func (l *Lines) Close() {
	l.mu.Lock()
	l.closed = true
	l.signal()
	l.mu.Unlock()
	defer l.stop()
	timer := time.AfterFunc(closeTimeout, l.stop)
	defer timer.Stop()
	select {
	case <-l.done:
		return
	case <-l.ctx.Done():
	}
	select { // the output may be in a call that no context ends
	case <-l.done:
	case <-time.After(closeTimeout):
		l.cfg.Log.Warn("an output of the access log does not end", "sink", l.cfg.Name)
	}
}

// run writes lines until the sink is closed.
func (l *Lines) run() {
	defer close(l.done)
	defer l.cfg.Output.Close() //nolint:errcheck // nothing can be done about it
	for l.ctx.Err() == nil {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
		}
		for {
			lines, closed := l.take()
			if len(lines) == 0 {
				if closed {
					return
				}
				break
			}
			l.write(lines)
		}
	}
	for lines, _ := l.take(); len(lines) > 0; lines, _ = l.take() {
		l.drop(lines)
	}
}

// take takes all lines that are queued.
func (l *Lines) take() (lines []Line, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, l.queue = l.queue, nil
	return lines, l.closed
}

// free gives back the room of lines.
func (l *Lines) free(lines []Line) {
	n := 0
	for i := range lines {
		n += len(lines[i].Text) + lineOverhead
	}
	l.mu.Lock()
	l.queued -= n
	l.mu.Unlock()
}

func (l *Lines) drop(lines []Line) {
	l.dropped.Add(uint64(len(lines)))
	l.free(lines)
}

// write writes lines, and tries again after errors until the sink has been closed.
func (l *Lines) write(lines []Line) {
	wait, failing := minRetry, false
	for len(lines) > 0 {
		n, err := l.cfg.Output.Write(l.ctx, lines[:min(len(lines), maxBatch)])
		l.written.Add(uint64(n)) //nolint:gosec // not negative
		l.free(lines[:n])
		if lines = lines[n:]; err == nil {
			if failing {
				l.cfg.Log.Info("the access log is written again", "sink", l.cfg.Name, "dropped", l.dropped.Load())
				wait, failing = minRetry, false
			}
			continue
		}
		l.errors.Add(1)
		if l.ctx.Err() != nil {
			break
		}
		if !failing {
			failing = true
			l.cfg.Log.Warn("the access log cannot be written; lines wait, and are dropped once too many do", "sink", l.cfg.Name, "error", err)
		}
		if n > 0 {
			wait = minRetry
		}
		if !l.pause(wait) {
			break
		}
		wait = min(2*wait, maxRetry)
	}
	if len(lines) > 0 {
		l.drop(lines)
	}
}

// pause waits before the next attempt. It returns false if there is to be none.
func (l *Lines) pause(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// To returns an output that writes to w, many lines at once. It does not close w.
func To(w io.Writer) Output { return &stream{w: w} }

// stream writes lines to a writer.
type stream struct {
	w      io.Writer
	buffer bytes.Buffer
	cut    bool // the last byte that was written is in the middle of a line
}

// Write implements Output. A line that is written in part counts as written: the next
// one begins on a line of its own.
func (s *stream) Write(_ context.Context, lines []Line) (int, error) {
	const most = 64 << 10
	for done := 0; done < len(lines); {
		s.buffer.Reset()
		if s.cut {
			s.buffer.WriteByte('\n')
		}
		lead, end := s.buffer.Len(), done
		for ; end < len(lines) && (end == done || s.buffer.Len()+len(lines[end].Text) < most); end++ {
			s.buffer.Write(lines[end].Text)
			s.buffer.WriteByte('\n')
		}
		n, err := s.w.Write(s.buffer.Bytes())
		if n > 0 {
			s.cut = s.buffer.Bytes()[n-1] != '\n'
		}
		if err == nil {
			done = end
			continue
		}
		for n -= lead; n > 0; done++ {
			n -= len(lines[done].Text) + 1
		}
		return done, err
	}
	return len(lines), nil
}

// Close implements Output.
func (s *stream) Close() error { return nil }
