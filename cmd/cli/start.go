package cli

import (
	"context"
	"errors"
	stdlog "log"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/netio/web"
	"penstock/node"
	"penstock/node/accesslog"
	"penstock/node/audit"
	"penstock/node/cluster"
	"penstock/node/heap"
	"penstock/node/xds"
)

// settings are the flags of start.
type settings struct {
	config    string
	node      node.Config
	resources []string
	mode      string // --resources-mode
	budget    int
	logFormat string
	logLevel  string

	printToken bool
}

func startCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a node",
		Long: "A new node must be told its cluster: --init starts one and prints the command to join it (to a terminal, or with " +
			"--print-token), --join and --token join one, --expect N with the same --token on all nodes forms one of N nodes. After " +
			"that, --data-dir is enough.\n" +
			"The node runs until SIGTERM or SIGINT, which drains it; a second signal stops it at once. SIGHUP reloads the files of " +
			"--http-cert, --http-ca and --resources, and closes no connections.\n" +
			"Each setting can also be set in --config FILE (YAML, the same names) or in the environment (PENSTOCK_DRAIN_WAIT for " +
			"--drain-wait); flags override the environment, which overrides the file.",
		Example: "  penstock start --dev --resources penstock.yaml\n" +
			"  penstock start --init --data-dir /var/lib/penstock --cluster 10.0.0.1:7947 --gossip 10.0.0.1:7946\n" +
			"  penstock start --data-dir /var/lib/penstock",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signals := catchSignals() // no signal ends the process silently from here on
			defer signals.stop()
			if !cmd.Flags().Changed("config") {
				s.config = os.Getenv("PENSTOCK_CONFIG")
			}
			if err := resolveSettings(cmd, s.config); err != nil {
				return err
			}
			if err := s.checkCluster(cmd); err != nil {
				return err
			}
			return s.run(cmd, signals)
		},
	}
	s.flags(cmd)
	return cmd
}

func (s *settings) flags(cmd *cobra.Command) {
	f, n := cmd.Flags(), &s.node
	f.StringVar(&s.config, "config", "", "settings file, in YAML (PENSTOCK_CONFIG)")
	f.StringVar(&n.Name, "name", "", "name of the node (default the host name)")
	f.StringVar(&n.DataDir, "data-dir", "", "folder for the node's state and its socket penstock.sock (with --dev only the socket; "+
		"optional)")
	f.StringVar(&n.Cluster, "cluster", "127.0.0.1:7947", "address for other nodes and for commands")
	f.StringVar(&n.HTTP, "http", "127.0.0.1:7948", "address of /healthz, /readyz, /metrics and /v1")
	f.StringVar(&n.XDS, "xds", "", "another address of the discovery server for Envoy and gRPC, which also serves at --cluster")
	f.StringVar(&n.BundleEndpoint, "bundle-endpoint", "", "address where other SPIFFE trust domains get the cluster's trust bundle by the "+
		"profile https_spiffe; by https_web it is at --http, /v1/bundle")
	f.StringVar(&n.SPIFFESocket, "spiffe-socket", "", "unix socket of the SPIFFE Workload API, by which programs on this machine get "+
		"the identities of WorkloadIdentity resources")
	f.StringVar(&n.SPIFFESocketMode, "spiffe-socket-mode", "0660", "mode of its file; a folder with the setgid bit sets its group")
	f.StringVar(&n.Bind, "bind", "127.0.0.1", "IP address of listeners whose address has no host")
	f.StringToStringVar(&n.Tags, "tag", nil, "tags of the node, k=v,...")
	f.BoolVar(&n.Dev, "dev", false, "run a single node in memory, without TLS and tokens, for experiments")
	f.StringSliceVar(&s.resources, "resources", nil, "files or folders to apply; --resources-mode says when")
	f.StringVar(&s.mode, "resources-mode", seedMode, "seed: apply --resources once, when the cluster is new; sync: apply them at "+
		"each start and SIGHUP, and delete what an earlier sync of the same files applied and they no longer contain; "+
		"follow: sync, also when the files change")
	f.DurationVar(&n.DrainWait, "drain-wait", 5*time.Second, "on SIGTERM: report not ready, but keep accepting for this long")
	f.DurationVar(&n.DrainTimeout, "drain-timeout", 30*time.Second, "on SIGTERM, after --drain-wait: close connections over this window")
	f.IntVar(&n.Loops, "loops", 0, "event loops (default the number of cores)")
	f.IntVar(&s.budget, "memory-budget", 64, "MiB for connections whose route is unknown or whose endpoint is not connected yet, "+
		"Kafka frames and HTTP request headers")
	f.IntVar(&n.MaxHandshakes, "max-handshakes", 4096, "concurrent TLS handshakes")
	f.IntVar(&n.MaxProxies, "max-proxies", xds.DefaultMaxStreams, "streams of proxies to the discovery server")
	f.IntVar(&n.MaxProxiesPerIdentity, "max-proxies-per-identity", xds.DefaultMaxPerIdentity, "those of them with one identity")
	f.IntVar(&n.MaxRequests, "max-requests", 16384, "concurrent HTTP requests that are routed individually")
	f.IntVar(&n.AuditEntries, "audit-entries", audit.DefaultEntries, "entries of each ring of the audit log: of changes of resources, of issued "+
		"certificates, and of everything else")
	f.DurationVar(&n.AuditAge, "audit-age", audit.DefaultAge, "how long the audit log keeps an entry")
	f.TextVar(&n.HistoryBudget, "history-budget", node.DefaultHistory, "memory for the history of the node's metrics: the last hour, or less if it does not fit")
	s.logFlags(cmd)
	f.BoolVar(&n.Pprof, "pprof", false, "serve /debug/pprof/ at --http")
	s.kubernetesFlags(cmd)
	s.clusterFlags(cmd)
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
}

// maxBudget bounds --memory-budget, in MiB.
const maxBudget = 1 << 20

// run starts the node and waits until it ends.
func (s *settings) run(cmd *cobra.Command, signals *signals) error {
	log, err := s.logger(cmd)
	if err != nil {
		return err
	}
	s.node.Log = log
	s.node.Version = Build()
	s.node.Announce = func(line string) { s.announce(cmd, line) }
	if s.budget < 1 || s.budget > maxBudget {
		return usagef("--memory-budget %d: want 1 to %d", s.budget, maxBudget)
	}
	s.node.MemoryBudget = int64(s.budget) << 20
	s.node.AccessOut, s.node.AccessJSON = cmd.ErrOrStderr(), s.logFormat == "json"
	if faults := s.node.Validate(); len(faults) > 0 {
		return usagef("%s", strings.Join(faults, "; "))
	}
	if err := s.checkNew(); err != nil {
		return err
	}
	if err := s.readResources(cmd.InOrStdin(), cmd.ErrOrStderr()); err != nil {
		return err
	}
	background, stopBackground := context.WithCancel(context.Background())
	defer stopBackground()
	go heap.Tune(background)
	started := make(chan *node.Node, 1)
	go signals.handle(background, log, started)
	n, interrupted, err := startNode(s.node, signals.end)
	switch {
	case errors.Is(err, cluster.ErrNew):
		return usagef("%s: %s", s.node.DataDir, newFolderHelp)
	case err != nil:
		return err
	}
	started <- n
	if !interrupted {
		select {
		case sig := <-signals.end:
			log.Info("draining; a second signal stops it at once", "signal", sig.String(), "wait", s.node.DrainWait, "over", s.node.DrainTimeout)
		case <-n.Done():
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-signals.end:
			log.Warn("second signal: stopping at once")
			cancel()
		case <-ctx.Done():
		}
	}()
	return n.Stop(ctx)
}

// startNode starts a node. A signal cancels a start that takes long, such as
// that of a node looking for its cluster.
func startNode(cfg node.Config, signals <-chan os.Signal) (n *node.Node, interrupted bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-signals:
			interrupted = true
			cancel()
		case <-started:
		}
	}()
	n, err = node.Start(ctx, cfg)
	close(started)
	<-watched
	cancel()
	return n, interrupted, err
}

// logger returns the process's log, and redirects the standard logger, which
// net/http uses, to it.
func (s *settings) logger(cmd *cobra.Command) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil ||
		!slices.Contains([]string{"debug", "info", "warn", "error"}, strings.ToLower(s.logLevel)) {
		return nil, usagef("--log-level %s: want debug, info, warn or error", s.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch s.logFormat {
	case "text":
		h = slog.NewTextHandler(cmd.ErrOrStderr(), options)
	case "json":
		options.ReplaceAttr = accesslog.Seconds
		h = slog.NewJSONHandler(cmd.ErrOrStderr(), options)
	default:
		return nil, usagef("--log-format %s: want text or json", s.logFormat)
	}
	log := slog.New(h)
	stdlog.SetFlags(0)
	stdlog.SetOutput(web.ErrorLogWriter(log))
	return log, nil
}
