package replica

import (
	"context"
	"sync"

	"github.com/hashicorp/raft"

	"penstock/consensus/store"
)

// commitNotifier sends the commit index to the other servers at once. Raft
// sends it with the next entries, or after CommitTimeout, which is either long,
// or short at the cost of idle traffic.
//
// A notice is an AppendEntries request without entries, of the term t in which
// the peer has acknowledged entries up to m: its previous entry is m, and its
// commit index i. It is sent once entry (i, t) is applied here, i <= m. It is
// true whatever has become of this server's leadership: (i, t) is committed,
// and the peer's log was equal to that of the leader of t up to m. If the peer
// has another log by now, it is in a later term and rejects the notice. Raft
// itself never sees the responses.
//
// The acknowledgements also show which servers recognized this one as leader at
// a certain time, for reads.
type commitNotifier struct {
	id   raft.ServerID
	send func(raft.ServerID, *raft.AppendEntriesRequest, func(error))
	off  bool

	mu     sync.Mutex
	closed bool
	serial uint64 // of the last request sent, to any server
	// applied is the last entry applied here.
	applied struct{ index, term uint64 }
	peers   map[raft.ServerID]*notifiedPeer
	// acks is closed by the next acknowledgement.
	acks chan struct{}
}

// notifiedPeer is the state of a peer that has acknowledged a request in a term
// of this server.
type notifiedPeer struct {
	term             uint64
	match, matchTerm uint64 // the last entry it is known to have
	notified         uint64 // the commit index sent to it, perhaps not yet received
	serial           uint64 // of the last request it acknowledged
	busy             bool   // a notice is in flight
	header           raft.RPCHeader
}

func newCommitNotifier(
	id raft.ServerID,
	send func(raft.ServerID, *raft.AppendEntriesRequest, func(error)),
) *commitNotifier {
	return &commitNotifier{id: id, send: send, peers: make(map[raft.ServerID]*notifiedPeer), acks: make(chan struct{})}
}

// recordRequest records a request by Raft that is about to be sent, and returns
// its serial.
func (n *commitNotifier) recordRequest(id raft.ServerID, req *raft.AppendEntriesRequest) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.serial++
	if p := n.peers[id]; p != nil && p.term == req.Term {
		p.notified = max(p.notified, req.LeaderCommitIndex)
	}
	return n.serial
}

// recordResponse records the outcome of a request by Raft.
func (n *commitNotifier) recordResponse(
	id raft.ServerID,
	serial uint64,
	req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
	err error,
) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[id]
	if err != nil {
		if p != nil && p.term == req.Term {
			p.notified = 0 // it may not have arrived
		}
		return
	}
	if !resp.Success || resp.Term != req.Term || p != nil && p.term > req.Term {
		return
	}
	if p == nil || p.term < req.Term {
		p = &notifiedPeer{term: req.Term, header: req.RPCHeader}
		n.peers[id] = p
	}
	p.serial = max(p.serial, serial)
	match, term := req.PrevLogEntry, req.PrevLogTerm
	if k := len(req.Entries); k > 0 {
		match, term = req.Entries[k-1].Index, req.Entries[k-1].Term
	}
	if match > p.match {
		p.match, p.matchTerm = match, term
	}
	p.notified = max(p.notified, min(req.LeaderCommitIndex, p.match))
	n.notify(id, p)
	select {
	case <-n.acks:
	default:
		close(n.acks)
	}
}

// recordCommit records that an entry was applied here.
func (n *commitNotifier) recordCommit(index, term uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if index <= n.applied.index {
		return
	}
	n.applied.index, n.applied.term = index, term
	for id, p := range n.peers {
		n.notify(id, p)
	}
}

// notify sends a notice if one is due. The caller holds mu.
func (n *commitNotifier) notify(id raft.ServerID, p *notifiedPeer) {
	index := n.applied.index
	if n.off || n.closed || p.busy || p.term != n.applied.term || p.match < index || p.notified >= index {
		return
	}
	p.busy = true
	p.notified = index
	n.send(id, &raft.AppendEntriesRequest{
		RPCHeader:         p.header,
		Term:              p.term,
		PrevLogEntry:      p.match,
		PrevLogTerm:       p.matchTerm,
		LeaderCommitIndex: index,
	}, func(err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		p.busy = false
		if err != nil {
			p.notified = 0 // retried after the next acknowledgement
			return
		}
		if n.peers[id] == p {
			n.notify(id, p)
		}
	})
}

// close stops the sending of notices.
func (n *commitNotifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
}

// mark returns the serial of the last request so far.
func (n *commitNotifier) mark() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.serial
}

// waitConfirmed waits until need of the servers have acknowledged, in that
// term, requests sent after the mark, and returns how many have. It returns
// ErrNotLeader when lost is closed.
func (n *commitNotifier) waitConfirmed(
	ctx context.Context,
	servers []raft.ServerID,
	need int,
	term, mark uint64,
	lost <-chan struct{},
) (have int, err error) {
	err = n.wait(ctx, lost, func() bool {
		have = 0
		for _, id := range servers {
			if p := n.peers[id]; p != nil && p.term == term && p.serial > mark {
				have++
			}
		}
		return have >= need
	})
	return have, err
}

// waitUpToDate waits until one of the servers has acknowledged the log up to
// index, in that term, and returns that server. It returns ErrNotLeader when
// lost is closed.
func (n *commitNotifier) waitUpToDate(
	ctx context.Context,
	servers []raft.ServerID,
	term, index uint64,
	lost <-chan struct{},
) (found raft.ServerID, err error) {
	err = n.wait(ctx, lost, func() bool {
		for _, id := range servers {
			if p := n.peers[id]; p != nil && p.term == term && p.match >= index {
				found = id
				return true
			}
		}
		return false
	})
	return found, err
}

// wait returns once ok, called with mu held after each acknowledgement, returns
// true.
func (n *commitNotifier) wait(ctx context.Context, lost <-chan struct{}, ok func() bool) error {
	for {
		n.mu.Lock()
		if ok() {
			n.mu.Unlock()
			return nil
		}
		select {
		case <-n.acks:
			n.acks = make(chan struct{})
		default:
		}
		acks := n.acks
		n.mu.Unlock()
		select {
		case <-acks:
		case <-lost:
			return store.ErrNotLeader
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
