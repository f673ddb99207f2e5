// Package gossip tracks cluster members. It owns discovery, failure detection,
// and a small blob of facts for each node, such as its load.
//
// It is built on hashicorp/memberlist. Its data may be stale and is never the
// basis of decisions that need consensus. It rejects packets of other clusters
// (the label), packets that no key decrypts, and members with malformed data;
// everything a member can send is bounded.
//
//	g, err := gossip.Open(gossip.Config{ID: id, Bind: "10.0.0.1:7946", Label: cluster, Keys: keys, Log: log})
//	g.Join(ctx, []string{"10.0.0.2:7946"})
//	for {
//		changed := g.Changed()
//		show(g.Members())
//		<-changed
//	}
package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Errors of Open and of the setters, wrapped with the offending value.
var (
	// ErrTooLarge: meta data or facts exceed their bound.
	ErrTooLarge = errors.New("too large")
	// ErrConfig: the configuration cannot be used.
	ErrConfig = errors.New("invalid gossip configuration")
	// ErrClosed: Close has been called.
	ErrClosed = errors.New("gossip is closed")
)

// Config configures Open.
type Config struct {
	// ID is the node's ID, at most 128 bytes, unique in the cluster.
	ID string
	// Meta is the node's public meta data.
	Meta Meta
	// Bind is the ip:port to listen on, for UDP and TCP; port 0 selects a free
	// one.
	Bind string
	// Advertise is the ip:port at which others reach the node; "": Bind. Port 0
	// means the bound port.
	Advertise string
	// Label is the ID of the cluster; packets with another label are dropped.
	Label string
	// Keys are AES keys of 16, 24 or 32 bytes. The first one encrypts, all of them
	// decrypt. Without any, the key is derived from the label, which filters stray
	// packets but does not authenticate.
	Keys [][]byte
	// Log receives problems; nil discards them.
	Log *slog.Logger
	// Conflict is called when another process uses this node's ID, for example
	// after a data directory was copied. It is called in both processes; Since is
	// when the other was opened, by this node's clock, so that the younger one can
	// yield. It runs on a goroutine of the package and is repeated after a minute
	// while the conflict lasts. May be nil.
	Conflict func(other Member)

	timing *timing                // nil: the defaults; shortened by tests
	reach  func(addr string) bool // nil: all; tests cut links with it
}

// Meta is a node's public meta data, at most 512 bytes when encoded, without
// control characters.
type Meta struct {
	Name    string // display name
	Cluster string // address of its cluster port
	HTTP    string // address of health and metrics
	Version string // of the build
	Zone    string // failure domain
	// Instance is random for each start of the process; "": Open generates it.
	Instance string
}

// State is a member's liveness.
type State string

// The states.
const (
	Alive State = "alive"
	Dead  State = "dead" // it does not respond
	Left  State = "left" // it left with Leave
)

// Member is a current or former member.
type Member struct {
	ID   string
	Addr string // gossip ip:port
	Meta
	State State
	Since time.Time // when State changed, by this node's clock
	// Facts is the node's own blob, read-only; nil: unknown, or the node is not
	// alive.
	Facts []byte
}

// Gossip is this node's gossip instance. All methods are safe for concurrent
// use; after Close they do nothing or return ErrClosed.
type Gossip struct {
	id       string
	addr     string
	opened   time.Time
	log      *slog.Logger
	conflict func(Member)
	timing   timing

	members     *memberTable
	list        *memberlist.Memberlist
	transport   *transport
	keyring     *memberlist.Keyring
	meta        atomic.Pointer[[]byte] // encoded, within the limit
	queue       *memberlist.TransmitLimitedQueue
	conflicts   chan conflictSign
	ownChanged  chan struct{} // capacity 1; filled when this node's record has changed
	streamToAll atomic.Bool   // the record must be streamed to all
	large       *largeQueue
	heal        *healer

	setting sync.Mutex // serializes changes of meta data, keys and state

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed and wg.Add
	closed bool
	wg     sync.WaitGroup
}

// Open starts listening and makes the node discoverable.
func Open(c Config) (*Gossip, error) {
	s, err := c.check()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	g := &Gossip{
		id: c.ID, opened: now, log: s.log, conflict: c.Conflict, timing: s.timing, keyring: s.keyring,
		conflicts: make(chan conflictSign, 16), ownChanged: make(chan struct{}, 1), large: newLargeQueue(),
	}
	g.meta.Store(&s.meta)
	logger := newMemberlistLog(s.log)
	if g.transport, err = listen(s.bind, logger, c.reach); err != nil {
		return nil, err
	}
	conf := s.memberlist(c, logger, g)
	ip, port, err := g.transport.FinalAdvertiseAddr(conf.AdvertiseAddr, conf.AdvertisePort)
	if err != nil {
		g.transport.abort()
		return nil, fmt.Errorf("%w: advertised address: %w", ErrConfig, err)
	}
	g.addr = net.JoinHostPort(ip.String(), strconv.Itoa(port))
	g.members = newMemberTable(Member{ID: c.ID, Addr: g.addr, Meta: c.Meta, State: Alive, Since: now},
		// The version grows with each restart, as far as the clock is right.
		record{ID: c.ID, Instance: c.Meta.Instance, Version: uint64(max(0, now.UnixMicro()))})
	g.queue = &memberlist.TransmitLimitedQueue{
		NumNodes: func() int { return int(g.members.alive.Load()) }, RetransmitMult: factsMult,
	}
	g.heal = newHealer(g)
	conf.Delegate, conf.Events, conf.Conflict = &delegate{g}, &eventDelegate{g.members}, &conflictDelegate{g}
	conf.Alive, conf.Merge = &aliveDelegate{g.members}, &aliveDelegate{g.members}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if g.list, err = memberlist.Create(conf); err != nil {
		g.cancel()
		g.transport.abort()
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	for _, run := range []func(){g.handleConflicts, g.spread, g.heal.run} {
		g.wg.Go(run)
	}
	return g, nil
}

// start runs f in g.wg, unless g is closed.
func (g *Gossip) start(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// Join joins the cluster through the nodes at addrs (host:port), and remembers
// the latest 64 as seeds, to rejoin after a partition. It returns how many
// responded; the error is set if none did, except for empty addrs. When ctx
// ends, Join returns what it has so far.
func (g *Gossip) Join(ctx context.Context, addrs []string) (reached int, err error) {
	g.heal.addSeeds(addrs)
	return g.join(ctx, addrs)
}

// Members lists this node and the others, by ID. Dead and former members remain
// for 72 h, the latest 1024.
func (g *Gossip) Members() []Member { return g.members.list() }

// Changed returns a channel that is closed when Members changes.
func (g *Gossip) Changed() <-chan struct{} { return g.members.watch() }

// SetMeta replaces this node's public meta data.
func (g *Gossip) SetMeta(m Meta) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	if g.ctx.Err() != nil {
		return ErrClosed
	}
	if self, _ := g.members.ownEntry(); m.Instance == "" {
		m.Instance = self.Instance
	}
	b, err := encodeMeta(m)
	if err != nil {
		return err
	}
	g.meta.Store(&b)
	// The update is queued at once. An error only means that it was not sent
	// within the timeout given here.
	_ = g.list.UpdateNode(time.Millisecond)
	return nil
}

// SetFacts replaces this node's blob, at most 4 KiB. Changes are sent at most
// once a second, the last one of several. Blobs above about 1 KiB do not fit
// into packets and are streamed, which is slower.
//
// Packets may miss some members, which then get the blob with a later
// push/pull, every half minute in small clusters. With everyone set, the blob
// is also streamed to the other members at once, up to 64 of them.
func (g *Gossip) SetFacts(facts []byte, everyone bool) error {
	if len(facts) > maxFacts {
		return fmt.Errorf("%w: facts of %d bytes, the limit is %d", ErrTooLarge, len(facts), maxFacts)
	}
	if g.ctx.Err() != nil {
		return ErrClosed
	}
	if g.members.setOwnRecord(facts, false) {
		if everyone {
			g.streamToAll.Store(true)
		}
		g.triggerSpread()
	}
	return nil
}

// SetKeys replaces the keys during operation. To rotate keys without losing
// members, add the new one last on all nodes, then make it the first on all
// nodes, then remove the old one.
func (g *Gossip) SetKeys(keys [][]byte) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	if err := checkKeys(keys); err != nil {
		return err
	}
	return replaceKeys(g.keyring, keys)
}

// Addr returns the ip:port at which others reach this node.
func (g *Gossip) Addr() string { return g.addr }

// Leave announces that this node leaves, so that the others see it as left, not
// dead. It waits until the announcement is sent or ctx ends. Close must follow.
func (g *Gossip) Leave(ctx context.Context) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	if g.ctx.Err() != nil {
		return ErrClosed
	}
	g.members.setOwnRecord(nil, true)
	_, own := g.members.ownEntry()
	g.queueRecord(own)
	wait := g.timing.leave
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(deadline), time.Millisecond))
	}
	if err := g.list.Leave(wait); err != nil {
		return fmt.Errorf("announce leaving: %w", err)
	}
	return nil
}

// Close closes all sockets and ends all goroutines, including those that wait
// for the network.
func (g *Gossip) Close() error {
	g.mu.Lock()
	closed := g.closed
	g.closed = true
	g.mu.Unlock()
	if closed {
		return nil
	}
	g.cancel()
	g.setting.Lock() // Leave during memberlist's shutdown would panic
	err := g.list.Shutdown()
	g.setting.Unlock()
	g.wg.Wait()
	return err
}
