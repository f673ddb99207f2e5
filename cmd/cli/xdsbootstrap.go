package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"text/template"
	"time"

	"penstock/node/api"
)

// bootstrap is what the bootstrap file of a proxy says. The templates use its
// exported fields and methods.
type bootstrap struct {
	Service, ID string
	Servers     []server
	Delta       bool
	// AdminAddress is that of Envoy's admin interface; nil: none.
	AdminAddress *server
	Dir          string // of the certificate's files; "": they are inline

	// The certificate, as PEM; all are empty without TLS.
	Certificate, Key, CA string
	SPIFFE               string // of the proxy
	ServerID             string // the SPIFFE ID of the discovery servers
	Expires              time.Time
}

// server is the address of a discovery server.
type server struct {
	Host string
	Port int
}

func (s server) address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// TLS reports whether connections have TLS: they have none to a node with --dev.
func (b *bootstrap) TLS() bool { return b.Certificate != "" }

// setServers sets the servers. Each proxy begins with another one, so that they
// spread over the nodes also where the first one of the list serves all.
func (b *bootstrap) setServers(addresses []string) error {
	for _, a := range addresses {
		host, port, err := splitServer(a)
		if err != nil {
			return fmt.Errorf("the node names %q as the address of a node; give --server: %w", a, err)
		}
		b.Servers = append(b.Servers, server{host, port})
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, b.ID) // never fails
	if n := uint32(len(b.Servers)); n > 0 {
		first := h.Sum32() % n
		b.Servers = append(b.Servers[first:len(b.Servers):len(b.Servers)], b.Servers[:first]...)
	}
	return nil
}

// setCertificate sets the certificate that the cluster issued for a key.
func (b *bootstrap) setCertificate(issued *api.ProxyCertificate, key *ecdsa.PrivateKey) error {
	if len(issued.Certificate) == 0 {
		return nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	b.Key = pemText("PRIVATE KEY", der)
	b.Certificate = pemText("CERTIFICATE", issued.Certificate)
	for _, der := range issued.CAs {
		ca, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		// While the CA is rotated there are cross-signed ones too, which servers send.
		if bytes.Equal(ca.RawSubject, ca.RawIssuer) {
			b.CA += pemText("CERTIFICATE", der)
		}
	}
	b.SPIFFE, b.ServerID, b.Expires = issued.ID, issued.ServerID, issued.Expires
	return nil
}

func pemText(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// bootstrapFile is one of the files of --out.
type bootstrapFile struct {
	name    string
	content []byte
	mode    os.FileMode
}

// files returns the files of --out in the order in which to write them.
func (b *bootstrap) files(format string) (list []bootstrapFile, err error) {
	if b.TLS() {
		list = append(list,
			bootstrapFile{"key.pem", []byte(b.Key), 0o600}, bootstrapFile{"cert.pem", []byte(b.Certificate), 0o644},
			bootstrapFile{"ca.pem", []byte(b.CA), 0o644})
	}
	if format == grpcFormat {
		text, err := b.grpc()
		return append(list, bootstrapFile{"grpc.json", text, 0o644}), err
	}
	names := []string{"sds-certificate.yaml", "sds-ca.yaml", "envoy.yaml"}
	if !b.TLS() {
		names = names[2:]
	}
	for _, name := range names {
		var out bytes.Buffer
		if err := envoyTemplates.ExecuteTemplate(&out, name, b); err != nil {
			return nil, err
		}
		list = append(list, bootstrapFile{name, out.Bytes(), 0o644})
	}
	return list, nil
}

// print writes one file that needs no others.
func (b *bootstrap) print(out io.Writer, format string) error {
	if format == envoyFormat {
		return envoyTemplates.ExecuteTemplate(out, "envoy.yaml", b)
	}
	if b.TLS() {
		return fmt.Errorf("--format %s needs --out: gRPC reads certificates from files", grpcFormat)
	}
	text, err := b.grpc()
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

//go:embed xdsbootstrap.tmpl
var envoyTemplate string

// envoyTemplates are sds-certificate.yaml, sds-ca.yaml and envoy.yaml. YAML
// includes JSON, so quote makes any text one value.
var envoyTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"quote": func(v any) (string, error) {
		text, err := json.Marshal(v)
		return string(text), err
	},
	"indent": func(n int, text string) string {
		return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", n))
	},
	"time": timeText,
}).Parse(envoyTemplate))

// grpc returns the bootstrap file of gRPC (gRFC A27, A65 for the certificates, A71
// for several servers).
func (b *bootstrap) grpc() ([]byte, error) {
	type creds struct {
		Type   string            `json:"type"`
		Config map[string]string `json:"config,omitempty"`
	}
	type xdsServer struct {
		URI      string   `json:"server_uri"`
		Creds    []creds  `json:"channel_creds"`
		Features []string `json:"server_features"`
	}
	auth := creds{Type: "insecure"}
	if b.TLS() {
		auth = creds{Type: "tls", Config: map[string]string{
			"certificate_file": b.Dir + "/cert.pem", "private_key_file": b.Dir + "/key.pem", "ca_certificate_file": b.Dir + "/ca.pem",
			"refresh_interval": "60s",
		}}
	}
	file := struct {
		Servers []xdsServer       `json:"xds_servers"`
		Node    map[string]string `json:"node"`
	}{Node: map[string]string{"id": b.ID, "cluster": b.Service}}
	for _, s := range b.Servers {
		file.Servers = append(file.Servers, xdsServer{s.address(), []creds{auth}, []string{"xds_v3"}})
	}
	text, err := json.MarshalIndent(file, "", "  ")
	return append(text, '\n'), err
}
