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
	"log/slog"
	"time"
)

// Errors of Open and of the setters, wrapped with the offending value.
var (
	// ErrTooLarge: meta data or facts exceed their bound.
	ErrTooLarge = errors.New("too large")
	// ErrConfig: the configuration cannot be used.
	ErrConfig = errors.New("bad gossip configuration")
	// ErrClosed: the room has been closed.
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

	timing timing
	reach  func(addr string) bool // tests cut links with it: false, and nothing is sent there
}

// Meta is what everybody knows of a node, in at most 512 bytes when encoded:
// texts without control characters.
type Meta struct {
	Name     string // what people call it
	Cluster  string // address of its cluster port
	HTTP     string // address of health and metrics
	Version  string // of the program
	Zone     string // what fails together with it
	Instance string // random, new with each start of the process
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
type Gossip struct{}

type timing struct{}

// Open listens and makes the node known to whoever asks.
func Open(c Config) (*Gossip, error) { return nil, ErrConfig }

// Join asks the nodes at addrs (host:port) to take this one in, and remembers
// them as seeds to find the others again after a partition. It returns how
// many answered; the error tells why others did not, and is nil when all did.
func (g *Gossip) Join(ctx context.Context, addrs []string) (reached int, err error) {
	return 0, ErrClosed
}

// Members lists this node and the others, by ID. The dead and those who left
// are among them for 72 h, the latest 1024.
func (g *Gossip) Members() []Member { return nil }

// Changed returns a channel that is closed when Members has something new.
func (g *Gossip) Changed() <-chan struct{} { return nil }

// SetMeta replaces what everybody knows of this node.
func (g *Gossip) SetMeta(m Meta) error { return ErrClosed }

// SetFacts replaces this node's blob, at most 4 KiB. It is spread at most once
// a second; of several in between the last one is.
func (g *Gossip) SetFacts(facts []byte) error { return ErrClosed }

// SetKeys replaces the keys, while traffic runs. To change keys without
// losing anybody, add the new one last everywhere, then make it the first
// everywhere, then drop the old one.
func (g *Gossip) SetKeys(keys [][]byte) error { return ErrClosed }

// Addr is the ip:port at which others reach this node.
func (g *Gossip) Addr() string { return "" }

// Leave says goodbye, so that the others see the node as left rather than
// dead. Close must follow.
func (g *Gossip) Leave(ctx context.Context) error { return ErrClosed }

// Close ends everything.
func (g *Gossip) Close() error { return nil }
