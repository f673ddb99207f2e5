package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
)

// Errors that Open returns, or that Config.Stop receives.
var (
	// ErrNew: the data folder is empty, and no flag says whether to found, form
	// or join a cluster.
	ErrNew = errors.New("the data folder is in no cluster yet")
	// ErrLeft: the node of this folder left its cluster for good.
	ErrLeft = errors.New("the node of this data folder has left its cluster")
	// ErrRemoved: the cluster has removed this node.
	ErrRemoved = bootstrap.ErrRemoved
)

// Config configures Open. Init, Expect, Join and Token say how a new data
// folder gets its cluster.
type Config struct {
	// Dir is the data folder, locked by the caller. The files of package trust
	// are at its top level, the log is in Dir/raft.
	Dir string
	// Name is unique in the cluster. Zone may be "".
	Name, Version, Zone string

	// Listener accepts connections to the cluster port. Open takes ownership of
	// it, also when it fails.
	Listener net.Listener
	// Gossip is the ip:port that gossip binds, TCP and UDP.
	Gossip string
	// Advertise is the host at which others reach this node; "": the one bound.
	Advertise string
	// HTTP is the address of HTTP, which other nodes display.
	HTTP string

	// Init founds a new cluster of one node.
	Init bool
	// Expect, if not 0, is the number of nodes that form a cluster together.
	Expect int
	// Join lists cluster addresses of other nodes, host:port. A node that is in
	// a cluster also looks for it there.
	Join []string
	// Token authorizes this node to join, or to form a cluster with others. A
	// node that is in a cluster refuses a token of another one.
	Token string

	// TokenTTL is how long the first token of a cluster that is founded or formed lets
	// nodes join; default bootstrap.DefaultTokenTTL.
	TokenTTL time.Duration
	// Rejoin has a node start over in the folder of one that is no longer a member.
	Rejoin bool

	// TrustDomain is the SPIFFE trust domain of the workloads of a cluster that is
	// founded or formed; "": the cluster's ID. It never changes, so a node that is in a
	// cluster, or joins one, refuses to start with another one than the cluster's.
	TrustDomain string

	// Voters bounds the number of voters; default 5.
	Voters int
	// ReplaceAfter is how long a voter may be down before another node votes in
	// its place; default 1m. ForgetAfter is how long a non-voter may be down
	// before it is removed from the cluster; default 72h.
	ReplaceAfter, ForgetAfter time.Duration

	// Log is required.
	Log *slog.Logger
	// Facts returns what this node publishes about itself. It is called one to
	// about four times a second and must not block. May be nil.
	Facts func() directory.Facts
	// Tickets receives the TLS session ticket keys that all nodes share, the
	// newest first, whenever they change. It is called from one goroutine. May
	// be nil.
	Tickets func(keys [][32]byte)
	// IdentitiesRevoked is called after workload certificates were revoked, from the
	// same goroutine as Tickets. It must not block. May be nil.
	IdentitiesRevoked func()
	// TokensChanged is called after tokens were created or revoked, from the same
	// goroutine as Tickets. It must not block. May be nil.
	TokensChanged func()
	// Waits is called repeatedly, by Open's goroutine, with what Open waits
	// for. May be nil.
	Waits func(bootstrap.Waiting)
	// Audit receives the audit events from before Open returns: other nodes
	// offering this one a charter, which fixes the nodes that begin the
	// cluster. May be nil.
	Audit func(rpc.Event)
	// Acts records requests in the batches of the changes that they make; nil: none
	// is.
	Acts record.Auditor
	// Stop is called at most once, from its own goroutine, when the node must
	// stop: ErrCopied, ErrRemoved, or an unknown format in the log, for
	// example.
	Stop func(error)

	// Timing is for tests: zero fields take the defaults.
	Timing Timing
}

// Timing sets the intervals and time limits of a cluster.
type Timing struct {
	// Tick is the interval of the leader's tasks and of every node's
	// housekeeping: 1s.
	Tick time.Duration
	// Announce is how often a node repeats an unchanged announcement: 30s.
	Announce time.Duration
	// Retry is the first pause between attempts to join, which doubles up to
	// 10s, and the pause between rounds of --expect: 500ms.
	Retry time.Duration
	// Stable is how long a node must be up before it may vote: 10s; a tenth of
	// that for the first three voters.
	Stable time.Duration
	// Heartbeat and Election are Raft's timeouts: 700ms each. A voter seeks
	// election after one to two heartbeat timeouts without contact, and wins
	// votes once the others miss the leader as well, so writes resume within
	// two seconds as a rule.
	Heartbeat, Election time.Duration
	// HandOver is how long a leader that stops waits for the next one: 3s.
	HandOver time.Duration
}

func (c Config) withDefaults() Config {
	wait := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	if c.Voters == 0 {
		c.Voters = 5
	}
	wait(&c.TokenTTL, bootstrap.DefaultTokenTTL)
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
		c.Facts = func() directory.Facts { return directory.Facts{} }
	}
	if c.Tickets == nil {
		c.Tickets = func([][32]byte) {}
	}
	if c.IdentitiesRevoked == nil {
		c.IdentitiesRevoked = func() {}
	}
	if c.TokensChanged == nil {
		c.TokensChanged = func() {}
	}
	if c.Waits == nil {
		c.Waits = func(bootstrap.Waiting) {}
	}
	if c.Stop == nil {
		c.Stop = func(error) {}
	}
	return c
}

// maxExpect bounds Config.Expect; further nodes join the cluster once it runs.
const maxExpect = 16

// check reports every fault at once, in terms of the command's flags.
func (c Config) check() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if c.Name == "" || len(c.Name) > 253 || strings.ContainsAny(c.Name, " \t\n/\x00") {
		fault("--name %q: want 1 to 253 bytes without spaces or slashes", c.Name)
	}
	if _, err := netip.ParseAddrPort(c.Gossip); err != nil {
		fault("--gossip %s: want IP:port", c.Gossip)
	}
	if at, err := netip.ParseAddrPort(c.Listener.Addr().String()); err == nil && at.Addr().IsUnspecified() && c.Advertise == "" {
		fault("--cluster %s: other nodes cannot reach that address: give one that they can with --advertise HOST", at)
	}
	if c.Expect < 0 || c.Expect > maxExpect {
		fault("--expect %d: want 1 to %d", c.Expect, maxExpect)
	}
	if c.Init && c.Expect > 0 {
		fault("--init and --expect: use only one of them")
	}
	if c.Voters < 1 {
		fault("--voters %d: want 1 or more", c.Voters)
	}
	for _, a := range c.Join {
		if !directory.ValidAddress(a) {
			fault("--join %s: want HOST:PORT", a)
		}
	}
	if c.Listener != nil {
		if own, err := netip.ParseAddrPort(advertised(c.Listener.Addr(), c.Advertise)); err == nil && own.Addr().IsLoopback() {
			for _, a := range c.Join {
				if other, err := netip.ParseAddrPort(a); err == nil && !other.Addr().IsLoopback() {
					fault("--join %s: that node cannot reach this one at %s: set --cluster and --gossip to an address that it can reach", a, own)
					break
				}
			}
		}
	}
	if len(c.Join) > directory.MaxPeers {
		fault("--join: %d addresses, the limit is %d", len(c.Join), directory.MaxPeers)
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// advertised returns the address at which others reach a port that is bound at
// bound: host if it is not "", with the bound port.
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

// host returns the host of an address.
func host(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return h
}
