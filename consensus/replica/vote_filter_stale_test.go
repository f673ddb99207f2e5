package replica

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// gatedStable blocks the first write of a term until it is released.
type gatedStable struct {
	*raft.InmemStore
	writes, release chan struct{}
}

func (g *gatedStable) SetUint64(key []byte, value uint64) error {
	if string(key) == "CurrentTerm" {
		select {
		case g.writes <- struct{}{}:
			<-g.release
		default: // the test waits for no write
		}
	}
	return g.InmemStore.SetUint64(key, value)
}

// capturingTransport gives a test Raft's request channel and heartbeat handler.
type capturingTransport struct {
	*raft.InmemTransport
	requests  chan raft.RPC
	heartbeat chan func(raft.RPC)
}

func (h capturingTransport) Consumer() <-chan raft.RPC                 { return h.requests }
func (h capturingTransport) SetHeartbeatHandler(handle func(raft.RPC)) { h.heartbeat <- handle }

// TestCandidateIgnoresRecordedLeader: a server becomes a candidate while it
// writes the term of a heartbeat to disk. Raft then records a leader that the
// candidate never clears, and rejects all other candidates because of it. If
// that leader dies and this server's log is behind, no leader could be elected.
func TestCandidateIgnoresRecordedLeader(t *testing.T) {
	t.Parallel()
	stable := &gatedStable{raft.NewInmemStore(), make(chan struct{}), make(chan struct{})}
	_, inner := raft.NewInmemTransport("c")
	trans := capturingTransport{inner, make(chan raft.RPC), make(chan func(raft.RPC), 1)}
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "c", newRaftLogger(Config{}.withDefaults().Log)
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	logs, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	servers := raft.Configuration{Servers: []raft.Server{
		{ID: "a", Address: "a"}, {ID: "b", Address: "b"}, {ID: "c", Address: "c"},
	}}
	if err := raft.BootstrapCluster(conf, logs, stable, snapshots, trans, servers); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(conf, nil, logs, stable, snapshots, trans)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})

	handle := <-trans.heartbeat
	answered := make(chan raft.RPCResponse, 1)
	go handle(raft.RPC{RespChan: answered, Command: &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("b"), Addr: []byte("b")}, Term: 5,
	}})
	<-stable.writes
	until(t, "a candidate", func() bool { return r.State() == raft.Candidate })
	close(stable.release)
	<-answered
	if leader, _ := r.LeaderWithID(); leader != "b" || r.State() != raft.Candidate {
		t.Fatalf("a %v with the leader %q: what this test is about does not happen any more", r.State(), leader)
	}

	ask := func(change func(any)) bool {
		req := &raft.RequestPreVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("a"), Addr: []byte("a")}, Term: 6, LastLogIndex: 9, LastLogTerm: 5,
		}
		change(req)
		answer := make(chan raft.RPCResponse, 1)
		trans.requests <- raft.RPC{Command: req, RespChan: answer}
		return (<-answer).Response.(*raft.RequestPreVoteResponse).Granted
	}
	if ask(func(any) {}) {
		t.Error("Raft itself clears the leader now: leaderless need not handle candidates")
	}
	if !ask(func(req any) {
		filterVotes(req, r.GetConfiguration().Configuration, leaderlessFunc(r, time.Hour))
	}) {
		t.Error("the candidate refuses another one because of a lost leader")
	}
}

func TestLeaderlessServersGrantVotes(t *testing.T) {
	t.Parallel()
	const heartbeat = time.Second
	for _, c := range []struct {
		state raft.RaftState
		heard time.Duration // time since the last contact
		want  bool
	}{
		{raft.Follower, 0, false},
		{raft.Follower, heartbeat / 2, false},
		{raft.Follower, 2 * heartbeat, true},
		{raft.Candidate, 0, true},
		{raft.Leader, 2 * heartbeat, false},
	} {
		if got := leaderless(c.state, time.Now().Add(-c.heard), heartbeat); got != c.want {
			t.Errorf("a %v whose leader was heard %v ago is leaderless: %t, want %t", c.state, c.heard, got, c.want)
		}
	}
	vote, preVote := &raft.RequestVoteRequest{}, &raft.RequestPreVoteRequest{}
	lost := func() (raft.ServerAddress, bool) { return "l", true }
	none := func() raft.Configuration { return raft.Configuration{} }
	filterVotes(vote, none, lost)
	filterVotes(preVote, none, lost)
	if !vote.LeadershipTransfer || string(preVote.Addr) != "l" {
		t.Errorf("a lost leader holds the vote: %+v, %+v", vote, preVote)
	}
}
