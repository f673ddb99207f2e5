package replica

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// transport is Raft's network transport with these differences. Servers are
// addressed by ID: the address in requests, votes and connections is the ID, so
// that no address in the configuration is ever trusted. The commit notifier
// records requests and responses. Heartbeats go through the batcher, over
// connections of their own. Candidates unknown to this server get an answer. A
// peer that stalls in the middle of a snapshot cannot block this server.
type transport struct {
	*raft.NetworkTransport
	id         raft.ServerID
	streams    *streams
	notifier   *commitNotifier
	batcher    *heartbeatBatcher
	heartbeats *heartbeats
	rpcs       chan raft.RPC
	done       chan struct{}
	tasks      sync.WaitGroup
	once       sync.Once
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

const (
	// maxIdleConns is the number of idle connections kept to each server: one for
	// entries, one for notices and votes. Heartbeats have their own.
	maxIdleConns = 2
	// snapshotRate is the minimum number of snapshot bytes that a peer must
	// receive per Config.Timeout. The response may take as long as that allows for
	// the whole snapshot.
	snapshotRate = 2 << 20
)

// addresses maps each server ID to itself.
type addresses struct{}

func (addresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

func newTransport(cfg Config, log *raftLogger) *transport {
	t := &transport{
		id:      raft.ServerID(cfg.ID),
		streams: newStreams(cfg.Streams, cfg.Timeout),
		batcher: newHeartbeatBatcher(cfg.Lease),
		rpcs:    make(chan raft.RPC),
		done:    make(chan struct{}),
	}
	inFlight := 0 // Raft's default
	if cfg.plainReplication {
		inFlight = 1
	}
	t.NetworkTransport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider:   addresses{},
		Logger:                  log,
		Stream:                  t.streams,
		MaxPool:                 maxIdleConns,
		MaxRPCsInFlight:         inFlight,
		Timeout:                 cfg.Timeout,
		MsgpackUseNewTimeFormat: true,
	})
	t.TimeoutScale = snapshotRate
	t.heartbeats = newHeartbeats(t.id, func(id raft.ServerID) (net.Conn, error) {
		return t.streams.Dial(raft.ServerAddress(id), cfg.Timeout)
	})
	t.notifier = newCommitNotifier(t.id, t.sendNotice)
	t.notifier.off = cfg.noNotices
	return t
}

// start starts forwarding other servers' requests to Raft.
func (t *transport) start(r *raft.Raft, heartbeat time.Duration) {
	configuration := func() raft.Configuration { return r.GetConfiguration().Configuration() }
	t.tasks.Go(func() { t.receive(configuration, leaderlessFunc(r, heartbeat)) })
}

// SetHeartbeatHandler implements raft.Transport.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.streams.heartbeats.raft.Store(&handle)
	t.NetworkTransport.SetHeartbeatHandler(handle)
}

// LocalAddr implements raft.Transport.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.id) }

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// receive forwards other servers' requests.
func (t *transport) receive(configuration func() raft.Configuration, leaderless func() (raft.ServerAddress, bool)) {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if rpc.Reader != nil {
				rpc.Reader = snapshotReader{rpc.Reader, t.streams}
			}
			filterVotes(rpc.Command, configuration, leaderless)
			select {
			case t.rpcs <- rpc:
			case <-t.done:
				rpc.Respond(nil, raft.ErrTransportShutdown)
				return
			}
		case <-t.done:
			return
		}
	}
}

// snapshotReader reads a snapshot from a peer, with a deadline for each read:
// Raft is blocked meanwhile.
type snapshotReader struct {
	io.Reader
	streams *streams
}

func (r snapshotReader) Read(b []byte) (int, error) {
	r.streams.midMessage.Add(1)
	defer r.streams.midMessage.Add(-1)
	return r.Reader.Read(b)
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(
	id raft.ServerID,
	target raft.ServerAddress,
	req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	send := func() error { return t.NetworkTransport.AppendEntries(id, target, req, resp) }
	if isHeartbeat(req) {
		t.batcher.wait(id)
		send = func() error { return t.heartbeats.send(id, req, resp) }
	}
	serial := t.notifier.recordRequest(id, req)
	err := send()
	t.notifier.recordResponse(id, serial, req, resp, err)
	return err
}

// sendNotice sends a commit notice, bypassing Raft.
func (t *transport) sendNotice(id raft.ServerID, req *raft.AppendEntriesRequest, done func(error)) {
	t.tasks.Go(func() {
		var resp raft.AppendEntriesResponse
		done(t.NetworkTransport.AppendEntries(id, raft.ServerAddress(id), req, &resp))
	})
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, id: id, notifier: t.notifier, answers: make(chan raft.AppendFuture), done: make(chan struct{})}
	t.tasks.Go(p.receive)
	return p, nil
}

// Close implements raft.WithClose.
func (t *transport) Close() error {
	t.once.Do(func() { close(t.done) })
	t.notifier.close()
	err := t.streams.close()
	t.CloseStreams()
	return errors.Join(err, t.NetworkTransport.Close())
}

// pipeline is Raft's pipeline with its responses recorded by the notifier.
type pipeline struct {
	raft.AppendPipeline
	id       raft.ServerID
	notifier *commitNotifier
	answers  chan raft.AppendFuture
	once     sync.Once
	done     chan struct{}

	mu      sync.Mutex
	serials []uint64 // of unanswered requests, in order
}

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	serial := p.notifier.recordRequest(p.id, req)
	p.mu.Lock()
	p.serials = append(p.serials, serial)
	p.mu.Unlock()
	f, err := p.AppendPipeline.AppendEntries(req, resp)
	if err != nil { // the pipeline is broken
		p.notifier.recordResponse(p.id, serial, req, resp, err)
	}
	return f, err
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}

func (p *pipeline) receive() {
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			p.mu.Lock()
			serial := p.serials[0]
			p.serials = p.serials[1:]
			p.mu.Unlock()
			p.notifier.recordResponse(p.id, serial, f.Request(), f.Response(), f.Error())
			select {
			case p.answers <- f:
			case <-p.done:
				return
			}
		case <-p.done:
			return
		}
	}
}
