package cli

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/node/trust"
)

func xdsCommand(t *target) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "xds",
		Short: "Set up the clients of the discovery server",
	}, xdsBootstrapCommand(t))
}

// bootstrapOptions are the flags of xds bootstrap.
type bootstrapOptions struct {
	service, out, format, id, admin string
	servers                         []string
	ttl                             time.Duration
	delta                           bool
}

// The formats of a bootstrap file.
const (
	envoyFormat = "envoy"
	grpcFormat  = "grpc"
)

func xdsBootstrapCommand(t *target) *cobra.Command {
	var o bootstrapOptions
	cmd := &cobra.Command{
		Use:   "bootstrap --for SERVICE",
		Short: "Issue a certificate for a proxy of a service, and write the bootstrap file of Envoy or gRPC",
		Long: "The proxy connects to the nodes with the certificate, which says of which service it is. The service needs " +
			"spec.discovery. Run this where the proxy runs: its private key is made here and never sent.\n" +
			"Without --out, an Envoy bootstrap file with the certificate and its key goes to stdout. With --out DIR, " +
			"the files are envoy.yaml or grpc.json, cert.pem, key.pem and ca.pem, and those of the certificate are followed: the same " +
			"command renews it while the proxy runs. Do so well before it ends, and after `penstock rotate ca`.\n" +
			"It needs the role admin: the proxies may get private keys.",
		Example: "  penstock xds bootstrap --for web --out /etc/envoy\n" +
			"  penstock xds bootstrap --for web --out /etc/web --format grpc",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			b, err := o.request(cmd, t)
			if err != nil {
				return err
			}
			if o.out == "" {
				return b.print(cmd.OutOrStdout(), o.format)
			}
			return o.write(cmd, b)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.service, "for", "", "the service whose proxy this is (required)")
	f.StringVar(&o.out, "out", "", "folder to write to")
	f.StringVar(&o.format, "format", envoyFormat, "envoy or grpc")
	f.StringSliceVar(&o.servers, "server", nil, "where the proxy reaches the discovery servers, host:port,... (default the cluster port of "+
		"every node)")
	f.DurationVar(&o.ttl, "ttl", trust.ProxyLifetime, "how long the certificate is valid, 1h to 2160h")
	f.StringVar(&o.id, "id", "", "name of this proxy among those of the service (default SERVICE@HOST)")
	f.BoolVar(&o.delta, "delta", false, "envoy: ask for changes only (delta xDS) rather than for the whole state each time")
	f.StringVar(&o.admin, "admin", "", "envoy: address of its admin interface, on a loopback address (default none)")
	_ = cmd.MarkFlagDirname("out")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{envoyFormat, grpcFormat}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check returns what is wrong with the flags.
func (o *bootstrapOptions) check() error {
	switch {
	case o.service == "":
		return usagef("--for: name the service whose proxy this is")
	case o.format != envoyFormat && o.format != grpcFormat:
		return usagef("--format %s: want %s or %s", o.format, envoyFormat, grpcFormat)
	case o.format == grpcFormat && (o.delta || o.admin != ""):
		return usagef("--delta and --admin are settings of Envoy: leave them out with --format %s", grpcFormat)
	case o.ttl < trust.MinProxyLifetime || o.ttl > trust.MaxProxyLifetime:
		return usagef("--ttl %v: want %v to %v", o.ttl, trust.MinProxyLifetime, trust.MaxProxyLifetime)
	}
	for _, s := range o.servers {
		if _, _, err := splitServer(s); err != nil {
			return usagef("--server %s: want HOST:PORT", s)
		}
	}
	if o.admin != "" {
		if at, err := netip.ParseAddrPort(o.admin); err != nil || !at.Addr().IsLoopback() {
			return usagef("--admin %s: want the IP:port of a loopback address, since Envoy's admin interface has no authentication", o.admin)
		}
	}
	return nil
}

// splitServer splits the address of a discovery server.
func splitServer(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 65535 || host == "" {
		return "", 0, errors.New("want HOST:PORT")
	}
	return host, port, nil
}

// request asks the node for a certificate and for the nodes to connect to.
func (o *bootstrapOptions) request(cmd *cobra.Command, t *target) (*bootstrap, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
	defer cancel()
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	csr, err := trust.NewProxyRequest(key)
	if err != nil {
		return nil, err
	}
	issued, err := rpc.Call[api.ProxyCertificate](ctx, c, api.MethodIssueProxy,
		api.ProxyCertificateRequest{Service: o.service, CSR: csr, TTL: o.ttl})
	if err != nil {
		return nil, err
	}
	servers := o.servers
	if len(servers) == 0 {
		members, err := rpc.Call[api.Members](ctx, c, api.MethodMembers, api.Empty{})
		if err != nil {
			return nil, err
		}
		for _, m := range *members {
			servers = append(servers, m.Address)
		}
	}
	b := &bootstrap{Service: o.service, ID: o.id, Delta: o.delta}
	if host, port, err := splitServer(o.admin); err == nil {
		b.AdminAddress = &server{host, port}
	}
	if b.ID == "" {
		host, _ := os.Hostname()
		b.ID = o.service + "@" + cmp.Or(host, "localhost")
	}
	if err := b.setServers(servers); err != nil {
		return nil, err
	}
	return b, b.setCertificate(issued, key)
}

// write writes the files. Envoy and gRPC read the certificate again when it
// changes, so its files come before those that refer to them, each at once.
func (o *bootstrapOptions) write(cmd *cobra.Command, b *bootstrap) error {
	dir, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b.Dir = dir
	list, err := b.files(o.format)
	if err != nil {
		return err
	}
	var names []string
	for _, f := range list {
		if err := replaceFile(filepath.Join(dir, f.name), f.content, f.mode); err != nil {
			return err
		}
		names = append(names, f.name)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: wrote %s\n", o.out, strings.Join(names, ", "))
	if b.TLS() {
		fmt.Fprintf(cmd.OutOrStdout(), "the certificate of %s ends at %s; run this again before\n", b.SPIFFE, timeText(b.Expires))
	}
	return nil
}

// replaceFile writes a file, or replaces it in one step.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // fails after the rename
	defer f.Close()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
