package consensus

import (
	"context"
	"sync"

	"github.com/hashicorp/raft"
)

// commitNotifier tell the other servers at once what is committed. Raft tells them
// with the next entries, or after CommitTimeout, which is long where nothing
// changes or costs idle traffic where it is short.
//
// A notice is an AppendEntries request without entries, of the term t in which
// the peer has acknowledged entries up to m, and says: what stands before m is
// what you have; of that, all up to i is committed. It is sent when the entry
// (i, t) has acted here, i <= m. That is the truth whatever has become of this
// server's lead: (i, t) is committed, and the peer's log was equal to that of
// the leader of t up to m. Should the peer have another log by now, it is in a
// later term, and refuses. Raft itself never sees the answers.
//
// The acknowledgements also say which servers took this one for their leader
// at a certain time, for reads.
type commitNotifier struct {
	id   raft.ServerID
	send func(raft.ServerID, *raft.AppendEntriesRequest, func(error))
	off  bool

	mu     sync.Mutex
	closed bool
	serial uint64 // of the last request that was begun to be sent, to whomever
	// entry is the last one that has acted here.
	entry struct{ index, term uint64 }
	peers map[raft.ServerID]*notifiedPeer
	// acks is closed by the next acknowledgement when somebody waits for it.
	acks chan struct{}
}

// notifiedPeer is what is known of a peer since it has acknowledged something in a
// term of this server.
type notifiedPeer struct {
	term             uint64
	match, matchTerm uint64 // the last entry that it is known to have
	notified         uint64 // the commit index that is on its way to it, or has arrived
	serial           uint64 // of the last request that it acknowledged
	busy             bool   // a notice is on its way
	header           raft.RPCHeader
}

func newCommitNotifier(id raft.ServerID, send func(raft.ServerID, *raft.AppendEntriesRequest, func(error))) *commitNotifier {
	return &commitNotifier{id: id, send: send, peers: make(map[raft.ServerID]*notifiedPeer), acks: make(chan struct{})}
}

// sending notes a request of Raft, and returns its serial.
func (n *commitNotifier) sending(id raft.ServerID, req *raft.AppendEntriesRequest) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.serial++
	if p := n.peers[id]; p != nil && p.term == req.Term {
		p.notified = max(p.notified, req.LeaderCommitIndex)
	}
	return n.serial
}

// answered notes what became of a request of Raft.
func (n *commitNotifier) answered(id raft.ServerID, serial uint64, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, err error) {
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

// committed notes that an entry has acted here.
func (n *commitNotifier) committed(index, term uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if index <= n.entry.index {
		return
	}
	n.entry.index, n.entry.term = index, term
	for id, p := range n.peers {
		n.notify(id, p)
	}
}

// notify sends a notice if there is something to tell. The caller holds mu.
func (n *commitNotifier) notify(id raft.ServerID, p *notifiedPeer) {
	index := n.entry.index
	if n.off || n.closed || p.busy || p.term != n.entry.term || p.match < index || p.notified >= index {
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
			p.notified = 0 // the next acknowledgement tries again
			return
		}
		if n.peers[id] == p {
			n.notify(id, p)
		}
	})
}

// close ends the sending of notices.
func (n *commitNotifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
}

// mark is the serial of the last request so far.
func (n *commitNotifier) mark() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.serial
}

// confirmed waits until so many of the servers have acknowledged, in that
// term, requests that were sent after the mark. It returns ErrNotLeader when
// lost is closed.
func (n *commitNotifier) confirmed(ctx context.Context, servers []raft.ServerID, need int, term, mark uint64, lost <-chan struct{}) error {
	return n.wait(ctx, lost, func() bool {
		have := 0
		for _, id := range servers {
			if p := n.peers[id]; p != nil && p.term == term && p.serial > mark {
				have++
			}
		}
		return have >= need
	})
}

// upToDate waits until one of the servers has acknowledged, in that term, the
// log up to the index, and returns it. It returns ErrNotLeader when lost is closed.
func (n *commitNotifier) upToDate(ctx context.Context, servers []raft.ServerID, term, index uint64, lost <-chan struct{}) (found raft.ServerID, err error) {
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

// wait looks again after each acknowledgement; it holds mu when it does.
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
			return ErrNotLeader
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
