package replica

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// serveHeartbeats starts a server that answers heartbeats with ask, and returns
// a sender connected to it.
func serveHeartbeats(t testing.TB, ask func(*raft.AppendEntriesRequest) raft.RPCResponse) *heartbeats {
	done := make(chan struct{})
	h := &heartbeatHandler{done: done}
	handle := func(rpc raft.RPC) { rpc.RespChan <- ask(rpc.Command.(*raft.AppendEntriesRequest)) }
	h.raft.Store(&handle)
	b := newHeartbeats("leader", func(raft.ServerID) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			_ = h.serve(there, there)
			there.Close()
		}()
		return here, nil
	})
	t.Cleanup(func() {
		close(done)
		for _, c := range b.conns {
			c.Close()
		}
	})
	return b
}

func TestHeartbeatsRoundTrip(t *testing.T) {
	var heard []raft.AppendEntriesRequest
	next := raft.RPCResponse{}
	b := serveHeartbeats(t, func(req *raft.AppendEntriesRequest) raft.RPCResponse {
		r := *req
		r.ID = bytes.Clone(req.ID)
		heard = append(heard, r)
		return next
	})
	req := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("leader"), Addr: []byte("leader")}}
	for i, want := range []raft.AppendEntriesResponse{
		{Term: 1<<40 + 1, LastLog: 1<<50 + 7, Success: true},
		{Term: 2, NoRetryBackoff: true},
		{Term: 3, LastLog: 1, Success: true, NoRetryBackoff: true},
		{Term: 4},
	} {
		req.Term = uint64(i+1) << 33
		next.Response = &want
		got := raft.AppendEntriesResponse{Term: 99, LastLog: 99, Success: true, NoRetryBackoff: true}
		if err := b.send("b", req, &got); err != nil {
			t.Fatal(err)
		}
		if got.Term != want.Term || got.LastLog != want.LastLog || got.Success != want.Success || got.NoRetryBackoff != want.NoRetryBackoff {
			t.Errorf("the answer is %+v, want %+v", got, want)
		}
		h := heard[i]
		if h.Term != req.Term || string(h.ID) != "leader" || string(h.Addr) != "leader" || h.ProtocolVersion != 3 || !isHeartbeat(&h) {
			t.Errorf("Raft gets %+v, of %+v", h, req)
		}
	}
	next = raft.RPCResponse{Error: errors.New("no")}
	if err := b.send("b", req, new(raft.AppendEntriesResponse)); err == nil {
		t.Error("a heartbeat that Raft refuses has a response")
	}
	if len(b.conns) != 0 {
		t.Error("a closed connection is kept")
	}
	next = raft.RPCResponse{Response: &raft.AppendEntriesResponse{Term: 9}}
	if err := b.send("b", req, new(raft.AppendEntriesResponse)); err != nil {
		t.Errorf("the next heartbeat: %v", err)
	}
	b.conns["b"] = heartbeatConn{b.conns["b"].Conn, time.Now().Add(-2 * heartbeatIdle)}
	if err := b.send("c", req, new(raft.AppendEntriesResponse)); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.conns["b"]; ok || len(b.conns) != 1 {
		t.Errorf("connections to %d servers, want one to the follower", len(b.conns))
	}
}

// Heartbeats do not queue behind Raft's work on its log.
func TestHeartbeatsUseTheirOwnConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		a := w.cluster(3)
		w.mustCommit(a, put("A", "x", "1"))
		until(t, "heartbeats to both others", func() bool {
			b := a.transport.heartbeats
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.conns) == 2
		})
		term := a.Leadership().Term
		for _, id := range []string{"b", "c"} { // for a while heartbeats are their only contact
			before := w.servers[id].raft.LastContact()
			until(t, "a heartbeat", func() bool { return w.servers[id].raft.LastContact().After(before) })
		}
		if s := a.Leadership(); s.Role != RoleLeader || s.Term != term {
			t.Errorf("leadership changed: %+v", s)
		}
	})
}

// FuzzHeartbeats feeds bytes to a heartbeat connection.
func FuzzHeartbeats(f *testing.F) {
	f.Add([]byte("H\x03\x06leader\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02"))
	f.Add([]byte("H\x03\x00"))
	f.Add([]byte("H\x03\xffshort"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h := &heartbeatHandler{done: make(chan struct{})}
		asked := 0
		handle := func(rpc raft.RPC) {
			req := rpc.Command.(*raft.AppendEntriesRequest)
			if !isHeartbeat(req) || req.Term == 0 || len(req.ID) == 0 {
				t.Errorf("not a heartbeat: %+v", req)
			}
			asked++
			rpc.RespChan <- raft.RPCResponse{Response: &raft.AppendEntriesResponse{Success: true}}
		}
		h.raft.Store(&handle)
		var out bytes.Buffer
		if err := h.serve(bytes.NewReader(in), &out); err == nil {
			t.Error("no end")
		} else if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errHeartbeat) {
			t.Error(err)
		}
		if out.Len() != asked*answerSize {
			t.Errorf("%d bytes for %d heartbeats", out.Len(), asked)
		}
	})
}
