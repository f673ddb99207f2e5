package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"penstock/node/api"
	"penstock/node/trust"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

func identityCommand(t *target) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "identity",
		Short: "Issue, list and revoke the certificates of workloads (SPIFFE X.509 SVIDs)",
		Long: "A workload's identity is a SPIFFE ID, spiffe://TRUST-DOMAIN/PATH, in a short-lived certificate of the cluster's CA. " +
			"These commands need the role admin, or issuer for the path of its token; bundle needs the role reader.",
	}, identityIssueCommand(t), identityListCommand(t), identityRevokeCommand(t), identityBundleCommand(t))
}

// identityFiles says where the files of a certificate go.
type identityFiles struct{ dir, cert, key, bundle string }

func identityIssueCommand(t *target) *cobra.Command {
	var req api.IdentityRequest
	var o identityFiles
	cmd := &cobra.Command{
		Use:   "issue {ID|PATH | --id ID}",
		Short: "Issue a workload's certificate, and write it with its key and the trust bundle",
		Long: "The private key is made here and never sent. Each file is replaced in one step. The certificate is not renewed: run " +
			"this again well before it ends, at half of its life for example.\n" +
			"DNS names are for programs that verify a server by name; they need the role admin. Paths that begin with /service, /xds " +
			"or /penstock belong to the cluster itself.",
		Example: "  penstock identity issue --id spiffe://TRUST-DOMAIN/ns/shop/web --out web\n" +
			"  penstock identity issue /ns/shop/web --out-dir /etc/web/tls\n" +
			"  penstock identity issue /ns/shop/web --ttl 24h --dns web.example --cert web.pem --key web.key --bundle ca.pem",
		Args: argRange(0, 1, "ID|PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && req.ID != "" {
				return usagef("two identities are given, %s and --id %s: give one", args[0], req.ID)
			}
			if req.ID += strings.Join(args, ""); req.ID == "" {
				return usagef("say which identity: a SPIFFE ID or its path, such as /ns/shop/web")
			}
			if err := o.complete(); err != nil {
				return err
			}
			if req.TTL < trust.MinSVIDLifetime || req.TTL > trust.MaxSVIDLifetime {
				return usagef("--ttl %v: want %v to %v", req.TTL, trust.MinSVIDLifetime, trust.MaxSVIDLifetime)
			}
			key, csr, err := trust.NewWorkloadRequest()
			if err != nil {
				return err
			}
			req.CSR = csr
			issued, err := ask[api.IdentityIssued](cmd, t, api.MethodIdentityIssue, req)
			if err != nil {
				return err
			}
			if err := o.write(issued, key); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\nserial %s, ends at %s\nwrote %s, %s, %s\n", issued.ID, issued.Serial, timeText(issued.Expires),
				o.cert, o.key, o.bundle)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.ID, "id", "", "the SPIFFE ID, or its path")
	f.DurationVar(&req.TTL, "ttl", trust.SVIDLifetime, "how long the certificate is valid, 5m to 168h")
	f.StringSliceVar(&req.DNS, "dns", nil, "DNS names of the certificate, at most 16")
	f.StringVar(&o.dir, "out-dir", "", "folder for svid.pem, svid_key.pem and bundle.pem")
	f.StringVar(&o.cert, "cert", "", "file for the certificate (default svid.pem in --out-dir)")
	f.StringVar(&o.key, "key", "", "file for the private key, which only its owner can read (default svid_key.pem in --out-dir)")
	f.StringVar(&o.bundle, "bundle", "", "file for the trust bundle, which verifies peers (default bundle.pem in --out-dir)")
	_ = cmd.MarkFlagDirname("out-dir")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "out" {
			name = "out-dir"
		}
		return pflag.NormalizedName(name)
	})
	return cmd
}

// complete sets the files that are not given.
func (o *identityFiles) complete() error {
	if o.dir == "" && (o.cert == "" || o.key == "" || o.bundle == "") {
		return usagef("say where the files go: --out-dir DIR, or all of --cert, --key and --bundle")
	}
	for path, name := range map[*string]string{&o.cert: "svid.pem", &o.key: "svid_key.pem", &o.bundle: "bundle.pem"} {
		if *path == "" {
			*path = filepath.Join(o.dir, name)
		}
	}
	return nil
}

// write writes the files, the certificate last: whoever follows it then reads the
// new key.
func (o *identityFiles) write(issued *api.IdentityIssued, key []byte) error {
	if o.dir != "" {
		if err := os.MkdirAll(o.dir, 0o700); err != nil {
			return err
		}
	}
	if err := replaceFile(o.bundle, trust.CertificatesPEM(issued.Roots...), 0o644); err != nil {
		return err
	}
	if err := replaceFile(o.key, key, 0o600); err != nil {
		return err
	}
	return replaceFile(o.cert, trust.CertificatesPEM(append([][]byte{issued.Certificate}, issued.Chain...)...), 0o644)
}

func identityListCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the certificates of workloads that may still be valid",
		Long:  "A certificate stays in the list for two hours after it has expired. With a token of role issuer, the list has those of its path.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ask[api.Identities](cmd, t, api.MethodIdentities, api.Empty{})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), list)
			}
			var rows [][]string
			for _, i := range *list {
				rows = append(rows, []string{i.ID, i.State, timeText(i.Expires), timeText(i.Issued), sanitize(i.By), i.Serial})
			}
			printTable(cmd.OutOrStdout(), []string{"ID", "STATE", "EXPIRES", "ISSUED", "BY", "SERIAL"}, rows)
			return nil
		},
	}
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func identityRevokeCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID|PATH|SERIAL",
		Short: "Revoke a workload's certificate, and close its connections on all nodes",
		Long: "An ID or path revokes all its certificates that are in force, a serial number one of them. Nodes refuse a revoked " +
			"certificate at handshakes and close the connections that were made with it (reason identity_revoked). It does not keep the " +
			"holder of a token from getting another: revoke the token too. For a WorkloadIdentity its onRevoke says what happens.",
		Example: "  penstock identity revoke /ns/shop/web",
		Args:    argRange(1, 1, "ID|PATH|SERIAL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[api.IdentityRevoked](cmd, t, api.MethodIdentityRevoke, api.IdentityRevokeRequest{Identity: args[0]})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d revoked\n", r.Count)
			return nil
		},
	}
}

func identityBundleCommand(t *target) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Print the trust bundle, which verifies the certificates of the cluster's workloads",
		Long: "The format spiffe is that of SPIFFE federation, a JWK set, for programs and other trust domains that are to accept this " +
			"cluster's workloads. Print it again after `penstock rotate ca`.\nThe format resource is a TrustBundle for another Penstock " +
			"cluster, with the name of this cluster's trust domain: give it a name there, and an endpoint.",
		Example: "  penstock identity bundle > ca.pem\n  penstock identity bundle -o spiffe > cluster.json\n" +
			"  penstock identity bundle -o resource > blue.yaml",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := ask[api.TrustBundle](cmd, t, api.MethodTrustBundle, api.Empty{})
			if err != nil {
				return err
			}
			text := trust.CertificatesPEM(b.Roots...)
			switch output {
			case "spiffe":
				if text, err = trust.SPIFFEBundle(b.Roots, b.Sequence); err != nil {
					return err
				}
				text = append(text, '\n')
			case "resource":
				text = codec.EncodeYAML(resource.Object{
					Key:  resource.Key{Kind: resource.KindTrustBundle, Name: "partner"},
					Spec: &resource.TrustBundle{TrustDomain: b.TrustDomain, Bundle: string(text)},
				})
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	outputFlag(cmd, &output, "pem", "spiffe", "resource")
	return cmd
}
