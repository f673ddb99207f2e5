package node

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"penstock/routing/resource"
)

// What the access log tells.
const (
	AccessOff    = "off"
	AccessClosed = "closed" // one line for each connection, at its end
	AccessAll    = "all"    // one at connect, one from time to time, one at its end
)

// Config is what a node is started with. Validate tells what is wrong with it.
type Config struct {
	// Name is the node's name; default the host's.
	Name string
	// DataDir holds the node's socket, and more where it is no Dev node. ""
	// with Dev: there is no socket.
	DataDir string
	// Cluster is the address of the admin port, HTTP that of HTTP: host:port.
	Cluster, HTTP string
	// Bind is the host of listeners whose address has none.
	Bind string
	// Gossip is the address of gossip, Advertise the host that others reach
	// this node at; default the host of Cluster.
	Gossip, Advertise string

	// Init starts a new cluster of this node. Expect, when not 0, waits for
	// that many nodes and forms one cluster of them. Join are cluster
	// addresses of other nodes, Token is what lets this one in. None of them
	// is needed once the node is in a cluster.
	Init   bool
	Expect int
	Join   []string
	Token  string
	// Announce is told the line to join the cluster that Init began.
	Announce func(line string)
	// Voters is the most nodes that vote. DeadVoterAfter is how long a voter
	// is away before another node takes its place, ForgetAfter how long any
	// node is away before it is forgotten.
	Voters                      int
	DeadVoterAfter, ForgetAfter time.Duration
	// Zone is where the node stands; voters are spread over zones.
	Zone string

	// HTTPCert and HTTPKey are files with PEM: HTTP speaks TLS. Without them
	// HTTPInsecure allows an address that is not loopback; /v1 is not served
	// there then.
	HTTPCert, HTTPKey string
	HTTPInsecure      bool

	// Tags are part of the source of every connection here.
	Tags map[string]string
	// Dev is one node in memory, without TLS and tokens.
	Dev bool
	// Resources are applied when the node is new. ResourceFiles are the files
	// that they came from, and whether these are applied later as well; nil:
	// they came from none.
	Resources     []resource.Object
	ResourceFiles *ResourceFiles

	// DrainWait is how long a node that stops goes on accepting, DrainTimeout
	// the window in which it then closes its connections.
	DrainWait, DrainTimeout time.Duration

	// Loops, MemoryBudget (bytes) and MaxHandshakes are netio.Config's.
	Loops         int
	MemoryBudget  int64
	MaxHandshakes int
	// MaxRequests bounds the requests of HTTP at once that are routed one by
	// one.
	MaxRequests int

	// AccessLog is AccessOff, AccessClosed or AccessAll; lines go to
	// AccessOut, as JSON where AccessJSON is set.
	AccessLog  string
	AccessOut  io.Writer
	AccessJSON bool

	// Pprof serves /debug/pprof/ at HTTP.
	Pprof bool
	// Log is the node's; required.
	Log *slog.Logger
	// Version is the build's.
	Version string
}

// withDefaults fills in what is left out.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	if c.Name == "" {
		c.Name = "penstock"
	}
	if c.Bind == "" {
		c.Bind = "127.0.0.1"
	}
	if c.Voters == 0 {
		c.Voters = 5
	}
	if c.MaxRequests == 0 {
		c.MaxRequests = 16384
	}
	if c.DeadVoterAfter == 0 {
		c.DeadVoterAfter = time.Minute
	}
	if c.ForgetAfter == 0 {
		c.ForgetAfter = 72 * time.Hour
	}
	if c.Zone == "" {
		c.Zone = c.Tags["zone"]
	}
	if c.Announce == nil {
		c.Announce = func(string) {}
	}
	if c.AccessLog == "" {
		c.AccessLog = AccessOff
	}
	if c.AccessOut == nil {
		c.AccessOut = io.Discard
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate lists everything that is wrong, in terms of the command's flags.
func (c Config) Validate() []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	c = c.withDefaults()
	if strings.ContainsAny(c.Name, " \t\n/\x00") || len(c.Name) > 253 {
		fault("--name %q: want up to 253 bytes without spaces and slashes", c.Name)
	}
	if _, err := netip.ParseAddr(c.Bind); err != nil {
		fault("--bind %s: want an IP address", c.Bind)
	}
	addresses := []struct{ flag, address string }{{"--cluster", c.Cluster}, {"--http", c.HTTP}}
	if !c.Dev {
		addresses = append(addresses, struct{ flag, address string }{"--gossip", c.Gossip})
	}
	for _, a := range addresses {
		at, err := netip.ParseAddrPort(a.address)
		switch {
		case err != nil:
			fault("%s %s: want IP:port, such as 127.0.0.1:7947", a.flag, a.address)
		case c.Dev && !at.Addr().IsLoopback():
			fault("%s %s: with --dev there is no TLS and no token, so only a loopback address will do", a.flag, a.address)
		case a.flag == "--http":
			if why := c.checkHTTP(at); why != "" {
				fault("%s", why)
			}
		case !c.Dev && at.Addr().IsUnspecified() && c.Advertise == "":
			fault("%s %s: bound to all addresses, so say with --advertise which one others reach this node at", a.flag, a.address)
		}
	}
	faults = append(faults, c.checkCluster()...)
	if c.DrainWait < 0 {
		fault("--drain-wait %v: want 0s or more", c.DrainWait)
	}
	if c.DrainTimeout < 0 {
		fault("--drain-timeout %v: want 0s or more", c.DrainTimeout)
	}
	if c.Loops < 0 || c.Loops > 1024 {
		fault("--loops %d: want 1 to 1024, or 0 for one per core", c.Loops)
	}
	if c.MemoryBudget != 0 && c.MemoryBudget < 1<<20 {
		fault("--memory-budget %d: want 1 MiB or more", c.MemoryBudget>>20)
	}
	if c.MaxHandshakes < 0 {
		fault("--max-handshakes %d: want 1 or more", c.MaxHandshakes)
	}
	if c.MaxRequests < 1 {
		fault("--max-requests %d: want 1 or more", c.MaxRequests)
	}
	if c.AccessLog != AccessOff && c.AccessLog != AccessClosed && c.AccessLog != AccessAll {
		fault("--access-log %s: want off, closed or all", c.AccessLog)
	}
	return faults
}

// checkCluster lists what is wrong with how the node is to find its cluster.
func (c Config) checkCluster() []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if c.Dev {
		if c.Init || c.Expect != 0 || len(c.Join) > 0 || c.Token != "" {
			fault("--dev is one node by itself: leave out --init, --expect, --join and --token")
		}
		return faults
	}
	if c.DataDir == "" {
		fault("--data-dir: is required")
	}
	if c.Init && (c.Expect != 0 || len(c.Join) > 0) {
		fault("--init starts a new cluster: leave out --expect and --join")
	}
	if c.Voters < 1 || c.Voters > 99 {
		fault("--voters %d: want 1 to 99", c.Voters)
	}
	if c.DeadVoterAfter < 0 || c.ForgetAfter < 0 {
		fault("--dead-voter-after %v, --forget-after %v: want more than 0s", c.DeadVoterAfter, c.ForgetAfter)
	}
	return faults
}
