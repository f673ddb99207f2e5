// Package accesslog writes lines about proxied connections, and about HTTP
// requests that are routed individually. Write never blocks: it queues a line for
// a goroutine that writes it, or drops and counts the line if the queue is full.
//
//	log := accesslog.New(accesslog.Config{Out: os.Stderr})
//	log.Write(accesslog.Record{Event: accesslog.Closed, Listener: "edge", ...})
//	log.Close()
package accesslog

import (
	"bufio"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"penstock/node/trace"
)

// Event is the kind of a line.
type Event uint8

// The events, and the messages of their lines.
const (
	Connected Event = iota // "connection opened": connected to the endpoint
	Ongoing                // "connection open": written periodically
	Closed                 // "connection closed"
	Requested              // "request": answered or abandoned
)

func (e Event) String() string {
	return [...]string{"connection opened", "connection open", "connection closed", "request"}[e]
}

// Record is one line. Empty fields are omitted.
type Record struct {
	Event    Event
	At       time.Time
	ID       uint64
	Listener string
	Client   netip.AddrPort
	SNI      string // as the client sent it
	TLS      string // version of TLS with the client, such as "1.3"; "": no TLS that the node terminates
	Identity string // of the client's verified certificate: its SPIFFE ID or its subject
	Service  string
	Endpoint string
	Reason   string // why it ended
	Error    error  // the error behind Reason
	In, Out  uint64 // bytes from the client, from the endpoint
	Duration time.Duration
	Connect  time.Duration // time to connect to the endpoint
	Attempts int           // to connect
	// ClientID, Software and Principal are of Kafka clients: the names that
	// they send, and the user that they authenticated as.
	ClientID, Software, Principal string
	// Hop joins the lines of a connection on both nodes of a mesh: the ID of the
	// connection at the client, in hex. Via is where it came from, on the node behind:
	// "node/listener/destination".
	Hop, Via string
	// Permission is the TrafficPermission that denied it, Shadow the first shadowDeny
	// that would have.
	Permission, Shadow string
	// Requests is the number of requests on a connection whose requests are
	// routed individually. Request is set for Requested only.
	Requests int64
	Request  *Request
	// TraceID and SpanID name the span of the connection or request; zero: there is none.
	TraceID trace.TraceID
	SpanID  trace.SpanID
}

// Request describes an HTTP request. Method, Host and Path come from the client;
// the log truncates them.
type Request struct {
	Method, Host string
	Path         string // without the query, which may hold secrets
	Status       int    // 0: the client got no answer
	Route        string // the route that decided; "": none
	Rule         int    // index of its rule; -1: none matched
}

// Config is the configuration of a Log. Zero values mean the defaults.
type Config struct {
	// Out receives whole lines, several per Write; required.
	Out  io.Writer
	JSON bool
	// Queue is the number of lines that may be queued: 8192.
	Queue int
}

// Log writes an access log. Its methods are safe for concurrent use.
type Log struct {
	queue   chan Record
	dropped atomic.Uint64
	stop    chan struct{} // closed by Close
	done    chan struct{} // closed when all lines are written
}

// New makes a Log. The caller must close it.
func New(cfg Config) *Log {
	if cfg.Queue == 0 {
		cfg.Queue = 8192
	}
	l := &Log{queue: make(chan Record, cfg.Queue), stop: make(chan struct{}), done: make(chan struct{})}
	out := bufio.NewWriterSize(errorCounter{cfg.Out, l}, 64<<10)
	var h slog.Handler = slog.NewTextHandler(out, nil)
	if cfg.JSON {
		h = slog.NewJSONHandler(out, &slog.HandlerOptions{ReplaceAttr: Seconds})
	}
	go l.run(h, out)
	return l
}

// Seconds converts durations to seconds, which slog writes as nanoseconds in JSON.
// It is a ReplaceAttr function for slog.HandlerOptions.
func Seconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key, a.Value.Duration().Seconds())
	}
	return a
}

// Write queues a line, or drops it if the queue is full. It takes ownership of
// r.Request.
func (l *Log) Write(r Record) {
	r.SNI = truncate(r.SNI, maxSNI)
	r.Identity = truncate(r.Identity, maxIdentity)
	if q := r.Request; q != nil {
		q.Method = truncate(q.Method, maxMethod)
		q.Host = truncate(q.Host, maxSNI)
		q.Path = truncate(q.Path, maxPath)
	}
	select {
	case l.queue <- r:
	default:
		l.dropped.Add(1)
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

// Dropped returns the number of lines that were not written.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Close writes the queued lines and ends the log. Later lines are lost.
func (l *Log) Close() {
	close(l.stop)
	<-l.done
}

// run writes lines until the log is closed. It flushes the buffer whenever the
// queue is empty.
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

// maxSNI bounds the server name or Host in a line, in bytes. Clients can send
// anything; a valid name has at most 253 bytes.
const maxSNI = 256

// maxIdentity bounds a client's identity, in bytes: a SPIFFE ID has at most so many.
const maxIdentity = 2048

// maxMethod and maxPath bound the method and path of a request, in bytes.
const maxMethod, maxPath = 32, 1024

// maxError bounds the text of an error, in bytes: it may quote the peer.
const maxError = 512

// errorCounter is a writer that hides errors: bufio would return an error for ever, but
// lines must be written again once Out recovers. It counts each failed Write as
// one dropped line, however many it held.
type errorCounter struct {
	out io.Writer
	log *Log
}

func (w errorCounter) Write(p []byte) (int, error) {
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
	text("tls", r.TLS)
	text("identity", r.Identity)
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
	text("hop", r.Hop)
	text("via", r.Via)
	text("reason", r.Reason)
	text("permission", r.Permission)
	text("shadowDeny", r.Shadow)
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
	if r.TraceID != (trace.TraceID{}) {
		line.AddAttrs(slog.String("trace", hex.EncodeToString(r.TraceID[:])), slog.String("span", hex.EncodeToString(r.SpanID[:])))
	}
	switch {
	case r.Attempts > 0 && r.Request != nil: // without connect: the connection may be older
		line.AddAttrs(slog.Int("attempts", r.Attempts))
	case r.Attempts > 0:
		line.AddAttrs(slog.Duration("connect", r.Connect), slog.Int("attempts", r.Attempts))
	}
	_ = h.Handle(context.Background(), line) // errorCounter returns no error
}
