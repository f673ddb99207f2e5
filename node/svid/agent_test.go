package svid

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	spiffe "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// agent serves the SPIFFE Workload API as a test wants it.
type agent struct {
	spiffe.UnimplementedSpiffeWorkloadAPIServer
	t      *testing.T
	socket string
	server *grpc.Server

	mu      sync.Mutex
	say     func(spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error // nil err: and then nothing, until it changes
	changed chan struct{}
}

func newAgent(t *testing.T) *agent {
	dir, err := os.MkdirTemp("", "agent") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &agent{t: t, socket: filepath.Join(dir, "a.sock"), changed: make(chan struct{})}
	a.start()
	t.Cleanup(func() { a.server.Stop() })
	return a
}

func (a *agent) start() {
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		a.t.Fatal(err)
	}
	a.server = grpc.NewServer()
	spiffe.RegisterSpiffeWorkloadAPIServer(a.server, a)
	go a.server.Serve(l)
}

// send makes all streams, now and later, begin with what say does.
func (a *agent) send(say func(spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say = say
	close(a.changed)
	a.changed = make(chan struct{})
}

// give makes the agent give these SVIDs.
func (a *agent) give(svids ...*spiffe.X509SVID) {
	a.send(func(s spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
		return s.Send(&spiffe.X509SVIDResponse{Svids: svids})
	})
}

func (a *agent) FetchX509SVID(_ *spiffe.X509SVIDRequest, s spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
	for {
		a.mu.Lock()
		say, changed := a.say, a.changed
		a.mu.Unlock()
		if say != nil {
			if err := say(s); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

// issue returns an SVID of a CA that lasts until then, with a pair for comparison.
func issue(ca *certs.CA, id string, until time.Time) (*spiffe.X509SVID, certs.Pair) {
	u, err := url.Parse(id)
	if err != nil {
		panic(err)
	}
	pair := ca.Sign(&x509.Certificate{
		Subject: pkix.Name{Organization: []string{"test"}}, URIs: []*url.URL{u}, NotAfter: until,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	})
	key, err := x509.MarshalPKCS8PrivateKey(pair.TLS.PrivateKey)
	if err != nil {
		panic(err)
	}
	root, err := resource.ParseCertificates(ca.PEM)
	if err != nil {
		panic(err)
	}
	return &spiffe.X509SVID{SpiffeId: id, X509Svid: pair.TLS.Certificate[0], X509SvidKey: key, Bundle: root[0].Raw}, pair
}

// quick tries again at once.
type quick struct{}

func (quick) NewBackoff() workloadapi.Backoff { return quick{} }
func (quick) Next() time.Duration             { return 10 * time.Millisecond }
func (quick) Reset()                          {}

// dataplane has the resources in force, as a Manager put them.
type dataplane struct {
	*Manager
	t  *testing.T
	mu sync.Mutex
	in map[resource.Key]resource.Spec
}

func newDataplane(t *testing.T) *dataplane {
	d := &dataplane{t: t, in: map[resource.Key]resource.Spec{}}
	d.Manager = New(Config{Log: slog.New(slog.DiscardHandler), Backoff: quick{}, Apply: d.apply})
	t.Cleanup(d.Close)
	return d
}

func (d *dataplane) apply(_ *validate.Set, changes []resource.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range changes {
		if changes[i].Delete {
			delete(d.in, changes[i].Key)
		} else {
			d.in[changes[i].Key] = changes[i].Spec
		}
	}
}

func get[S resource.Spec](d *dataplane, kind string) (spec S) {
	d.mu.Lock()
	defer d.mu.Unlock()
	spec, _ = d.in[resource.Key{Kind: kind, Name: "a"}].(S)
	return spec
}

// chain returns the certificate in force; "": none.
func (d *dataplane) chain() string {
	if c := get[*resource.Certificate](d, "Certificate"); c != nil {
		return c.Cert
	}
	return ""
}

func (d *dataplane) waitFor(what, chain string) {
	d.t.Helper()
	testkit.WaitFor(d.t, what, func() bool { return d.chain() == chain })
}

func (d *dataplane) waitProblem(what, text string) {
	d.t.Helper()
	var got string
	if !testkit.Poll(testkit.Patience, func() bool {
		got = strings.Join(d.Problems("n1"), "\n")
		return got != "" && strings.Contains(got, text)
	}) {
		d.t.Fatalf("%s: the problems are %q, want %q", what, got, text)
	}
}

// use makes the Certificate a, from the agent, and a Listener and a Service that verify
// by its bundle.
func (d *dataplane) use(want resource.WorkloadAPI) {
	put := func(kind string, spec resource.Spec) resource.Change {
		return resource.Put(resource.Object{Key: resource.Key{Kind: kind, Name: "a"}, Spec: spec})
	}
	d.Apply(nil, []resource.Change{
		put("Listener", &resource.Listener{TLS: &resource.ListenerTLS{ClientAuth: &resource.ClientAuth{
			CARef: "a", SPIFFE: []string{"spiffe://*/ns/**", "spiffe://prod.example/web", "spiffe://other.example/web"},
		}}}),
		put("Service", &resource.Service{TLS: &resource.ServiceTLS{CARef: "a"}}),
		put("Certificate", &resource.Certificate{WorkloadAPI: &want}),
	})
}

const (
	web  = "spiffe://prod.example/web"
	hour = time.Hour
)

// What an agent gives is in force on the node: certificate, key, and the bundle by
// which others verify. The next one replaces it, and a new bundle too.
func TestAgentsCertificateAndBundleAreFollowed(t *testing.T) {
	a, d := newAgent(t), newDataplane(t)
	first, second := certs.NewCA("first"), certs.NewCA("second")
	d.use(resource.WorkloadAPI{Socket: "unix://" + a.socket})
	if c := get[*resource.Listener](d, "Listener"); c == nil || c.TLS.ClientAuth.CA != "" {
		t.Errorf("before the first answer the listener has %+v", c)
	}
	d.waitProblem("before the first answer", "there is no certificate: its source has not answered yet")
	svid, pair := issue(first, web, time.Now().Add(hour))
	a.give(svid)
	d.waitFor("the first certificate", pair.Cert)
	if c := get[*resource.Certificate](d, "Certificate"); string(c.Key) != pair.Key {
		t.Error("the key is another one")
	}
	auth := get[*resource.Listener](d, "Listener").TLS.ClientAuth
	if want := "spiffe://prod.example/ns/**, " + web; auth.CA != first.PEM || strings.Join(auth.SPIFFE, ", ") != want {
		t.Errorf("clients are verified by %q and %q", auth.CA, auth.SPIFFE)
	}
	if s := get[*resource.Service](d, "Service"); s.TLS.CA != first.PEM {
		t.Errorf("endpoints are verified by %q", s.TLS.CA)
	}
	if p := d.Problems("n1"); len(p) > 0 {
		t.Error(p)
	}
	svid, pair = issue(second, web, time.Now().Add(hour))
	a.give(svid)
	d.waitFor("the second certificate", pair.Cert)
	if s := get[*resource.Service](d, "Service"); s.TLS.CA != second.PEM {
		t.Error("endpoints are verified by the previous bundle")
	}
	s, ok := d.Of("a")
	if !ok || s.Source != SourceWorkloadAPI || !s.Until.Equal(pair.TLS.Leaf.NotAfter) {
		t.Errorf("%+v", s)
	}
}

// While the agent is away the last certificate stays, and that is told.
func TestLastCertificateStaysWhileTheAgentIsAway(t *testing.T) {
	a, d := newAgent(t), newDataplane(t)
	ca := certs.NewCA("ca")
	svid, pair := issue(ca, web, time.Now().Add(hour))
	a.give(svid)
	d.use(resource.WorkloadAPI{Socket: "unix://" + a.socket})
	d.waitFor("the certificate", pair.Cert)
	a.server.Stop()
	d.waitProblem("without an agent", "node n1: Certificate/a: the previous one stays in use until "+
		pair.TLS.Leaf.NotAfter.Format(time.RFC3339)+": the agent at unix://"+a.socket)
	if d.chain() != pair.Cert {
		t.Error("the certificate is gone")
	}
	svid, pair = issue(ca, web, time.Now().Add(hour))
	a.give(svid)
	a.start()
	d.waitFor("the next certificate", pair.Cert)
	testkit.WaitFor(t, "the end of the problem", func() bool { return len(d.Problems("n1")) == 0 })
}

// An agent that gives what cannot be used changes nothing, and is told.
func TestWhatCannotBeUsedChangesNothing(t *testing.T) {
	ca, other := certs.NewCA("ca"), certs.NewCA("other")
	good := func() *spiffe.X509SVID { s, _ := issue(ca, web, time.Now().Add(hour)); return s }
	mixed := func(change func(*spiffe.X509SVID)) func(spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
		return func(s spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
			svid := good()
			change(svid)
			return s.Send(&spiffe.X509SVIDResponse{Svids: []*spiffe.X509SVID{svid}})
		}
	}
	foreign, _ := issue(other, web, time.Now().Add(hour))
	for what, c := range map[string]struct {
		say  func(spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error
		want string
	}{
		"no SVID":                          {func(s spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error { return s.Send(&spiffe.X509SVIDResponse{}) }, "no SVIDs"},
		"garbage":                          {mixed(func(s *spiffe.X509SVID) { s.X509Svid = []byte("garbage") }), "the agent at"},
		"a huge message":                   {mixed(func(s *spiffe.X509SVID) { s.Bundle = make([]byte, maxMessage) }), "larger than max"},
		"a bundle that does not verify it": {mixed(func(s *spiffe.X509SVID) { s.Bundle = foreign.Bundle }), "could not verify"},
		"a key of another certificate":     {mixed(func(s *spiffe.X509SVID) { s.X509SvidKey = foreign.X509SvidKey }), "the agent at"},
		"an SVID that has expired": {mixed(func(s *spiffe.X509SVID) {
			old, _ := issue(ca, web, time.Now().Add(-hour))
			s.X509Svid, s.X509SvidKey = old.X509Svid, old.X509SvidKey
		}), "expired"},
		"no SPIFFE ID": {mixed(func(s *spiffe.X509SVID) { s.X509Svid = ca.Issue("a.example").TLS.Certificate[0] }), "the agent at"},
		"a stream that ends": {func(spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
			return status.Error(codes.Unavailable, "bye\x1b[2J\n")
		}, `bye\x1b[2J\n`},
		"a refusal": {func(spiffe.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
			return status.Error(codes.PermissionDenied, "no identity")
		}, "no identity"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a, d := newAgent(t), newDataplane(t)
			svid, pair := issue(ca, web, time.Now().Add(hour))
			a.give(svid)
			d.use(resource.WorkloadAPI{Socket: "unix://" + a.socket})
			d.waitFor("the certificate", pair.Cert)
			a.send(c.say)
			d.waitProblem("with "+what, c.want)
			if d.chain() != pair.Cert || get[*resource.Service](d, "Service").TLS.CA != ca.PEM {
				t.Error("what was in force has changed")
			}
			svid, pair = issue(ca, web, time.Now().Add(hour))
			a.give(svid)
			d.waitFor("the next certificate", pair.Cert)
		})
	}
}

// A certificate that expires is not presented any more; its bundle still verifies.
func TestExpiredCertificateIsTakenOutOfForce(t *testing.T) {
	a, d := newAgent(t), newDataplane(t)
	ca := certs.NewCA("ca")
	svid, pair := issue(ca, web, time.Now().Add(5*time.Second))
	a.give(svid)
	d.use(resource.WorkloadAPI{Socket: "unix://" + a.socket})
	testkit.WaitFor(t, "the certificate, or its end", func() bool {
		return d.chain() == pair.Cert || time.Now().After(pair.TLS.Leaf.NotAfter)
	})
	d.waitFor("the end of the certificate", "")
	d.waitProblem("after the end", "there is no certificate: ")
	if time.Now().Before(pair.TLS.Leaf.NotAfter) {
		t.Error("it was taken out of force before its end")
	}
}

// One of several SVIDs is picked by its ID or by its hint.
func TestSVIDIsPicked(t *testing.T) {
	ca := certs.NewCA("ca")
	one, first := issue(ca, web, time.Now().Add(hour))
	two, second := issue(ca, "spiffe://prod.example/api", time.Now().Add(hour))
	one.Hint, two.Hint = "external", "internal"
	for _, c := range []struct {
		want  resource.WorkloadAPI
		chain string
	}{
		{resource.WorkloadAPI{}, first.Cert},
		{resource.WorkloadAPI{Hint: "internal"}, second.Cert},
		{resource.WorkloadAPI{SPIFFEID: "spiffe://prod.example/api"}, second.Cert},
	} {
		a, d := newAgent(t), newDataplane(t)
		a.give(one, two)
		c.want.Socket = "unix://" + a.socket
		d.use(c.want)
		d.waitFor("the certificate", c.chain)
	}
	a, d := newAgent(t), newDataplane(t)
	a.give(one, two)
	d.use(resource.WorkloadAPI{Socket: "unix://" + a.socket, Hint: "gone"})
	d.waitProblem("a hint that no SVID has", "no SVID is for the hint gone; there are "+web+", spiffe://prod.example/api")
}

// A Certificate that gets another source does not keep what the previous one gave, and
// neither do those who verify by its bundle.
func TestAnotherSourceStartsWithNothing(t *testing.T) {
	a, b, d := newAgent(t), newAgent(t), newDataplane(t)
	svid, pair := issue(certs.NewCA("ca"), web, time.Now().Add(hour))
	a.give(svid)
	d.use(resource.WorkloadAPI{Socket: "unix://" + a.socket})
	d.waitFor("the certificate", pair.Cert)
	cert := resource.Object{Key: resource.Key{Kind: "Certificate", Name: "a"}}
	cert.Spec = &resource.Certificate{WorkloadAPI: &resource.WorkloadAPI{Socket: "unix://" + b.socket}}
	d.Apply(nil, []resource.Change{resource.Put(cert)})
	if d.chain() != "" || get[*resource.Service](d, "Service").TLS.CA != "" {
		t.Error("what the previous agent gave is still in force")
	}
	cert.Spec = &resource.Certificate{Cert: pair.Cert, Key: resource.Secret(pair.Key)}
	d.Apply(nil, []resource.Change{resource.Put(cert)})
	if d.chain() != pair.Cert || len(d.State()) != 0 {
		t.Error("a certificate without a source is not passed on")
	}
}
