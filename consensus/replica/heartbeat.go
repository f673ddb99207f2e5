package replica

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

// heartbeats sends heartbeats over connections of their own, one for each
// follower. An idle cluster sends little else, and Raft's encoding, with field
// names, is nearly ten times the size. A connection begins with
//
//	heartbeatMark  Raft's protocol version  length of the leader's ID  the ID
//
// followed, in turns, by the leader's term (8 bytes; all integers here are big
// endian) and the response: the follower's term (8), its last log entry (8),
// flags (1).
type heartbeats struct {
	id   raft.ServerID
	dial func(raft.ServerID) (net.Conn, error)

	mu    sync.Mutex
	conns map[raft.ServerID]heartbeatConn // idle
}

// heartbeatConn is an idle connection and the time since when it is idle.
type heartbeatConn struct {
	net.Conn
	since time.Time
}

const (
	// heartbeatMark is the first byte of a heartbeat connection. Raft's own begin
	// with a request type, which is a small number.
	heartbeatMark = 'H'
	// heartbeatIdle is how long a connection may be idle.
	heartbeatIdle = time.Minute

	requestSize = 8
	answerSize  = 8 + 8 + 1

	flagSuccess   = 1
	flagNoBackoff = 2
)

var errHeartbeat = errors.New("invalid heartbeat")

func newHeartbeats(id raft.ServerID, dial func(raft.ServerID) (net.Conn, error)) *heartbeats {
	return &heartbeats{id: id, dial: dial, conns: make(map[raft.ServerID]heartbeatConn)}
}

// send sends a heartbeat and waits for the response.
func (b *heartbeats) send(to raft.ServerID, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	var message []byte
	c := b.takeIdle(to)
	if c == nil {
		b.closeStale()
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
	b.putIdle(to, c)
	return nil
}

// takeIdle returns the idle connection to a server, or nil.
func (b *heartbeats) takeIdle(to raft.ServerID) net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.conns[to]
	if !ok {
		return nil
	}
	delete(b.conns, to)
	return c.Conn
}

// putIdle keeps a connection for the next heartbeat.
func (b *heartbeats) putIdle(to raft.ServerID, c net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o, ok := b.conns[to]; ok { // from an earlier term as leader
		o.Close()
	}
	b.conns[to] = heartbeatConn{c, time.Now()}
}

// closeStale closes the connections to servers that are no longer followers.
func (b *heartbeats) closeStale() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, c := range b.conns {
		if time.Since(c.since) > heartbeatIdle {
			c.Close()
			delete(b.conns, id)
		}
	}
}

// heartbeatHandler passes heartbeats to Raft directly, not through Raft's
// queue: they must not wait for work on its log.
type heartbeatHandler struct {
	raft atomic.Pointer[func(raft.RPC)] // nil before Raft runs
	done <-chan struct{}
}

// serve answers heartbeats until an error. r begins with the heartbeatMark.
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
			return errHeartbeat // terms start at 1
		}
		resp, err := h.handle(raft.RPC{Command: req, RespChan: answers}, answers)
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

func (h *heartbeatHandler) handle(rpc raft.RPC, answers <-chan raft.RPCResponse) (*raft.AppendEntriesResponse, error) {
	handle := h.raft.Load()
	if handle == nil {
		return nil, raft.ErrTransportShutdown
	}
	(*handle)(rpc)
	select {
	case a := <-answers:
		resp, ok := a.Response.(*raft.AppendEntriesResponse)
		if a.Error != nil || !ok {
			return nil, errors.Join(errHeartbeat, a.Error)
		}
		return resp, nil
	case <-h.done: // Raft does not respond during shutdown
		return nil, raft.ErrTransportShutdown
	}
}
