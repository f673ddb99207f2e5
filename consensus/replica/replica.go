// Package replica replicates a store on several servers through hashicorp/raft.
// It decides nothing about the content, which package store applies, nor about
// who should vote, which package membership plans.
package replica

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

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
)

// Config configures a Replica. Zero values take the defaults.
type Config struct {
	// ID is the server's permanent ID. It belongs to the data directory, whatever
	// the server's address.
	ID string
	// Dir is the directory that the replica owns; it contains raft.db, snapshots
	// and applied. It is created if missing, with mode 0700.
	Dir string
	// Streams carries the connections between servers. The replica closes it.
	Streams StreamLayer
	// Addr is the server's address, recorded for display only: Streams finds a
	// server by its ID.
	Addr string
	// Limits bound the store. All servers must have the same.
	Limits store.Limits
	// Log receives operator events, and Raft's own log as raftLogger writes it.
	Log *slog.Logger

	// Heartbeat is how long a server waits without contact from its leader before
	// it starts an election. 1s.
	Heartbeat time.Duration
	// Election is how long a candidate waits for votes; at least Heartbeat. 1s.
	Election time.Duration
	// Lease is how long a leader stays leader without contact from a majority of
	// the voters; at most Heartbeat. Heartbeats go out every half of it, so a
	// longer lease means fewer of them. Nothing relies on the lease for
	// correctness. Default: Heartbeat.
	Lease time.Duration
	// CommitInterval is how often an idle leader repeats its commit index and
	// retries replication to servers that were unreachable. 2s.
	CommitInterval time.Duration
	// Timeout bounds each step of an exchange between servers: dialing, the
	// response, and any time without a byte transferred. 10s.
	Timeout time.Duration

	// SnapshotThreshold is the number of log entries since the last snapshot that
	// triggers the next one. 8192.
	SnapshotThreshold uint64
	// SnapshotInterval is the minimum interval between checks of
	// SnapshotThreshold. Jitter adds up to as much again, so that servers do not
	// all take a snapshot at once. 2m.
	SnapshotInterval time.Duration
	// TrailingLogs is how many entries stay in the log after a snapshot includes
	// them, for servers that are slightly behind. At least 1; 10240.
	TrailingLogs uint64

	// MaxInFlight bounds the proposals that are neither applied nor failed. 1024.
	MaxInFlight int
	// MaxInFlightBytes bounds their total bytes; a single proposal of any size is
	// allowed. 128 MiB.
	MaxInFlightBytes int

	// NoSync skips fsync for log writes. A power failure can then lose
	// acknowledged batches: for benchmarks only.
	NoSync bool

	// plainReplication disables pipelining of replication, and noNotices leaves it
	// to CommitInterval how soon followers apply entries. Tests and benchmarks use
	// them as a baseline.
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

// StreamLayer carries connections between servers. It must authenticate both
// ends: any peer that can connect can act as any server.
type StreamLayer interface {
	net.Listener
	// Dial connects to the server with that ID, at its current address.
	Dial(serverID string, timeout time.Duration) (net.Conn, error)
}

// Errors specific to Replica.
var (
	// ErrBusy: too many proposals are in flight. Nothing has changed.
	ErrBusy = errors.New("too many proposals in flight")
	// ErrState: the server already has a cluster's state.
	ErrState = errors.New("the server already has state")
	// ErrNoLog: the server's log, which its earlier votes were based on, is
	// missing. Without it the server must not rejoin under the same ID.
	ErrNoLog = errors.New("the log is missing")
	// ErrServers: the configuration is not, or no longer, the one that the change
	// expects.
	ErrServers = errors.New("the servers have changed")
	// ErrQuorum: too few of the voters that would remain respond.
	ErrQuorum = errors.New("too few of the remaining voters respond")
)

// Replica is a store replicated through Raft. Its snapshots are this server's
// state: all servers go through the same snapshots, some later than others. All
// methods are safe for concurrent use.
//
//	r, err := replica.Open(replica.Config{ID: id, Dir: dir, Streams: streams})
//	...
//	result, err := r.Commit(ctx, &store.Batch{Ops: ops}) // on the leader
//
// The state on disk is readable as soon as Open returns, even if no other
// server is reachable.
type Replica struct {
	groupsDisabled atomic.Bool // see SetGroupsDisabled
	cfg            Config
	log            *slog.Logger
	logStore       *logStore
	snapshots      *snapshot.Dir
	applied        *appliedFile
	machine        *machine
	transport      *transport
	raft           *raft.Raft

	proposals proposals
	watch     watch
	reads     reads

	outstanding atomic.Int64 // Raft futures that are being waited for
	tasks       sync.WaitGroup

	ending   atomic.Bool   // Close was called
	closing  chan struct{} // closed when Close begins, or the replica has failed
	closed   chan struct{} // closed when all goroutines have ended
	failOnce sync.Once
	failed   chan struct{} // closed when the replica cannot continue
	failure  error         // why; set before failed is closed
}

// Open starts the server on the state in its directory. A server with an empty
// directory waits to be added to a cluster, or for Bootstrap.
func Open(cfg Config) (*Replica, error) {
	cfg = cfg.withDefaults()
	if cfg.ID == "" || cfg.Dir == "" || cfg.Streams == nil {
		return nil, errors.New("replica: ID, Dir and Streams are required")
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

// open creates all components. The caller closes those created before an error.
func (r *Replica) open() (err error) {
	if err := os.MkdirAll(r.cfg.Dir, 0o700); err != nil {
		return err
	}
	hc := newRaftLogger(r.log)
	if r.applied, err = openApplied(filepath.Join(r.cfg.Dir, "applied")); err != nil {
		return err
	}
	if r.snapshots, err = snapshot.OpenDir(r.cfg.Dir, hc); err != nil {
		return err
	}
	if r.logStore, err = openLog(filepath.Join(r.cfg.Dir, "raft.db"), r.cfg.NoSync, r.snapshots, r.closing, r.log); err != nil {
		return err
	}
	if err := r.logStore.checkExists(r.applied); err != nil {
		return err
	}
	if r.machine, err = rebuild(r.logStore, r.snapshots, r.applied, r.cfg.Limits, r.log); err != nil {
		return err
	}
	r.transport = newTransport(r.cfg, hc)
	r.machine.fail = r.fail
	r.machine.committed = r.transport.notifier.recordCommit
	r.machine.configured = r.watch.trigger
	return r.openRaft(hc)
}

// openRaft starts Raft on the components. NewRaft panics on data that it cannot
// decode.
func (r *Replica) openRaft(hc *raftLogger) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("raft: %w: %v", store.ErrDamaged, p)
		}
	}()
	r.raft, err = raft.NewRaft(r.raftConfig(hc), r.machine, r.logStore, r.logStore, r.snapshots, r.transport)
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
	c.BatchApplyCh = true      // so that one goroutine can enqueue as much as one disk write takes
	c.ShutdownOnRemove = false // a removed server keeps serving its state
	c.NoLegacyTelemetry = true
	return c
}

// start starts the goroutines that run until Close.
func (r *Replica) start() {
	r.raft.RegisterObserver(r.watch.observer)
	r.tasks.Go(r.submitProposals)
	r.tasks.Go(r.completeProposals)
	r.tasks.Go(r.watchLeadership)
	r.tasks.Go(r.requestHeartbeats)
	if c := r.raft.GetConfiguration().Configuration(); len(c.Servers) == 1 && string(c.Servers[0].ID) == r.cfg.ID {
		r.startElection() // there is no other leader to wait for
	}
}

// Snapshot returns the store's content on this server.
func (r *Replica) Snapshot() store.Snapshot { return r.machine.current() }

// Wait returns the first snapshot it sees whose index is above after. Changes
// between two calls are coalesced.
func (r *Replica) Wait(ctx context.Context, after uint64) (store.Snapshot, error) {
	for {
		snapshot, changed := r.machine.watch()
		if snapshot.Index() > after {
			return snapshot, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return store.Snapshot{}, ctx.Err()
		case <-r.closing:
			return store.Snapshot{}, r.closedError()
		}
	}
}

// fail closes a replica that cannot continue: skipping an entry that it does
// not understand would make its content diverge from the other servers'. Its
// last snapshot stays readable.
func (r *Replica) fail(err error) {
	r.failOnce.Do(func() {
		r.failure = err
		close(r.failed)
		r.log.Error("the replica cannot continue", "err", err)
		go func() { _ = r.Close() }() // fail runs on a goroutine of Raft, for which Close waits
	})
}

// Failed returns a channel that is closed when the replica cannot continue; Err
// returns the reason.
func (r *Replica) Failed() <-chan struct{} { return r.failed }

// Err returns why the replica cannot continue; nil while it can, and after
// Close.
func (r *Replica) Err() error {
	select {
	case <-r.failed:
		return r.failure
	default:
		return nil
	}
}

// closedError returns the error for calls to a closed or failed replica.
func (r *Replica) closedError() error {
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrClosed, err)
	}
	return store.ErrClosed
}

// Close stops the server. The last snapshot stays readable.
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
	// Snapshot reads have no deadline: a goroutine that waits for a peer ends only
	// when its connection is closed, so that comes first.
	if err := r.transport.streams.close(); err != nil {
		r.log.Debug("closing the streams", "err", err)
	}
	r.drain()
	r.transport.batcher.stop()
	if err := r.raft.Shutdown().Error(); err != nil {
		r.log.Warn("raft did not shut down cleanly", "err", err)
	}
	r.transport.Close()
	r.transport.tasks.Wait()
	r.closeFiles()
}

// drain waits until no Raft future is outstanding: Raft drops some requests
// when it is shut down, and their callers would wait for ever. Without
// connections it soon steps down and completes them, or is the only voter and
// completes them without stepping down; askRaft asks again for those that such
// a leader has lost.
func (r *Replica) drain() {
	end := time.NewTimer(2*r.cfg.Lease + time.Second)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.outstanding.Load() > 0 {
		select {
		case <-tick.C:
		case <-end.C:
			r.log.Warn("raft has left requests unanswered", "requests", r.outstanding.Load())
			return
		}
	}
	r.tasks.Wait()
}

func (r *Replica) closeFiles() {
	if r.logStore != nil {
		if err := r.logStore.Close(); err != nil {
			r.log.Warn("closing the log", "err", err)
		}
	}
	if r.applied != nil {
		r.applied.Close()
	}
}
