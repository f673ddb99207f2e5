package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Config says what a Replica is made of. Zero values take the defaults.
type Config struct {
	// ID is the server's ID: of this data folder, for ever, whatever its address.
	ID string
	// Dir is the folder that the replica owns: raft.db, snapshots and applied
	// are in it. It is made when missing, with mode 0700.
	Dir string
	// Streams carry what the servers say to each other. The replica closes it.
	Streams StreamLayer
	// Addr is where the other servers find this one. The replica only notes it
	// down for people; Streams find a server by its ID.
	Addr string
	// Limits bound the store. They must be the same on all servers.
	Limits Limits
	// Log gets what operators should know, and at debug level what Raft says.
	Log *slog.Logger

	// Heartbeat is how long a server goes without a word of its leader before
	// it looks for another. 1s.
	Heartbeat time.Duration
	// Election is how long a candidate waits for votes; at least Heartbeat. 1s.
	Election time.Duration
	// Lease is how long a leader goes on that hears of too few voters; at most
	// Heartbeat. Leaders send a word after half of it: the longer it is, the
	// fewer there need to be. Nothing that a leader says is taken for granted
	// for as long as it has its lease. As long as Heartbeat.
	Lease time.Duration
	// CommitInterval is how often a leader that has nothing to send repeats how
	// far the log is committed, and tries anew to bring entries to servers
	// that could not be reached. 2s.
	CommitInterval time.Duration
	// Timeout bounds each step of a conversation between servers: the dialing,
	// the answer, and each time that no byte moves. 10s.
	Timeout time.Duration

	// SnapshotThreshold is how many entries the log has beyond the last
	// snapshot when the next one is taken. 8192.
	SnapshotThreshold uint64
	// SnapshotInterval is how often that is looked at; up to twice as long, at
	// random, so that servers do not all do it at once. 2m.
	SnapshotInterval time.Duration
	// TrailingLogs is how many entries stay in the log although a snapshot has
	// them, for servers that are a little behind. At least 1; 10240.
	TrailingLogs uint64

	// MaxInFlight bounds the proposals that have not acted or failed yet. 1024.
	MaxInFlight int
	// MaxInFlightBytes bounds their bytes; one of any size may be alone. 128 MiB.
	MaxInFlightBytes int

	// NoSync leaves it to the system when the log is written to the disk. A
	// power failure then loses what was promised: for benchmarks only.
	NoSync bool

	// plainReplication sends one message at a time to each server, and
	// noNotices leaves it to CommitInterval alone how soon the others act.
	// Tests and benchmarks compare with them.
	plainReplication, noNotices bool
}

func (c Config) withDefaults() Config {
	set(&c.Heartbeat, time.Second)
	set(&c.Election, max(time.Second, c.Heartbeat))
	set(&c.Lease, c.Heartbeat)
	set(&c.CommitInterval, 2*time.Second)
	set(&c.Timeout, 10*time.Second)
	set(&c.SnapshotThreshold, 8192)
	set(&c.SnapshotInterval, 2*time.Minute)
	set(&c.TrailingLogs, 10240)
	set(&c.MaxInFlight, 1024)
	set(&c.MaxInFlightBytes, 128<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// StreamLayer carries connections between servers. It must know who is at the
// other end: whoever can connect can speak for any server.
type StreamLayer interface {
	net.Listener
	// Dial connects to the server with that ID, wherever it is now.
	Dial(serverID string, timeout time.Duration) (net.Conn, error)
}

// Errors of a Replica alone.
var (
	// ErrBusy: too many proposals are in flight; nothing has changed.
	ErrBusy = errors.New("too many proposals in flight")
	// ErrState: there is a cluster's state already.
	ErrState = errors.New("the server has state already")
	// ErrNoLog: the server's log, by which it may have voted, is not there any
	// more. It must not be the same server without it.
	ErrNoLog = errors.New("the log is gone")
	// ErrServers: the servers are not, or no longer, as the change expects.
	ErrServers = errors.New("the servers have changed")
	// ErrQuorum: those who would vote then could not decide anything.
	ErrQuorum = errors.New("too few of the voters that would remain answer")
)

// Replica is a store that servers share through Raft. Views are what this
// server knows: all servers see the same views, some later than others. All
// methods may be called from anywhere.
//
//	r, err := consensus.Open(consensus.Config{ID: id, Dir: dir, Streams: streams})
//	...
//	result, err := r.Commit(ctx, &consensus.Batch{Ops: ops}) // at the leader
//
// What is on disk is served from the moment that Open returns, also when no
// other server can be reached.
type Replica struct {
	singly    atomic.Bool // no groups: see Singly
	cfg       Config
	log       *slog.Logger
	store     *logStore
	snapshots *snapshots
	applied   *appliedFile
	machine   *machine
	transport *transport
	raft      *raft.Raft

	proposals proposals
	watch     watch
	reads     reads

	outstanding atomic.Int64 // futures of Raft that somebody waits for
	tasks       sync.WaitGroup

	ending   atomic.Bool   // Close was called
	closing  chan struct{} // closed when Close begins, or the replica has failed
	closed   chan struct{} // closed when nothing runs any more
	failOnce sync.Once
	failed   chan struct{} // closed when the replica cannot go on
	failure  error         // why; set before failed is closed
}

// Open starts the server on what its folder holds. A server whose folder is
// empty waits to be added by others, or for Bootstrap.
func Open(cfg Config) (*Replica, error) {
	cfg = cfg.withDefaults()
	if cfg.ID == "" || cfg.Dir == "" || cfg.Streams == nil {
		return nil, errors.New("replica: ID, Dir and Streams must be given")
	}
	r := &Replica{
		cfg: cfg, log: cfg.Log,
		closing: make(chan struct{}), closed: make(chan struct{}), failed: make(chan struct{}),
	}
	r.proposals.init(cfg)
	r.watch.init()
	if err := r.open(); err != nil {
		close(r.closing)
		r.closeFiles()
		if r.transport == nil {
			err = errors.Join(err, cfg.Streams.Close())
		} else {
			err = errors.Join(err, r.transport.Close())
		}
		return nil, fmt.Errorf("replica in %s: %w", cfg.Dir, err)
	}
	r.start()
	return r, nil
}

// open makes all parts; what it has made before an error is for the caller to close.
func (r *Replica) open() (err error) {
	if err := os.MkdirAll(r.cfg.Dir, 0o700); err != nil {
		return err
	}
	hc := newRaftLogger(r.log)
	if r.applied, err = openApplied(filepath.Join(r.cfg.Dir, "applied")); err != nil {
		return err
	}
	if r.snapshots, err = openSnapshots(r.cfg.Dir, hc); err != nil {
		return err
	}
	if r.store, err = openLog(filepath.Join(r.cfg.Dir, "raft.db"), r.cfg.NoSync, r.snapshots, r.closing, r.log); err != nil {
		return err
	}
	if err := r.store.lost(r.applied); err != nil {
		return err
	}
	if r.machine, err = rebuild(r.store, r.snapshots, r.applied, r.cfg.Limits, r.log); err != nil {
		return err
	}
	r.transport = newTransport(r.cfg, hc)
	r.machine.fail = r.fail
	r.machine.committed = r.transport.notifier.committed
	r.machine.configured = r.watch.poke
	return r.openRaft(hc)
}

// openRaft gives all parts to Raft. It panics about what it cannot read.
func (r *Replica) openRaft(hc *raftLogger) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("raft: %w: %v", ErrDamaged, p)
		}
	}()
	r.raft, err = raft.NewRaft(r.raftConfig(hc), r.machine, r.store, r.store, r.snapshots, r.transport)
	if err != nil {
		return fmt.Errorf("raft: %w", err)
	}
	r.transport.start(r.raft, r.cfg.Heartbeat)
	return nil
}

func (r *Replica) raftConfig(hc *raftLogger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(r.cfg.ID)
	c.Logger = hc
	c.HeartbeatTimeout = r.cfg.Heartbeat
	c.ElectionTimeout = r.cfg.Election
	c.LeaderLeaseTimeout = r.cfg.Lease
	c.CommitTimeout = r.cfg.CommitInterval
	c.SnapshotThreshold = r.cfg.SnapshotThreshold
	c.SnapshotInterval = r.cfg.SnapshotInterval
	c.TrailingLogs = r.cfg.TrailingLogs
	c.BatchApplyCh = true      // so that one goroutine can enqueue what one write takes
	c.ShutdownOnRemove = false // a server that was removed goes on serving what it has
	c.NoLegacyTelemetry = true
	return c
}

// start sets going what runs until Close.
func (r *Replica) start() {
	r.raft.RegisterObserver(r.watch.observer)
	r.tasks.Go(r.enqueue)
	r.tasks.Go(r.settle)
	r.tasks.Go(r.follow)
	r.tasks.Go(r.drum)
	if c := r.raft.GetConfiguration().Configuration(); len(c.Servers) == 1 && string(c.Servers[0].ID) == r.cfg.ID {
		r.hurry() // there is no other leader to wait for
	}
}

// Snapshot is the store's content as this server knows it.
func (r *Replica) Snapshot() Snapshot { return r.machine.current() }

// Wait returns the first view it sees whose index is above after. Changes
// that came between two calls are seen as one.
func (r *Replica) Wait(ctx context.Context, after uint64) (Snapshot, error) {
	for {
		view, changed := r.machine.now()
		if view.Index() > after {
			return view, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Snapshot{}, ctx.Err()
		case <-r.closing:
			return Snapshot{}, r.gone()
		}
	}
}

// fail ends the replica, which cannot go on: to skip what it does not
// understand would be to serve other content than the other servers. The views
// it has stay readable.
func (r *Replica) fail(err error) {
	r.failOnce.Do(func() {
		r.failure = err
		close(r.failed)
		r.log.Error("the replica cannot go on", "err", err)
		go func() { _ = r.Close() }() // its caller is of Raft, and Close waits for Raft
	})
}

// Failed is closed when the replica cannot go on; Err says why.
func (r *Replica) Failed() <-chan struct{} { return r.failed }

// Err is why the replica cannot go on; nil as long as it can, and after Close.
func (r *Replica) Err() error {
	select {
	case <-r.failed:
		return r.failure
	default:
		return nil
	}
}

// gone is the error of what is asked of a replica that has ended.
func (r *Replica) gone() error {
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return ErrClosed
}

// Close ends the server. The last views stay readable.
func (r *Replica) Close() error {
	if r.ending.CompareAndSwap(false, true) {
		r.close()
	}
	<-r.closed
	return nil
}

func (r *Replica) close() {
	defer close(r.closed)
	r.proposals.stop()
	close(r.closing)
	// Reads of snapshots have no deadline: whoever waits for a peer must lose
	// the connection first.
	if err := r.transport.streams.close(); err != nil {
		r.log.Debug("closing the streams", "err", err)
	}
	r.drain()
	r.transport.batcher.end()
	if err := r.raft.Shutdown().Error(); err != nil {
		r.log.Warn("raft did not end as it should", "err", err)
	}
	r.transport.Close()
	r.transport.tasks.Wait()
	r.closeFiles()
}

// drain waits until nobody waits for Raft any more: it forgets some of what it
// has been asked when it is shut down, and whoever waits for that would wait
// for ever. Without connections it soon steps down and answers.
func (r *Replica) drain() {
	end := time.NewTimer(2*r.cfg.Lease + time.Second)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.outstanding.Load() > 0 {
		select {
		case <-tick.C:
		case <-end.C:
			r.log.Warn("raft has not answered all that it was asked", "requests", r.outstanding.Load())
			return
		}
	}
	r.tasks.Wait()
}

func (r *Replica) closeFiles() {
	if r.store != nil {
		if err := r.store.Close(); err != nil {
			r.log.Warn("closing the log", "err", err)
		}
	}
	if r.applied != nil {
		r.applied.Close()
	}
}
