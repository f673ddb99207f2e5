package dataplane

import (
	"strings"
	"sync"
	"syscall"
	"time"

	"penstock/netio"
)

// MaxEnded bounds how many ended connections a node remembers of each class: those that
// ended as they should, or at a limit, and failures. So neither many ordinary ends nor a
// flood that a limit holds off pushes out the failures. A record has about half a
// kilobyte; they take memory as they come.
const MaxEnded = 4096

// ended remembers the last connections that have ended. A loop writes to rings of its own.
type ended struct {
	loops []endedLoop
}

type endedLoop struct {
	mu              sync.Mutex // held for moments
	usual, failures ring
	_               [64]byte
}

// newEnded returns rings for a number of loops, which share MaxEnded.
func newEnded(loops int) *ended {
	e := &ended{loops: make([]endedLoop, loops)}
	for i := range e.loops {
		size := max(MaxEnded/loops/ringChunk, 1) * ringChunk
		e.loops[i].usual.size, e.loops[i].failures.size = size, size
	}
	return e
}

// isUsual reports whether a reason is not a failure: somebody wanted the end, or a limit
// kept the connection out.
func isUsual(why netio.Reason) bool {
	switch why {
	case netio.ClientFIN, netio.UpstreamFIN, netio.Drained, netio.Shutdown, netio.EndpointRemoved, netio.ClosedByOperator, netio.MaxAge,
		netio.LimitConnections, netio.LimitPerSource, netio.LimitRate, RateLimited:
		return true
	}
	return false
}

// add remembers a connection of a loop.
func (e *ended) add(loop int, i *ConnectionInfo) {
	l := &e.loops[loop%len(e.loops)]
	l.mu.Lock()
	defer l.mu.Unlock()
	if isUsual(i.Reason) {
		l.usual.add(i)
	} else {
		l.failures.add(i)
	}
}

// each calls visit for each connection, of which it may keep a copy. A loop whose
// connection ends meanwhile waits for a few calls at most.
func (e *ended) each(visit func(i *ConnectionInfo)) {
	for n := range e.loops {
		l := &e.loops[n]
		for _, r := range []*ring{&l.usual, &l.failures} {
			for at := 0; ; at += ringChunk {
				l.mu.Lock()
				chunk := r.chunk(at)
				for i := range chunk {
					visit(&chunk[i])
				}
				l.mu.Unlock()
				if len(chunk) == 0 {
					break
				}
			}
		}
	}
}

// counts returns how many connections are remembered.
func (e *ended) counts() (usual, failures int) {
	for n := range e.loops {
		l := &e.loops[n]
		l.mu.Lock()
		usual, failures = usual+l.usual.length(), failures+l.failures.length()
		l.mu.Unlock()
	}
	return usual, failures
}

// Remembered returns how many ended connections the node remembers.
func (d *Dataplane) Remembered() (usual, failures int) { return d.traffic.ended.counts() }

// ring keeps the last records. It grows by a chunk, so that no record is ever moved.
type ring struct {
	size   int // a multiple of ringChunk
	added  int
	chunks []*[ringChunk]ConnectionInfo
}

const ringChunk = 64

func (r *ring) add(i *ConnectionInfo) {
	at := r.added % r.size
	r.added++
	if at/ringChunk == len(r.chunks) {
		r.chunks = append(r.chunks, new([ringChunk]ConnectionInfo))
	}
	r.chunks[at/ringChunk][at%ringChunk] = *i
}

func (r *ring) length() int { return min(r.added, r.size) }

// chunk returns the records of the chunk that begins at a place; none: there are no more.
func (r *ring) chunk(at int) []ConnectionInfo {
	if at >= r.length() {
		return nil
	}
	return r.chunks[at/ringChunk][:min(r.length()-at, ringChunk)]
}

// describeEnd describes a connection that has just ended. It runs on its loop.
func (t *traffic) describeEnd(c *netio.Conn, why netio.Reason, i *ConnectionInfo) {
	t.describe(c, i)
	t.describeClient(c, i)
	i.Reason, i.Error, i.Ended = why, failureText(c.Failure()), time.Now()
	i.accepted = i.Ended.Add(-i.Age)
}

// remember remembers a connection that has just ended, on its loop.
func (t *traffic) remember(c *netio.Conn, why netio.Reason) {
	var i ConnectionInfo
	t.describeEnd(c, why, &i)
	t.ended.add(c.Loop(), &i)
}

// failureText returns the text of an error, bounded.
func failureText(err error) string {
	const most = 256
	if err == nil {
		return ""
	}
	if e, ok := err.(syscall.Errno); ok { //nolint:errorlint // the most frequent ones, which have a constant text
		return e.Error()
	}
	text := err.Error()
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
