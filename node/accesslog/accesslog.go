// Package accesslog writes one line for each proxied connection, and for each
// request where these are routed one by one. Whoever
// brings a line never waits: lines are queued, a goroutine writes them, and
// what the queue cannot take is counted.
//
//	log := accesslog.New(accesslog.Config{Out: os.Stderr})
//	log.Write(accesslog.Record{Event: accesslog.Closed, Listener: "edge", ...})
//	log.Close()
package accesslog

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// Event is what a line tells of a connection.
type Event uint8

// The events, and the messages of their lines.
const (
	Connected Event = iota // "connection opened": its endpoint took it
	Ongoing                // "connection open": from time to time
	Closed                 // "connection closed"
	Requested              // "request": it has been answered, or given up
)

func (e Event) String() string {
	return [...]string{"connection opened", "connection open", "connection closed", "request"}[e]
}

// Record is one line. Empty fields are left out of it.
type Record struct {
	Event    Event
	At       time.Time
	ID       uint64
	Listener string
	Client   netip.AddrPort
	SNI      string // as the client sent it
	Service  string
	Endpoint string
	Reason   string // of the end
	Error    error  // behind the reason
	In, Out  uint64 // bytes from the client, from the endpoint
	Duration time.Duration
	Connect  time.Duration // until the endpoint took it
	Attempts int           // to connect
	// Of Kafka's clients: what they call themselves, and who they logged in as.
	ClientID, Software, Principal string
	// Requests is how many came by a connection whose requests are routed one
	// by one; Request is of a Requested line alone.
	Requests int64
	Request  *Request
}

// Request is what a line tells of a request of HTTP. What clients say may be
// anything: a line has the beginning of it.
type Request struct {
	Method, Host string
	Path         string // without the query, which may hold secrets
	Status       int    // 0: the client did not wait for one
	Route        string // that decided; "": none
	Rule         int    // of it; -1: none fitted
}

// Config is how a log is made. Zero values take the defaults.
type Config struct {
	// Out takes whole lines, several at once; required.
	Out  io.Writer
	JSON bool
	// Queue is how many lines may wait: 8192.
	Queue int
}

// Log is where lines go. Its methods may be called from anywhere.
type Log struct {
	queue   chan Record
	dropped atomic.Uint64
	stop    chan struct{} // closed by Close
	done    chan struct{} // closed when all is written
}

// New makes a log; Close ends it.
func New(cfg Config) *Log {
	if cfg.Queue == 0 {
		cfg.Queue = 8192
	}
	l := &Log{queue: make(chan Record, cfg.Queue), stop: make(chan struct{}), done: make(chan struct{})}
	out := bufio.NewWriterSize(lossy{cfg.Out, l}, 64<<10)
	var h slog.Handler = slog.NewTextHandler(out, nil)
	if cfg.JSON {
		h = slog.NewJSONHandler(out, &slog.HandlerOptions{ReplaceAttr: Seconds})
	}
	go l.run(h, out)
	return l
}

// Seconds makes durations seconds, which in JSON would be bare nanoseconds. It
// is for slog.HandlerOptions.
func Seconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key, a.Value.Duration().Seconds())
	}
	return a
}

// Write queues a line, or drops it. r.Request is the log's from here on.
func (l *Log) Write(r Record) {
	r.SNI = beginning(r.SNI, maxSNI)
	if q := r.Request; q != nil {
		q.Method = beginning(q.Method, maxMethod)
		q.Host = beginning(q.Host, maxSNI)
		q.Path = beginning(q.Path, maxPath)
	}
	select {
	case l.queue <- r:
	default:
		l.dropped.Add(1)
	}
}

// beginning cuts a text such that the queue does not hold the rest of it.
func beginning(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(s[:n])
}

// Dropped counts the lines that were not written.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Close writes what is queued and ends the log. Lines that come later are lost.
func (l *Log) Close() {
	close(l.stop)
	<-l.done
}

// run writes lines until the log is closed. Nothing waits in the buffer while
// the queue is empty.
func (l *Log) run(h slog.Handler, out *bufio.Writer) {
	defer close(l.done)
	for {
		select {
		case r := <-l.queue:
			l.write(h, out, r)
		default:
			out.Flush()
			select {
			case r := <-l.queue:
				l.write(h, out, r)
			case <-l.stop:
				l.finish(h, out)
				return
			}
		}
	}
}

func (l *Log) finish(h slog.Handler, out *bufio.Writer) {
	for {
		select {
		case r := <-l.queue:
			l.write(h, out, r)
		default:
			out.Flush()
			return
		}
	}
}

// maxSNI bounds what a line tells of a server name, which may be anything: the
// longest that can be valid has 253 bytes.
const maxSNI = 256

// maxMethod and maxPath bound the same of a request.
const maxMethod, maxPath = 32, 1024

// maxError bounds what it tells of an error, which may quote the peer.
const maxError = 512

// lossy takes everything: bufio would keep an error for ever, and lines must
// go on once the writer works again. What a failed write held counts as one.
type lossy struct {
	out io.Writer
	log *Log
}

func (w lossy) Write(p []byte) (int, error) {
	if _, err := w.out.Write(p); err != nil {
		w.log.dropped.Add(1)
	}
	return len(p), nil
}

// write formats one line.
func (l *Log) write(h slog.Handler, out *bufio.Writer, r Record) {
	line := slog.NewRecord(r.At, slog.LevelInfo, r.Event.String(), 0)
	line.AddAttrs(slog.Uint64("id", r.ID), slog.String("listener", r.Listener))
	if r.Client.IsValid() {
		line.AddAttrs(slog.String("client", r.Client.String()))
	}
	text := func(key, value string) {
		if value != "" {
			line.AddAttrs(slog.String(key, value))
		}
	}
	text("sni", r.SNI)
	if q := r.Request; q != nil {
		text("method", q.Method)
		text("host", q.Host)
		text("path", q.Path)
		line.AddAttrs(slog.Int("status", q.Status))
		if q.Route != "" {
			line.AddAttrs(slog.String("route", q.Route), slog.Int("rule", q.Rule))
		}
	}
	text("service", r.Service)
	text("endpoint", r.Endpoint)
	text("clientID", r.ClientID)
	text("software", r.Software)
	text("principal", r.Principal)
	text("reason", r.Reason)
	if r.Error != nil {
		why := r.Error.Error()
		text("error", why[:min(len(why), maxError)])
	}
	if r.Event != Connected {
		line.AddAttrs(slog.Uint64("in", r.In), slog.Uint64("out", r.Out), slog.Duration("duration", r.Duration))
	}
	if r.Requests > 0 {
		line.AddAttrs(slog.Int64("requests", r.Requests))
	}
	switch {
	case r.Attempts > 0 && r.Request != nil: // of a connection that may be an earlier one's
		line.AddAttrs(slog.Int("attempts", r.Attempts))
	case r.Attempts > 0:
		line.AddAttrs(slog.Duration("connect", r.Connect), slog.Int("attempts", r.Attempts))
	}
	_ = h.Handle(context.Background(), line) // lossy gives no error
}
