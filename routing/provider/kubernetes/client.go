package kubernetes

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

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The types that answers may have. The scheme of all of Kubernetes' types would
// double what client-go adds to the binary.
var (
	codecs     serializer.CodecFactory
	parameters runtime.ParameterCodec
)

func init() {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, discoveryv1.SchemeGroupVersion)
	codecs, parameters = serializer.NewCodecFactory(scheme), runtime.NewParameterCodec(scheme)
}

// client speaks to one API server.
type client struct {
	host      string // for errors
	origin    string // of the credentials, for errors
	namespace string // of the kubeconfig's context or of the pod
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

// connect returns a client. It reads files, and sends nothing yet.
func (s *Source) connect() (*client, error) {
	cfg, namespace, origin, err := s.load()
	if err != nil {
		return nil, err
	}
	c := &client{
		origin: origin, namespace: cmp.Or(namespace, metav1.NamespaceDefault),
		groups: map[schema.GroupVersion]*rest.RESTClient{}, limiter: rate.NewLimiter(rate.Limit(s.cfg.Rate), burst),
		secrets: redact(cfg), allowed: func() error { return nil },
	}
	if s.cfg.Kubeconfig != "" {
		c.allowed = func() error { return s.allow(origin, filesOf(cfg)) }
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %s: the server is not a URL", origin)
	}
	c.host = server.Host
	// client-go's own transports are kept for the life of the process.
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %s: the certificates cannot be used: %w", origin, err)
	}
	c.transport = utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tlsConfig, Proxy: cfg.Proxy})
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &transport{rt, c} })
	wrapped, err := rest.HTTPWrappersForConfig(cfg, c.transport)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %s: the credentials cannot be used: %w", origin, err)
	}
	for _, k := range kinds {
		of := rest.CopyConfig(cfg)
		of.GroupVersion, of.APIPath = &k.group, "/apis"
		if k.group.Group == "" {
			of.APIPath = "/api"
		}
		of.NegotiatedSerializer = codecs.WithoutConversion()
		of.AcceptContentTypes, of.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeJSON
		of.QPS = -1 // limiter counts the watches too
		of.WarningHandler = rest.NoWarnings{}
		if c.groups[k.group], err = rest.RESTClientForConfigAndClient(of, &http.Client{Transport: wrapped}); err != nil {
			return nil, fmt.Errorf("kubernetes: %s: %w", origin, err)
		}
	}
	return c, nil
}

func (c *client) close() { c.transport.CloseIdleConnections() }

// load returns what the kubeconfig or the pod's service account says, and where
// that is from.
func (s *Source) load() (cfg *rest.Config, namespace, origin string, err error) {
	if s.cfg.Kubeconfig == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			if errors.Is(err, rest.ErrNotInCluster) {
				err = errors.New("this process does not run in a pod: give a kubeconfig")
			}
			return nil, "", "", fmt.Errorf("kubernetes: the service account of the pod cannot be used: %w", err)
		}
		text, _ := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		return cfg, strings.TrimSpace(string(text)), "the pod's service account", nil
	}
	origin = "kubeconfig " + s.cfg.Kubeconfig
	file, err := s.loadFile(origin)
	if err != nil {
		return nil, "", "", err
	}
	name := cmp.Or(s.cfg.Context, file.CurrentContext)
	if file.Contexts[name] == nil {
		return nil, "", "", fmt.Errorf("kubernetes: %s has no context %.80q", origin, name)
	}
	if err := s.allow(origin, filesOfContext(file, name)); err != nil {
		return nil, "", "", err
	}
	loader := clientcmd.NewNonInteractiveClientConfig(*file, name, &clientcmd.ConfigOverrides{}, nil)
	if cfg, err = loader.ClientConfig(); err != nil {
		return nil, "", "", fmt.Errorf("kubernetes: %s, context %q: %w", origin, name, err)
	}
	if cfg.ExecProvider != nil && !s.cfg.AllowExec {
		return nil, "", "", fmt.Errorf("kubernetes: %s, context %q, runs the command %.80q for its credentials: set allowExec if it may",
			origin, name, cfg.ExecProvider.Command)
	}
	return cfg, file.Contexts[name].Namespace, fmt.Sprintf("%s, context %q", origin, name), nil
}

// loadFile reads the kubeconfig. It makes the paths in it absolute.
func (s *Source) loadFile(origin string) (*clientcmdapi.Config, error) {
	if s.cfg.Resolve != nil {
		if _, err := s.cfg.Resolve(s.cfg.Kubeconfig); err != nil {
			return nil, fmt.Errorf("kubernetes: %w", err)
		}
	}
	file, err := clientcmd.LoadFromFile(s.cfg.Kubeconfig)
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
func (s *Source) allow(origin string, named []namedFile) error {
	if s.cfg.Resolve == nil {
		return nil
	}
	for _, f := range named {
		if f.path == "" {
			continue
		}
		if _, err := s.cfg.Resolve(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	client *client
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
