package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"penstock/node/admin"
)

// Errors that end Open, or the node later on (Config.Stop).
var (
	// ErrNew: the data folder is empty, and nothing says what to make of it.
	ErrNew = errors.New("the data folder is new")
	// ErrLeft: the node of this folder left its cluster for good.
	ErrLeft = errors.New("the node of this data folder has left its cluster")
	// ErrRemoved: the cluster has removed this node.
	ErrRemoved = errors.New("the cluster has removed this node")
	// ErrCopied: another process runs as this node, from a copy of its folder.
	ErrCopied = errors.New("another process runs with a copy of this data folder")
	// ErrRefused: the cluster does not take this node, for example because a
	// node of its name is up.
	ErrRefused = errors.New("the cluster refuses this node")
	// ErrForeign: the token, the address or the folder is of another cluster.
	ErrForeign = errors.New("another cluster")
	// ErrToken: the token is not valid, or not valid any more.
	ErrToken = errors.New("token refused")
	// ErrNoLog: the node's log, which it had, is not there any more.
	ErrNoLog = errors.New("the log is gone")
	// ErrExpect: nodes that are to form one cluster expect different numbers.
	ErrExpect = errors.New("different --expect")
)

// Config says which cluster a node belongs to and how it is reached. The
// fields down to Token matter while the data folder is new.
type Config struct {
	// Dir is the data folder, locked by the caller. Files of trust stand at
	// its top, the log in Dir/raft.
	Dir string
	// Name is unique in the cluster. Zone may be "".
	Name, Version, Zone string

	// Listener is the cluster port. Cluster takes it over.
	Listener net.Listener
	// Gossip is where gossip binds, ip:port, TCP and UDP.
	Gossip string
	// Advertise is the host that others reach this node at; "": the one bound.
	Advertise string
	// HTTP is the address of HTTP, for others to show.
	HTTP string

	// Init starts a new cluster of one.
	Init bool
	// Expect, when not 0, is how many nodes form a cluster together.
	Expect int
	// Join lists cluster addresses of nodes, host:port. A node that has a
	// cluster takes them as places to look for it.
	Join []string
	// Token is what lets this node join, or form with others.
	Token string

	// Voters bounds the nodes that vote: 5.
	Voters int
	// ReplaceAfter is how long a voter may be gone before another node votes
	// in its place: 1m. ForgetAfter is how long a node that does not vote may
	// be gone before it is forgotten: 72h.
	ReplaceAfter, ForgetAfter time.Duration

	// Log is required.
	Log *slog.Logger
	// Facts tells what this node says of itself. It is called about once a
	// second and must not block; nil: nothing.
	Facts func() Facts
	// Tickets takes the keys of TLS session tickets that all nodes share,
	// the newest first, whenever they change; nil: nobody needs them. It is
	// called from one goroutine.
	Tickets func(keys [][32]byte)
	// Waits is called with what Open waits for, again and again while it does;
	// nil: nobody wants to know. It is called by Open's goroutine.
	Waits func(Waiting)
	// Audit takes what changes before Open returns: that this node has
	// confirmed which nodes begin the cluster. Nil: nobody wants to know.
	Audit func(admin.Event)
	// Stop is called once, from a goroutine of its own, when the node must
	// end: ErrCopied, ErrRemoved, or an unknown format in the log.
	Stop func(error)

	// Timing is for tests: zero fields take the defaults.
	Timing Timing
}

// Timing is how fast things go.
type Timing struct {
	// Tick is how often the leader looks at the members and every node at
	// its surroundings: 1s.
	Tick time.Duration
	// Announce is how often a node repeats where it is, though nothing
	// changed: 30s.
	Announce time.Duration
	// Retry is the first wait between two attempts to join or to form, which
	// doubles up to 10 s: 500ms.
	Retry time.Duration
	// Stable is how long a node must be up before it may vote: 10s, the first
	// three a tenth of it.
	Stable time.Duration
	// Heartbeat and Election are Raft's: 700ms each. A voter begins to look
	// for a new leader after one to two of them without a word, and is heard
	// when the others have missed it as well; so they can write again within
	// two seconds, as a rule.
	Heartbeat, Election time.Duration
	// HandOver is how long a leader that ends waits for the next one: 3s.
	HandOver time.Duration
}

// Facts are what a node tells all others of itself, through gossip: they may
// be old, and nothing is decided by them that must be agreed.
type Facts struct {
	Phase       string  `json:"p,omitempty"` // starting, serving, draining, ...
	Connections int64   `json:"c,omitempty"` // open now
	Acted       uint64  `json:"a,omitempty"` // the index that its table is of
	Load        float64 `json:"l,omitempty"` // share of its CPUs in use, 0 to 1
	// Hints are what else the node wants to tell: at most 2 KiB.
	Hints []byte `json:"h,omitempty"`
}

// maxHints bounds Facts.Hints.
const maxHints = 2 << 10

func (c Config) withDefaults() Config {
	wait := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	if c.Voters == 0 {
		c.Voters = 5
	}
	wait(&c.ReplaceAfter, time.Minute)
	wait(&c.ForgetAfter, 72*time.Hour)
	wait(&c.Timing.Tick, time.Second)
	wait(&c.Timing.Announce, 30*time.Second)
	wait(&c.Timing.Retry, 500*time.Millisecond)
	wait(&c.Timing.Stable, 10*time.Second)
	wait(&c.Timing.Heartbeat, 700*time.Millisecond)
	wait(&c.Timing.Election, c.Timing.Heartbeat)
	wait(&c.Timing.HandOver, 3*time.Second)
	if c.Facts == nil {
		c.Facts = func() Facts { return Facts{} }
	}
	if c.Tickets == nil {
		c.Tickets = func([][32]byte) {}
	}
	if c.Waits == nil {
		c.Waits = func(Waiting) {}
	}
	if c.Stop == nil {
		c.Stop = func(error) {}
	}
	return c
}

// maxExpect bounds Config.Expect: more nodes join one that is there.
const maxExpect = 16

// check lists what is wrong, in terms of the command's flags.
func (c Config) check() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if c.Name == "" || len(c.Name) > 253 || strings.ContainsAny(c.Name, " \t\n/\x00") {
		fault("--name %q: want 1 to 253 bytes without spaces and slashes", c.Name)
	}
	if _, err := netip.ParseAddrPort(c.Gossip); err != nil {
		fault("--gossip %s: want IP:port", c.Gossip)
	}
	if at, err := netip.ParseAddrPort(c.Listener.Addr().String()); err == nil && at.Addr().IsUnspecified() && c.Advertise == "" {
		fault("--cluster %s: others cannot reach a node there: say with --advertise HOST where they can", at)
	}
	if c.Expect < 0 || c.Expect > maxExpect {
		fault("--expect %d: want 1 to %d", c.Expect, maxExpect)
	}
	if c.Init && c.Expect > 0 {
		fault("--init and --expect: take one of them")
	}
	if c.Voters < 1 {
		fault("--voters %d: want 1 or more", c.Voters)
	}
	for _, a := range c.Join {
		if !validAddress(a) {
			fault("--join %s: want HOST:PORT", a)
		}
	}
	if c.Listener != nil {
		if own, err := netip.ParseAddrPort(advertised(c.Listener.Addr(), c.Advertise)); err == nil && own.Addr().IsLoopback() {
			for _, a := range c.Join {
				if other, err := netip.ParseAddrPort(a); err == nil && !other.Addr().IsLoopback() {
					fault("--join %s: that node cannot reach this one at %s: give --cluster and --gossip an address that it can reach", a, own)
					break
				}
			}
		}
	}
	if len(c.Join) > maxPeers {
		fault("--join: %d addresses, the limit is %d", len(c.Join), maxPeers)
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// advertised is where others reach a port that is bound at bound.
func advertised(bound net.Addr, host string) string {
	h, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return bound.String()
	}
	if host != "" {
		h = host
	}
	return net.JoinHostPort(h, port)
}
