// Package gossip knows which nodes are there. It owns discovery, the detection
// of failures, and a small blob of facts for each node, such as its load.
//
// It stands on hashicorp/memberlist. What it says may be stale and is never
// trusted for what must be agreed. It refuses packets of other clusters (the
// label), packets that no key opens, and members whose data is malformed;
// everything that a member can push is bounded.
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
	ErrConfig = errors.New("bad gossip configuration")
	// ErrClosed: Close has been called.
	ErrClosed = errors.New("gossip is closed")
)

// Config says how to gossip.
type Config struct {
	// ID is the node's ID, at most 128 bytes; it must be its own in the cluster.
	ID string
	// Meta is what everybody knows of the node.
	Meta Meta
	// Bind is the ip:port to listen on, for UDP and TCP; port 0 takes a free one.
	Bind string
	// Advertise is the ip:port at which others reach it; "": Bind. Port 0 is
	// the port that was bound.
	Advertise string
	// Label is the ID of the cluster: packets of others are dropped.
	Label string
	// Keys are AES keys of 16, 24 or 32 bytes. The first one encrypts, all of
	// them decrypt. Without any, a key is made of the label: it keeps
	// strangers' noise out, not strangers.
	Keys [][]byte
	// Log takes what goes wrong; nil: nowhere.
	Log *slog.Logger
	// Conflict is called when another process answers to this node's ID, as
	// after somebody copied a data folder. Both are told; Since is when the
	// other one was opened, by this node's clock, so that the younger one can
	// yield. It is called from a goroutine of its own, again after a minute
	// while the conflict lasts. May be nil.
	Conflict func(other Member)

	timing *timing                // nil: the defaults; tests are in a hurry
	reach  func(addr string) bool // nil: all; tests cut links with it
}

// Meta is what everybody knows of a node, in at most 512 bytes when encoded:
// texts without control characters.
type Meta struct {
	Name    string // what people call it
	Cluster string // address of its cluster port
	HTTP    string // address of health and metrics
	Version string // of the program
	Zone    string // what fails together with it
	// Instance is random, new with each start of the process; "": one is made.
	Instance string
}

// State is how a member is doing.
type State string

// The states.
const (
	Alive State = "alive"
	Dead  State = "dead" // it does not answer
	Left  State = "left" // it said goodbye
)

// Member is one node that gossips, or did.
type Member struct {
	ID   string
	Addr string // gossip ip:port
	Meta
	State State
	Since time.Time // when State changed, as seen here
	// Facts is the node's own blob; nil: none known, or it is not alive.
	// It must not be changed.
	Facts []byte
}

// Gossip is a node's part in the gossip. All methods may be called from
// anywhere; after Close they do nothing or return ErrClosed.
type Gossip struct {
	id       string
	addr     string
	opened   time.Time
	log      *slog.Logger
	conflict func(Member)
	timing   timing

	members   *memberTable
	list      *memberlist.Memberlist
	transport *transport
	keyring   *memberlist.Keyring
	meta      atomic.Pointer[[]byte] // encoded, within its bound
	queue     *memberlist.TransmitLimitedQueue
	doubts    chan doubt
	dirty     chan struct{} // holds one when this node's record has changed
	everyone  atomic.Bool   // and all are to hear of it
	large     *large
	heal      *healer

	setting sync.Mutex // one change of meta data, keys or state at a time

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // of closed and wg.Add
	closed bool
	wg     sync.WaitGroup
}

// Open listens and makes the node known to whoever asks.
func Open(c Config) (*Gossip, error) {
	s, err := c.check()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	g := &Gossip{
		id: c.ID, opened: now, log: s.log, conflict: c.Conflict, timing: s.timing, keyring: s.keyring,
		doubts: make(chan doubt, 16), dirty: make(chan struct{}, 1), large: newLarge(),
	}
	g.meta.Store(&s.meta)
	logger := newMemberlistLog(s.log)
	if g.transport, err = listen(s.bind, logger, c.reach); err != nil {
		return nil, err
	}
	conf := s.memberlist(c, logger, g)
	ip, port, err := g.transport.FinalAdvertiseAddr(conf.AdvertiseAddr, conf.AdvertisePort)
	if err != nil {
		g.transport.end()
		return nil, fmt.Errorf("%w: advertised address: %w", ErrConfig, err)
	}
	g.addr = net.JoinHostPort(ip.String(), strconv.Itoa(port))
	g.members = newMemberTable(Member{ID: c.ID, Addr: g.addr, Meta: c.Meta, State: Alive, Since: now},
		// A node that comes back is newer than it was, as far as its clock is right.
		record{ID: c.ID, Instance: c.Meta.Instance, Version: uint64(max(0, now.UnixMicro()))})
	g.queue = &memberlist.TransmitLimitedQueue{
		NumNodes: func() int { return int(g.members.alive.Load()) }, RetransmitMult: factsMult,
	}
	g.heal = newHealer(g)
	conf.Delegate, conf.Events, conf.Conflict = &delegate{g}, &eventDelegate{g.members}, &conflictDelegate{g}
	conf.Alive, conf.Merge = &gate{g.members}, &gate{g.members}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if g.list, err = memberlist.Create(conf); err != nil {
		g.cancel()
		g.transport.end()
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	for _, run := range []func(){g.follow, g.spread, g.heal.run} {
		g.wg.Go(run)
	}
	return g, nil
}

// start runs f as a part of this node, unless that is closed.
func (g *Gossip) start(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// Join asks the nodes at addrs (host:port) to take this one in, and remembers
// them as seeds, the latest 64, to find the others again after a partition. It
// returns how many answered; the error tells why when none did, and nobody
// asked is no error. When ctx ends it returns with what is known then.
func (g *Gossip) Join(ctx context.Context, addrs []string) (reached int, err error) {
	g.heal.remember(addrs)
	return g.join(ctx, addrs)
}

// Members lists this node and the others, by ID. The dead and those who left
// are among them for 72 h, the latest 1024.
func (g *Gossip) Members() []Member { return g.members.list() }

// Changed returns a channel that is closed when Members has something new.
func (g *Gossip) Changed() <-chan struct{} { return g.members.watch() }

// SetMeta replaces what everybody knows of this node.
func (g *Gossip) SetMeta(m Meta) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	if g.ctx.Err() != nil {
		return ErrClosed
	}
	if self, _ := g.members.own(); m.Instance == "" {
		m.Instance = self.Instance
	}
	b, err := encodeMeta(m)
	if err != nil {
		return err
	}
	g.meta.Store(&b)
	// The news is queued at once. An error only says that it has not gone out
	// within the time given here.
	_ = g.list.UpdateNode(time.Millisecond)
	return nil
}

// SetFacts replaces this node's blob, at most 4 KiB. It is spread at most once
// a second; of several in between the last one is. Blobs beyond about 1 KiB do
// not fit into packets and take streams, so they are slower.
//
// A packet more or less is up to chance, and then others hear of it with their
// next exchange, half a minute later. What everyone is to hear at once is
// streamed to all.
func (g *Gossip) SetFacts(facts []byte, everyone bool) error {
	if len(facts) > maxFacts {
		return fmt.Errorf("%w: facts of %d bytes, the limit is %d", ErrTooLarge, len(facts), maxFacts)
	}
	if g.ctx.Err() != nil {
		return ErrClosed
	}
	if g.members.say(facts, false) {
		if everyone {
			g.everyone.Store(true)
		}
		g.changedOwn()
	}
	return nil
}

// SetKeys replaces the keys, while traffic runs. To change keys without
// losing anybody, add the new one last everywhere, then make it the first
// everywhere, then drop the old one.
func (g *Gossip) SetKeys(keys [][]byte) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	if err := checkKeys(keys); err != nil {
		return err
	}
	return replaceKeys(g.keyring, keys)
}

// Addr is the ip:port at which others reach this node.
func (g *Gossip) Addr() string { return g.addr }

// Leave says goodbye, so that the others see the node as left rather than
// dead. It waits until that went out or ctx ends. Close must follow.
func (g *Gossip) Leave(ctx context.Context) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	if g.ctx.Err() != nil {
		return ErrClosed
	}
	g.members.say(nil, true)
	_, said := g.members.own()
	g.pass(said)
	wait := g.timing.leave
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(deadline), time.Millisecond))
	}
	if err := g.list.Leave(wait); err != nil {
		return fmt.Errorf("say goodbye: %w", err)
	}
	return nil
}

// Close ends everything: sockets, goroutines, whatever waits for the network.
func (g *Gossip) Close() error {
	g.mu.Lock()
	closed := g.closed
	g.closed = true
	g.mu.Unlock()
	if closed {
		return nil
	}
	g.cancel()
	g.setting.Lock() // nobody leaves while memberlist shuts down: it would panic
	err := g.list.Shutdown()
	g.setting.Unlock()
	g.wg.Wait()
	return err
}
