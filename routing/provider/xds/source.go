// Package xds follows the endpoints that another control plane serves by xDS,
// the discovery protocol of Envoy: Penstock is a client of its EDS (endpoint
// discovery service, version 3).
//
// A query names a cluster. It is the name of the EDS resource, unless
// Config.Clusters asks CDS (cluster discovery service) which resource the
// cluster has. All four variants of the protocol are spoken: state of the world
// or delta, on one aggregated stream (ADS) or one stream for each type.
//
//	src, err := xds.New(xds.Config{Server: "control:18000", Node: xds.Node{ID: "edge-1"}})
//
// The protocol is at https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol.
package xds

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/structpb"

	"penstock/routing/provider"
)

// Defaults and bounds of Config.
const (
	DefaultTimeout      = 15 * time.Second // as Envoy's initial_fetch_timeout
	DefaultKeepAlive    = 5 * time.Minute  // the least that gRPC servers accept without a setting
	DefaultMaxBytes     = 16 << 20
	DefaultMaxEndpoints = 100_000

	minTimeout, maxTimeout     = 10 * time.Millisecond, 10 * time.Minute
	minKeepAlive, maxKeepAlive = 10 * time.Second, time.Hour
	minMaxBytes, maxMaxBytes   = 1 << 10, 1 << 30
	maxMaxEndpoints            = 1_000_000
	pingTimeout                = 20 * time.Second // for the answer to a keep-alive ping
	maxName                    = 1 << 10          // bytes of a resource's name or version, or of a nonce
	maxClusters                = 100_000          // that CDS may list
	// noOverprovisioning tells the control plane that an endpoint which is not
	// ready takes its share of the traffic of its locality along.
	noOverprovisioning = "envoy.lb.does_not_support_overprovisioning"
)

// Config configures New.
type Config struct {
	// Server is the control plane's host:port. Of a host name with several
	// addresses, the first that answers is used. Required.
	Server string
	// TLS has the authorities that sign the control plane's certificate, and the
	// certificate of this client if the control plane asks for one; nil: plain text.
	TLS *tls.Config
	// Delta selects the delta variant, which sends only resources that changed.
	Delta bool
	// Separate opens a stream for each type of resources (EDS, and CDS if Clusters
	// is set) rather than one aggregated stream (ADS).
	Separate bool
	// Clusters asks CDS for the clusters first: the EDS resource of a cluster is
	// the service name in its eds_cluster_config, if that is set.
	Clusters bool
	// Node is who this client is. Control planes select by it what they serve.
	Node Node
	// Timeout bounds connecting, sending a request, and waiting for a resource that
	// was asked for. Default 15s; 10ms to 10m.
	Timeout time.Duration
	// KeepAlive is the time without traffic after which the connection is checked.
	// gRPC servers close connections that they find to be checked too often: the
	// usual minimum is 5m. Default 5m; 10s to 1h.
	KeepAlive time.Duration
	// MaxBytes bounds a response, in bytes. Default 16 MiB; 1 KiB to 1 GiB.
	MaxBytes int
	// MaxEndpoints bounds the endpoints of a cluster in all its priorities. Default
	// 100,000; 1 to 1,000,000.
	MaxEndpoints int
}

// Node identifies the client to the control plane.
type Node struct {
	// ID is required. Cluster is often that of the proxy, its service.
	ID, Cluster string
	// Region, Zone and SubZone are the node's locality; each may be empty.
	Region, Zone, SubZone string
	// Metadata has strings, numbers, booleans, lists and maps of these.
	Metadata map[string]any
}

// Source follows the endpoints of a control plane. Create it with New. It keeps
// what it knows between two calls of Run, which must not overlap.
type Source struct {
	cfg  Config
	node *corev3.Node

	eds, cds subscription
	// assignments are the EDS resources subscribed to; clusters those that CDS
	// lists.
	assignments map[string]*assignment
	clusters    map[string]cluster

	dialOptions []grpc.DialOption // of tests
}

// New returns a source, or all faults of cfg.
func New(cfg Config) (*Source, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, DefaultKeepAlive)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	cfg.MaxEndpoints = cmp.Or(cfg.MaxEndpoints, DefaultMaxEndpoints)
	metadata, err := structpb.NewStruct(cfg.Node.Metadata)
	if err != nil {
		err = fmt.Errorf("xds: node metadata: %w", err)
	}
	faults := []error{
		err,
		checkServer(cfg.Server),
		between("timeout", cfg.Timeout, minTimeout, maxTimeout),
		between("keepAlive", cfg.KeepAlive, minKeepAlive, maxKeepAlive),
		between("maxBytes", cfg.MaxBytes, minMaxBytes, maxMaxBytes),
		between("maxEndpoints", cfg.MaxEndpoints, 1, maxMaxEndpoints),
	}
	if cfg.Node.ID == "" {
		faults = append(faults, errors.New("xds: the node id is missing"))
	}
	for _, text := range []string{cfg.Node.ID, cfg.Node.Cluster, cfg.Node.Region, cfg.Node.Zone, cfg.Node.SubZone} {
		if !utf8.ValidString(text) {
			faults = append(faults, fmt.Errorf("xds: node: %q is not UTF-8", text))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Source{
		cfg: cfg,
		node: &corev3.Node{
			Id: cfg.Node.ID, Cluster: cfg.Node.Cluster, Metadata: metadata,
			Locality:       &corev3.Locality{Region: cfg.Node.Region, Zone: cfg.Node.Zone, SubZone: cfg.Node.SubZone},
			UserAgentName:  "penstock",
			ClientFeatures: []string{noOverprovisioning},
		},
		eds:         subscription{typeURL: endpointType, delta: cfg.Delta, known: map[string]string{}},
		cds:         subscription{typeURL: clusterType, delta: cfg.Delta, known: map[string]string{}, wildcard: true},
		assignments: map[string]*assignment{},
		clusters:    map[string]cluster{},
	}, nil
}

func checkServer(server string) error {
	if server == "" {
		return errors.New("xds: the server is missing")
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		return fmt.Errorf("xds: server %q is not host:port", server)
	}
	return nil
}

func between[T cmp.Ordered](name string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("xds: %s is %v; it must be %v to %v", name, value, least, most)
	}
	return nil
}

// Run implements provider.Source. It is connected only while there are queries.
func (s *Source) Run(ctx context.Context, sink provider.Sink) error {
	for {
		queries, replaced := sink.Wanted()
		if len(queries) > 0 {
			if err := s.follow(ctx, sink); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-replaced:
		}
	}
}

// follow answers queries on one connection. It returns nil when there are none
// left.
func (s *Source) follow(ctx context.Context, sink provider.Sink) error {
	conn, err := s.connect()
	if err != nil {
		return fmt.Errorf("xds: %w", err)
	}
	defer conn.Close()
	session := newSession(ctx, s, sink, conn)
	defer session.close()
	err = session.run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// connect returns a connection, which is made when the first stream is opened.
func (s *Source) connect() (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		security = credentials.NewTLS(s.cfg.TLS)
	}
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: s.cfg.Timeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: s.cfg.KeepAlive, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.cfg.MaxBytes), grpc.ForceCodecV2(codec{s.cfg.MaxEndpoints * messagesPerEndpoint})),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("penstock"),
	}, s.dialOptions...)
	return grpc.NewClient("dns:///"+s.cfg.Server, options...)
}
