package consensus

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// heartbeats carry heartbeats. An idle cluster does and sends little else, and as
// Raft writes them down, with the names of their fields, they are nearly ten
// times as long as what they say. So each server that is led has a connection
// of its own for them, which begins with
//
//	beatMark  protocol version of Raft  length of the leader's ID  the ID
//
// followed, in turns, by the leader's term (8 bytes, like all numbers here big
// endian) and the answer: the other's term (8), its last log entry (8), flags (1).
type heartbeats struct {
	id   raft.ServerID
	dial func(raft.ServerID) (net.Conn, error)

	mu    sync.Mutex
	conns map[raft.ServerID]heartbeatConn // that nobody uses now
}

// heartbeatConn is a connection that may lie idle, from when on.
type heartbeatConn struct {
	net.Conn
	since time.Time
}

const (
	// heartbeatMark begins connections for heartbeats. Raft's own begin with the
	// type of a request, which is a small number.
	heartbeatMark = 'H'
	// heartbeatIdle is how long a connection may lie idle.
	heartbeatIdle = time.Minute

	requestSize = 8
	answerSize  = 8 + 8 + 1

	flagSuccess   = 1
	flagNoBackoff = 2
)

var errHeartbeat = errors.New("not a heartbeat")

func newHeartbeats(id raft.ServerID, dial func(raft.ServerID) (net.Conn, error)) *heartbeats {
	return &heartbeats{id: id, dial: dial, conns: make(map[raft.ServerID]heartbeatConn)}
}

// send sends a heartbeat, and waits for the answer.
func (b *heartbeats) send(to raft.ServerID, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	var message []byte
	c := b.take(to)
	if c == nil {
		b.sweep()
		var err error
		if c, err = b.dial(to); err != nil {
			return err
		}
		message = append(message, heartbeatMark, byte(req.ProtocolVersion), byte(len(b.id)))
		message = append(message, b.id...)
	}
	message = binary.BigEndian.AppendUint64(message, req.Term)
	var answer [answerSize]byte
	_, err := c.Write(message)
	if err == nil {
		_, err = io.ReadFull(c, answer[:])
	}
	if err != nil {
		c.Close()
		return err
	}
	resp.Term = binary.BigEndian.Uint64(answer[:])
	resp.LastLog = binary.BigEndian.Uint64(answer[8:])
	resp.Success = answer[16]&flagSuccess != 0
	resp.NoRetryBackoff = answer[16]&flagNoBackoff != 0
	b.put(to, c)
	return nil
}

// take is the idle connection to a server, or nil.
func (b *heartbeats) take(to raft.ServerID) net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.conns[to]
	if !ok {
		return nil
	}
	delete(b.conns, to)
	return c.Conn
}

// put keeps a connection for the next heartbeat.
func (b *heartbeats) put(to raft.ServerID, c net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o, ok := b.conns[to]; ok { // of a lead before this one
		o.Close()
	}
	b.conns[to] = heartbeatConn{c, time.Now()}
}

// sweep closes the connections to servers that are not led any more.
func (b *heartbeats) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, c := range b.conns {
		if time.Since(c.since) > heartbeatIdle {
			c.Close()
			delete(b.conns, id)
		}
	}
}

// heartbeatHandler passes heartbeats on to Raft, past its queue: what it does with its
// log must not keep them waiting.
type heartbeatHandler struct {
	raft atomic.Pointer[func(raft.RPC)] // nil before there is a Raft
	done <-chan struct{}
}

// serve answers heartbeats, as long as they come. What begins with a mark is
// to be read from r.
func (h *heartbeatHandler) serve(r io.Reader, w io.Writer) error {
	head := make([]byte, 3, 3+255)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	if head[0] != heartbeatMark || head[2] == 0 {
		return errHeartbeat
	}
	id := head[3 : 3+int(head[2])]
	if _, err := io.ReadFull(r, id); err != nil {
		return err
	}
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(head[1]), ID: id, Addr: id},
	}
	answers := make(chan raft.RPCResponse, 1)
	var request [requestSize]byte
	answer := make([]byte, 0, answerSize)
	for {
		if _, err := io.ReadFull(r, request[:]); err != nil {
			return err
		}
		if req.Term = binary.BigEndian.Uint64(request[:]); req.Term == 0 {
			return errHeartbeat // there is no such term
		}
		resp, err := h.ask(raft.RPC{Command: req, RespChan: answers}, answers)
		if err != nil {
			return err
		}
		answer = binary.BigEndian.AppendUint64(answer[:0], resp.Term)
		answer = binary.BigEndian.AppendUint64(answer, resp.LastLog)
		var flags byte
		if resp.Success {
			flags |= flagSuccess
		}
		if resp.NoRetryBackoff {
			flags |= flagNoBackoff
		}
		if _, err := w.Write(append(answer, flags)); err != nil {
			return err
		}
	}
}

func (h *heartbeatHandler) ask(rpc raft.RPC, answers <-chan raft.RPCResponse) (*raft.AppendEntriesResponse, error) {
	ask := h.raft.Load()
	if ask == nil {
		return nil, raft.ErrTransportShutdown
	}
	(*ask)(rpc)
	select {
	case a := <-answers:
		resp, ok := a.Response.(*raft.AppendEntriesResponse)
		if a.Error != nil || !ok {
			return nil, errors.Join(errHeartbeat, a.Error)
		}
		return resp, nil
	case <-h.done: // Raft does not answer when it ends
		return nil, raft.ErrTransportShutdown
	}
}
