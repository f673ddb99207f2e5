// Package kubeapi speaks to the API server of a Kubernetes cluster: it finds the
// server and the credentials, and lists and watches objects within bounds.
//
//	client, err := kubeapi.Connect(cfg, kubeapi.Group{Version: gv, Codecs: codecs})
//	f := &kubeapi.Follower[object]{Client: client, Kind: kind, Send: send}
//	f.Run(ctx)
//
// It knows no kind of object; those who use it do.
package kubeapi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// burst is how many requests may exceed Config.Rate at once.
const burst = 50

// Config configures Connect and the followers of its client.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file, Context the context in it
	// (default: its current one). Without a path the service account of the pod
	// that the process runs in is used.
	Kubeconfig, Context string
	// AllowExec permits a kubeconfig that runs a command to get credentials.
	AllowExec bool
	// Timeout bounds each answer to a list, and the time until a watch begins.
	Timeout time.Duration
	// MaxBytes bounds the bytes of each answer to a list, and of each event of a
	// watch. Events have a bound of 16 MiB besides.
	MaxBytes int64
	// MaxObjects bounds what a follower counts, in the units of Kind.Size.
	MaxObjects int
	// Rate bounds the requests per second, beyond a burst of 50.
	Rate float64
	// FirstRetry is the pause after the first failure of a list or watch.
	FirstRetry time.Duration
	// Resolve returns the path of Kubeconfig, or of a file that it names, without
	// symbolic links, or why it must not be read; nil: everything may.
	Resolve func(path string) (string, error)
	// For errors: what to do about an answer that is too large, the whole text for
	// too many objects, and since when servers have the kinds.
	TooLarge, TooMany, NoKind string
}

// Group is a group of an API server with the types that its answers may have.
type Group struct {
	Version schema.GroupVersion
	Codecs  serializer.CodecFactory
	// Protobuf says that the types have that encoding, which the server then uses.
	Protobuf bool
}

var (
	v1         = schema.GroupVersion{Version: "v1"}
	parameters runtime.ParameterCodec
)

func init() {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1)
	parameters = runtime.NewParameterCodec(scheme)
}

// Client speaks to one API server. Create it with Connect.
type Client struct {
	cfg    Config
	host   string // for errors
	origin string // of the credentials, for errors
	// Namespace is that of the kubeconfig's context or of the pod, otherwise "default".
	Namespace string
	transport *http.Transport
	groups    map[schema.GroupVersion]*rest.RESTClient
	limiter   *rate.Limiter // of all requests
	secrets   *strings.Replacer
	// credentials are those of the last request, which a file or a command may
	// have given.
	credentials atomic.Pointer[string]
	// allowed says why a file that the configuration names must not be read. client-go
	// reads some of them again later, so that it is asked before each request.
	allowed func() error
}

// Connect returns a client. It reads files, and sends nothing yet.
func Connect(cfg Config, groups ...Group) (*Client, error) {
	from, namespace, origin, err := cfg.load()
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, origin: origin, Namespace: cmp.Or(namespace, metav1.NamespaceDefault),
		groups: map[schema.GroupVersion]*rest.RESTClient{}, limiter: rate.NewLimiter(rate.Limit(cfg.Rate), burst),
		secrets: redact(from), allowed: func() error { return nil },
	}
	if cfg.Kubeconfig != "" {
		c.allowed = func() error { return cfg.allow(origin, filesOf(from)) }
	}
	server, _, err := rest.DefaultServerUrlFor(from)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %s: the server is not a URL", origin)
	}
	c.host = server.Host
	// client-go's own transports are kept for the life of the process.
	tlsConfig, err := rest.TLSConfigFor(from)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %s: the certificates cannot be used: %w", origin, err)
	}
	c.transport = utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tlsConfig, Proxy: from.Proxy})
	from.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &transport{rt, c} })
	wrapped, err := rest.HTTPWrappersForConfig(from, c.transport)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %s: the credentials cannot be used: %w", origin, err)
	}
	for _, g := range groups {
		of := rest.CopyConfig(from)
		of.GroupVersion, of.APIPath = &g.Version, "/apis"
		if g.Version.Group == "" {
			of.APIPath = "/api"
		}
		of.NegotiatedSerializer = g.Codecs.WithoutConversion()
		of.AcceptContentTypes, of.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if g.Protobuf {
			of.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		}
		of.QPS = -1 // limiter counts the watches too
		of.WarningHandler = rest.NoWarnings{}
		if c.groups[g.Version], err = rest.RESTClientForConfigAndClient(of, &http.Client{Transport: wrapped}); err != nil {
			return nil, fmt.Errorf("kubernetes: %s: %w", origin, err)
		}
	}
	return c, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// load returns what the kubeconfig or the pod's service account says, and where
// that is from.
func (c *Config) load() (cfg *rest.Config, namespace, origin string, err error) {
	if c.Kubeconfig == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			if errors.Is(err, rest.ErrNotInCluster) {
				err = errors.New("this process does not run in a pod: give a kubeconfig")
			}
			return nil, "", "", fmt.Errorf("kubernetes: the service account of the pod cannot be used: %w", err)
		}
		text, _ := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		return cfg, strings.TrimSpace(string(text)), "the pod's service account", nil
	}
	origin = "kubeconfig " + c.Kubeconfig
	file, err := c.loadFile(origin)
	if err != nil {
		return nil, "", "", err
	}
	name := cmp.Or(c.Context, file.CurrentContext)
	if file.Contexts[name] == nil {
		return nil, "", "", fmt.Errorf("kubernetes: %s has no context %.80q", origin, name)
	}
	if err := c.allow(origin, filesOfContext(file, name)); err != nil {
		return nil, "", "", err
	}
	loader := clientcmd.NewNonInteractiveClientConfig(*file, name, &clientcmd.ConfigOverrides{}, nil)
	if cfg, err = loader.ClientConfig(); err != nil {
		return nil, "", "", fmt.Errorf("kubernetes: %s, context %q: %w", origin, name, err)
	}
	if cfg.ExecProvider != nil && !c.AllowExec {
		return nil, "", "", fmt.Errorf("kubernetes: %s, context %q, runs the command %.80q for its credentials: set allowExec if it may",
			origin, name, cfg.ExecProvider.Command)
	}
	return cfg, file.Contexts[name].Namespace, fmt.Sprintf("%s, context %q", origin, name), nil
}

// loadFile reads the kubeconfig. It makes the paths in it absolute.
func (c *Config) loadFile(origin string) (*clientcmdapi.Config, error) {
	if c.Resolve != nil {
		if _, err := c.Resolve(c.Kubeconfig); err != nil {
			return nil, fmt.Errorf("kubernetes: %w", err)
		}
	}
	file, err := clientcmd.LoadFromFile(c.Kubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("kubernetes: %w", err)
	case err != nil: // its text may quote the file
		return nil, fmt.Errorf("kubernetes: %s is not valid: \"kubectl --kubeconfig FILE config view\" says where", origin)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("kubernetes: %s: %w", origin, err)
	}
	return file, nil
}

// namedFile is a file that a kubeconfig names.
type namedFile struct{ field, path string }

// filesOfContext returns the files that a context of a kubeconfig names.
func filesOfContext(file *clientcmdapi.Config, context string) []namedFile {
	var list []namedFile
	if cluster := file.Clusters[file.Contexts[context].Cluster]; cluster != nil {
		list = append(list, namedFile{"certificate-authority", cluster.CertificateAuthority})
	}
	if user := file.AuthInfos[file.Contexts[context].AuthInfo]; user != nil {
		list = append(list, namedFile{"client-certificate", user.ClientCertificate}, namedFile{"client-key", user.ClientKey},
			namedFile{"tokenFile", user.TokenFile})
	}
	return list
}

// filesOf returns the files that a configuration names.
func filesOf(cfg *rest.Config) []namedFile {
	return []namedFile{
		{"certificate-authority", cfg.CAFile}, {"client-certificate", cfg.CertFile}, {"client-key", cfg.KeyFile}, {"tokenFile", cfg.BearerTokenFile},
	}
}

// allow returns an error if a file must not be read. A file that is missing is not its
// business: reading it says so.
func (c *Config) allow(origin string, named []namedFile) error {
	if c.Resolve == nil {
		return nil
	}
	for _, f := range named {
		if f.path == "" {
			continue
		}
		if _, err := c.Resolve(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("kubernetes: %s: %s: %w", origin, f.field, err)
		}
	}
	return nil
}

// removed stands for a credential in a text.
const removed = "(removed)"

// redact returns what removes the credentials of a configuration from a text.
func redact(cfg *rest.Config) *strings.Replacer {
	var pairs []string
	for _, secret := range []string{cfg.BearerToken, cfg.Password} {
		if secret = strings.TrimSpace(secret); secret != "" {
			pairs = append(pairs, secret, removed)
		}
	}
	return strings.NewReplacer(pairs...)
}

// errTooLarge is the error of reading more than Config.MaxBytes.
var errTooLarge = errors.New("the answer is too large")

// meter bounds the bytes of an answer, or of a watch from event to event. A
// request carries it in its context.
type meter struct {
	limit    int64
	left     atomic.Int64
	exceeded atomic.Bool
}

type meterKey struct{}

func newMeter(limit int64) *meter {
	m := &meter{limit: limit}
	m.reset()
	return m
}

func (m *meter) reset() { m.left.Store(m.limit) }

// transport bounds the bodies of answers by the meters of their requests.
type transport struct {
	http.RoundTripper
	client *Client
}

func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := t.client.allowed(); err != nil {
		return nil, err
	}
	if _, credentials, ok := strings.Cut(request.Header.Get("Authorization"), " "); ok && credentials != "" {
		t.client.credentials.Store(&credentials)
	}
	response, err := t.RoundTripper.RoundTrip(request)
	m, ok := request.Context().Value(meterKey{}).(*meter)
	if err != nil || !ok {
		return response, err
	}
	if response.ContentLength > m.limit {
		response.Body.Close()
		m.exceeded.Store(true)
		return nil, errTooLarge
	}
	response.Body = &boundedBody{response.Body, m}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser
	meter *meter
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.meter.left.Add(int64(-n)) < 0 {
		b.meter.exceeded.Store(true)
		return 0, errTooLarge
	}
	return n, err
}
