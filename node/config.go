package node

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"penstock/node/audit"
	"penstock/node/cluster/bootstrap"
	"penstock/node/trust"
	"penstock/node/xds"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// DefaultHistory is the default of Config.HistoryBudget.
const DefaultHistory resource.Size = 16 << 20

// minHistory is the least that Config.HistoryBudget may be.
const minHistory resource.Size = 1 << 20

// The values of Config.AccessLog.
const (
	AccessOff    = "off"
	AccessClosed = "closed" // one line for each connection, at its end
	AccessAll    = "all"    // one at connect, one periodically, one at its end
)

// Config holds the settings of a node. Validate lists its faults.
type Config struct {
	// Name is the node's name; default the host name.
	Name string
	// DataDir is the folder for the node's socket and, without Dev, its state.
	// It may be "" with Dev: then there is no socket.
	DataDir string
	// Cluster is the listen address of the cluster port (admin RPC and Raft),
	// HTTP that of HTTP; both IP:port.
	Cluster, HTTP string
	// XDS is another listen address of the discovery server for proxies, IP:port;
	// "": it serves at Cluster alone.
	XDS string
	// BundleEndpoint is the listen address at which the cluster's trust bundle is served
	// by the profile https_spiffe, IP:port; "": it is not.
	BundleEndpoint string
	// SPIFFESocket is the path of the unix socket of the SPIFFE Workload API; "": none.
	// SPIFFESocketMode is the mode of its file, in octal; default 0660.
	SPIFFESocket, SPIFFESocketMode string
	// Bind is the IP address of listeners whose address has no host.
	Bind string
	// Gossip is the listen address of gossip. Advertise is the host at which
	// other nodes reach this one; default the host of Cluster.
	Gossip, Advertise string

	// Init bootstraps a new cluster with this node. Expect, if not 0, is the
	// number of nodes to wait for and to bootstrap a cluster with. Join lists
	// cluster addresses of other nodes, Token authorizes the join. None of
	// them is needed once the node is in a cluster.
	Init   bool
	Expect int
	Join   []string
	Token  string
	// TokenTTL is how long the first token of the cluster that Init or Expect forms
	// lets nodes join; default 24h.
	TokenTTL time.Duration
	// Rejoin empties the data folder of a node that has left its cluster or was
	// removed, so that it joins again as a new node. Otherwise such a folder is refused.
	Rejoin bool
	// TrustDomain names the SPIFFE trust domain of the cluster that Init or Expect
	// forms; "": the cluster's ID. It cannot be changed later.
	TrustDomain string
	// Announce receives the command line with which other nodes join the
	// cluster that Init bootstrapped.
	Announce func(line string)
	// Voters is the maximum number of voters; default 5. DeadVoterAfter is how
	// long a voter is down before another node replaces it (default 1m),
	// ForgetAfter how long a node is down before it is removed (default 72h).
	Voters                      int
	DeadVoterAfter, ForgetAfter time.Duration
	// Zone is the node's failure domain, over which voters are spread; default
	// the tag "zone".
	Zone string

	// HTTPCert and HTTPKey are PEM files; with them HTTP speaks TLS. Without
	// them HTTPInsecure permits an address that is not loopback; /v1 is then
	// not served there.
	HTTPCert, HTTPKey string
	// HTTPCA is a PEM file with the CAs of the certificates that every client of HTTP
	// must then show, beside the token that /v1 needs. It requires HTTPCert. "": clients
	// need no certificate.
	HTTPCA       string
	HTTPInsecure bool

	// Tags are part of the source of every connection to this node.
	Tags map[string]string
	// Dev runs a single node in memory, without TLS and tokens.
	Dev bool
	// Resources are applied when the cluster is new. ResourceFiles describes
	// the files they come from and whether these are applied again later; nil:
	// they do not come from files.
	Resources     []resource.Object
	ResourceFiles *ResourceFiles

	// Kubernetes says whether resources are applied from there.
	Kubernetes KubernetesResources

	// DrainWait is how long a draining node goes on accepting, DrainTimeout
	// the window over which it then closes its connections.
	DrainWait, DrainTimeout time.Duration

	// Loops, MemoryBudget (bytes) and MaxHandshakes are passed to netio.Config.
	Loops         int
	MemoryBudget  int64
	MaxHandshakes int
	// MaxRequests bounds the concurrent HTTP requests that are routed
	// individually; default 16384.
	MaxRequests int
	// MaxProxies bounds the streams of the discovery server, MaxProxiesPerIdentity
	// those of one identity, such as all proxies of a service; default 10,000 and
	// 1,000.
	MaxProxies, MaxProxiesPerIdentity int

	// HistoryBudget bounds the memory of the history of the node's metrics, in bytes;
	// default DefaultHistory.
	HistoryBudget resource.Size

	// AccessLog is AccessOff (default), AccessClosed or AccessAll. AccessTo names where
	// lines go (output.Parse); default stderr, which is AccessOut. AccessFormat is one of
	// accesslog.FormatNames, by default json with AccessJSON and otherwise text.
	// AccessFields picks the fields of text and JSON; nil: all. AccessSample says which
	// lines are left out (accesslog.ParseSampling).
	AccessLog                  string
	AccessTo                   []string
	AccessOut                  io.Writer
	AccessFormat, AccessSample string
	AccessFields               []string
	AccessJSON                 bool
	// AccessInterval is the time between lines about an open connection, with AccessAll;
	// default DefaultAccessInterval.
	AccessInterval time.Duration
	// LogMemory bounds the last lines of the node's logs in memory, in bytes; default
	// logs.DefaultBudget.
	LogMemory resource.Size

	// withClients says that clients of the node's sockets are in this process, as in
	// tests.
	withClients bool

	// AuditEntries and AuditAge bound each ring of the audit log; default 5000 and 90
	// days.
	AuditEntries int
	AuditAge     time.Duration

	// Pprof serves /debug/pprof/ at HTTP.
	Pprof bool
	// Log receives the node's log lines; default none.
	Log *slog.Logger
	// Version is the version of the build.
	Version string
}

// withDefaults sets the defaults of fields that are zero.
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
	c.TokenTTL = cmp.Or(c.TokenTTL, bootstrap.DefaultTokenTTL)
	c.AuditEntries, c.AuditAge = cmp.Or(c.AuditEntries, audit.DefaultEntries), cmp.Or(c.AuditAge, audit.DefaultAge)
	if c.MaxRequests == 0 {
		c.MaxRequests = 16384
	}
	if c.MaxProxies == 0 {
		c.MaxProxies = xds.DefaultMaxStreams
	}
	if c.MaxProxiesPerIdentity == 0 {
		c.MaxProxiesPerIdentity = min(xds.DefaultMaxPerIdentity, c.MaxProxies)
	}
	if c.DeadVoterAfter == 0 {
		c.DeadVoterAfter = time.Minute
	}
	if c.ForgetAfter == 0 {
		c.ForgetAfter = 72 * time.Hour
	}
	c.Kubernetes.Controller = cmp.Or(c.Kubernetes.Controller, gateway.Controller)
	c.SPIFFESocketMode = cmp.Or(c.SPIFFESocketMode, "0660")
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
	c.AccessInterval = cmp.Or(c.AccessInterval, DefaultAccessInterval)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate lists every fault, in terms of the flags of penstock start.
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
	faults = append(faults, c.checkAddresses()...)
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
	if c.HistoryBudget != 0 && c.HistoryBudget < minHistory {
		fault("--history-budget %v: want %v or more", c.HistoryBudget, minHistory)
	}
	if c.MemoryBudget != 0 && c.MemoryBudget < 1<<20 {
		fault("--memory-budget %d: want 1 MiB or more", c.MemoryBudget>>20)
	}
	if c.MaxHandshakes < 0 {
		fault("--max-handshakes %d: want 1 or more", c.MaxHandshakes)
	}
	if c.MaxProxies < 1 || c.MaxProxiesPerIdentity < 1 {
		fault("--max-proxies %d, --max-proxies-per-identity %d: want 1 or more", c.MaxProxies, c.MaxProxiesPerIdentity)
	}
	if c.AuditEntries < 0 || c.AuditEntries > audit.MaxEntries {
		fault("--audit-entries %d: want 1 to %d", c.AuditEntries, audit.MaxEntries)
	}
	if c.AuditAge != 0 && c.AuditAge < time.Hour {
		fault("--audit-age %v: want 1h or more", c.AuditAge)
	}
	if c.MaxRequests < 1 {
		fault("--max-requests %d: want 1 or more", c.MaxRequests)
	}
	faults = append(append(faults, c.checkSPIFFE()...), c.Kubernetes.check()...)
	return append(faults, c.checkLogs()...)
}

// checkAddresses lists the faults of the addresses where the node listens.
func (c Config) checkAddresses() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	addresses := []struct{ flag, address string }{{"--cluster", c.Cluster}, {"--http", c.HTTP}}
	if !c.Dev {
		addresses = append(addresses, struct{ flag, address string }{"--gossip", c.Gossip})
	}
	if c.XDS != "" {
		addresses = append(addresses, struct{ flag, address string }{"--xds", c.XDS})
	}
	if c.BundleEndpoint != "" {
		addresses = append(addresses, struct{ flag, address string }{bundleFlag, c.BundleEndpoint})
	}
	for _, a := range addresses {
		at, err := netip.ParseAddrPort(a.address)
		switch {
		case err != nil:
			fault("%s %s: want IP:port, such as 127.0.0.1:7947", a.flag, a.address)
		case c.Dev && !at.Addr().IsLoopback():
			fault("%s %s: --dev has no TLS and no tokens: use a loopback address", a.flag, a.address)
		case a.flag == "--http":
			if why := c.checkHTTP(at); why != "" {
				fault("%s", why)
			}
		case !c.Dev && at.Addr().IsUnspecified() && c.Advertise == "" && a.flag != "--xds" && a.flag != bundleFlag:
			fault("%s %s: binds to all addresses: set --advertise to the address at which others reach this node", a.flag, a.address)
		}
	}
	return faults
}

// spiffeMode returns the mode of the Workload API's socket; 0: invalid.
func (c Config) spiffeMode() fs.FileMode {
	mode, err := strconv.ParseUint(c.SPIFFESocketMode, 8, 32)
	if err != nil || mode > 0o777 {
		return 0
	}
	return fs.FileMode(mode)
}

const bundleFlag = "--bundle-endpoint"

// checkSPIFFE lists the faults in the settings of the SPIFFE Workload API and of the bundle
// endpoint.
func (c Config) checkSPIFFE() (faults []string) {
	if c.BundleEndpoint != "" && c.Dev {
		faults = append(faults, bundleFlag+": --dev has no CA, and so no trust bundle: start a cluster of one node with --init")
	}
	switch {
	case c.SPIFFESocket == "":
		return faults
	case c.Dev:
		faults = append(faults, "--spiffe-socket: --dev has no CA to issue certificates: start a cluster of one node with --init")
	case runtime.GOOS != "linux":
		faults = append(faults, "--spiffe-socket: only Linux says reliably who connects to a socket: leave it out")
	case !filepath.IsAbs(c.SPIFFESocket) || len(c.SPIFFESocket) > maxSocketPath:
		faults = append(faults, fmt.Sprintf("--spiffe-socket %s: want an absolute path of at most %d bytes", c.SPIFFESocket, maxSocketPath))
	}
	if mode := c.spiffeMode(); mode&0o600 != 0o600 || mode&0o111 != 0 {
		faults = append(faults, fmt.Sprintf("--spiffe-socket-mode %s: want an octal mode such as 0660 or 0666", c.SPIFFESocketMode))
	}
	return faults
}

// checkCluster lists the faults in the settings of the cluster.
func (c Config) checkCluster() []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if c.Dev {
		if c.Init || c.Expect != 0 || len(c.Join) > 0 || c.Token != "" || c.TrustDomain != "" {
			fault("--dev runs a single node: leave out --init, --expect, --join, --token and --trust-domain")
		}
		return faults
	}
	if c.DataDir == "" {
		fault("--data-dir is required")
	}
	if c.TrustDomain != "" {
		if err := resource.CheckTrustDomain(c.TrustDomain); err != nil {
			fault("--trust-domain %.80q: %v: use a name such as prod.example.com", c.TrustDomain, err)
		}
	}
	if c.TokenTTL < 0 || c.TokenTTL > trust.MaxTTL {
		fault("--token-ttl %v: want more than 0s, up to %v", c.TokenTTL, trust.MaxTTL)
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
