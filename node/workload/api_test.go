package workload

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	spiffe "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/internal/testkit"
	"penstock/node/trust"
	"penstock/routing/resource"
)

// served is an API at a socket.
type served struct {
	*API
	source  *Source
	issuer  *issuer
	bundles *trust.Bundles
	path    string
}

func serve(t *testing.T) *served {
	t.Helper()
	i := newIssuer(t)
	s := &served{issuer: i, source: i.newSource(t, 0), bundles: trust.NewBundles(), path: filepath.Join(t.TempDir(), "api.sock")}
	s.API = NewAPI(s.source, i.ca.ClusterID(), s.bundles, slog.New(slog.DiscardHandler))
	l, err := Listen(s.path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// put applies a WorkloadIdentity; nil deletes it.
func (s *served) put(name string, w *resource.WorkloadIdentity) {
	ch := resource.Change{Delete: w == nil}
	ch.Kind, ch.Name = resource.KindWorkload, name
	if w != nil {
		ch.Spec = w
	}
	s.Apply([]resource.Change{ch})
}

func (s *served) putOwn(name, id, hint string) {
	s.put(name, &resource.WorkloadIdentity{SPIFFE: id, Hint: hint, Selectors: own()})
}

// own selects the test's own process.
func own() resource.WorkloadSelectors {
	return resource.WorkloadSelectors{Unix: resource.UnixSelector{UID: []int{os.Getuid()}, GID: []int{os.Getgid()}}}
}

// dial returns a client, and a context with the security header.
func (s *served) dial(t *testing.T) (spiffe.SpiffeWorkloadAPIClient, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+s.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	return spiffe.NewSpiffeWorkloadAPIClient(conn), metadata.AppendToOutgoingContext(ctx, securityHeader, "true")
}

func mustFetch(t *testing.T, s *served) grpc.ServerStreamingClient[spiffe.X509SVIDResponse] {
	t.Helper()
	client, ctx := s.dial(t)
	stream, err := client.FetchX509SVID(ctx, &spiffe.X509SVIDRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func mustRecv[T any](t *testing.T, stream grpc.ServerStreamingClient[T]) *T {
	t.Helper()
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// ids lists the paths and hints of a message.
func ids(resp *spiffe.X509SVIDResponse) (list []string) {
	for _, s := range resp.Svids {
		id, _ := spiffeid.FromString(s.SpiffeId)
		list = append(list, id.Path()+" "+s.Hint)
	}
	return list
}

// The reference client gets what it expects, and hears of each change.
func TestWorkloadsGetTheirIdentities(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.putOwn("web", "/ns/shop/web", "external")
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+s.path)))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	svid, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	domain := spiffeid.RequireTrustDomainFromString(s.issuer.ca.ClusterID())
	bundle, err := source.GetX509BundleForTrustDomain(domain)
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := x509svid.Verify(svid.Certificates, x509bundle.FromX509Authorities(domain, bundle.X509Authorities()))
	if err != nil || id.Path() != "/ns/shop/web" || svid.Hint != "external" {
		t.Errorf("%v, %v, hint %q", id, err, svid.Hint)
	}

	stream := mustFetch(t, s)
	if got := ids(mustRecv(t, stream)); !slices.Equal(got, []string{"/ns/shop/web external"}) {
		t.Errorf("%q", got)
	}
	s.putOwn("admin", "/ns/shop/admin", "")
	if got := ids(mustRecv(t, stream)); !slices.Equal(got, []string{"/ns/shop/admin ", "/ns/shop/web external"}) {
		t.Errorf("after another identity: %q", got)
	}
	s.putOwn("web", "/ns/shop/web", "internal")
	if got := ids(mustRecv(t, stream)); !slices.Equal(got, []string{"/ns/shop/admin ", "/ns/shop/web internal"}) {
		t.Errorf("after another hint: %q", got)
	}
	s.put("admin", nil)
	if got := ids(mustRecv(t, stream)); !slices.Equal(got, []string{"/ns/shop/web internal"}) {
		t.Errorf("after a deletion: %q", got)
	}
	s.put("web", nil)
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("after the last: %v", err)
	}
	testkit.WaitFor(t, "the stream to end", func() bool { return s.Stats().Streams == 0 })
}

// A rotation of the CA reaches open streams of both methods.
func TestOpenStreamsGetTheNextCA(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.putOwn("web", "/web", "")
	svids := mustFetch(t, s)
	first := mustRecv(t, svids)
	client, ctx := s.dial(t)
	bundles, err := client.FetchX509Bundles(ctx, &spiffe.X509BundlesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	domain := "spiffe://" + s.issuer.ca.ClusterID()
	roots := func() int {
		certs, err := x509.ParseCertificates(mustRecv(t, bundles).Bundles[domain])
		if err != nil {
			t.Fatal(err)
		}
		return len(certs)
	}
	if n := roots(); n != 1 {
		t.Fatalf("%d roots", n)
	}
	next, err := s.issuer.ca.Next(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.issuer.mu.Lock()
	s.issuer.ca = next
	s.issuer.mu.Unlock()
	if err := s.source.SetRoots(next.Roots()); err != nil {
		t.Fatal(err)
	}
	if n := roots(); n != 2 {
		t.Errorf("%d roots after the rotation", n)
	}
	for {
		resp := mustRecv(t, svids)
		chain, err := x509.ParseCertificates(resp.Svids[0].X509Svid)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(chain[0].AuthorityKeyId, next.Certificate().SubjectKeyId) {
			break
		}
		if !slices.Equal(resp.Svids[0].X509SvidKey, first.Svids[0].X509SvidKey) {
			t.Fatal("another key with the certificate of the previous CA")
		}
	}
}

func TestOthersAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.put("other-user", &resource.WorkloadIdentity{
		SPIFFE: "/a", Selectors: resource.WorkloadSelectors{Unix: resource.UnixSelector{UID: []int{os.Getuid() + 1}}},
	})
	s.put("other-group", &resource.WorkloadIdentity{
		SPIFFE: "/b", Selectors: resource.WorkloadSelectors{Unix: resource.UnixSelector{UID: []int{os.Getuid()}, GID: []int{os.Getgid() + 1}}},
	})
	s.put("nobody", &resource.WorkloadIdentity{SPIFFE: "/c"})
	client, ctx := s.dial(t)
	receive := func(ctx context.Context) error {
		stream, err := client.FetchX509SVID(ctx, &spiffe.X509SVIDRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	if err := receive(ctx); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "uid") {
		t.Errorf("no identity: %v", err)
	}
	bundles, err := client.FetchX509Bundles(ctx, &spiffe.X509BundlesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bundles.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("bundles without an identity: %v", err)
	}
	if n := s.Stats().Denied; n != 2 {
		t.Errorf("%d denials", n)
	}
	s.putOwn("web", "/web", "")
	if err := receive(ctx); err != nil {
		t.Fatal(err)
	}
	for _, values := range [][]string{nil, {"false"}, {"TRUE"}, {"true", "true"}} {
		without, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		for _, v := range values {
			without = metadata.AppendToOutgoingContext(without, securityHeader, v)
		}
		if err := receive(without); status.Code(err) != codes.InvalidArgument {
			t.Errorf("the header %q: %v", values, err)
		}
		if _, err := client.FetchJWTSVID(without, &spiffe.JWTSVIDRequest{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("JWT, the header %q: %v", values, err)
		}
		cancel()
	}
	if _, err := client.FetchJWTSVID(ctx, &spiffe.JWTSVIDRequest{Audience: []string{"a"}}); status.Code(err) != codes.Unimplemented {
		t.Errorf("JWT: %v", err)
	}
}

// Without a leader a caller is told so; one whose certificate was revoked has none.
func TestCallersLearnWhyThereIsNone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.putOwn("web", "/web", "")
	s.issuer.fail(errors.New("no leader"))
	if _, err := mustFetch(t, s).Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("without a leader: %v", err)
	}
	s.issuer.fail(nil)
	var stream grpc.ServerStreamingClient[spiffe.X509SVIDResponse]
	var resp *spiffe.X509SVIDResponse
	testkit.WaitFor(t, "the next request to the leader", func() bool { // which may come after the patience with one caller
		stream = mustFetch(t, s)
		var err error
		resp, err = stream.Recv()
		return err == nil
	})
	chain, err := x509.ParseCertificates(resp.Svids[0].X509Svid)
	if err != nil {
		t.Fatal(err)
	}
	s.issuer.mu.Lock()
	s.issuer.revoked[chain[0].SerialNumber.Text(16)] = true
	s.issuer.mu.Unlock()
	s.source.Recheck()
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("after the revocation: %v", err)
	}
}

func TestConnectionsAreBoundedPerUser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for range MaxPerUser {
		conn, err := net.Dial("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	testkit.WaitFor(t, "the connections", func() bool { return s.Stats().Connections == MaxPerUser })
	conn, err := net.Dial("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testkit.WaitFor(t, "the refusal", func() bool { return s.Stats().Refused == 1 })
}

func TestListenReplacesOnlyAnAbandonedSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	first, err := Listen(path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	if l, err := Listen(path, 0o660); err == nil {
		l.Close()
		t.Error("it replaces a socket in use")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	second, err := Listen(path, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, 0o660); !errors.Is(err, errNoSocket) {
		t.Errorf("over a file: %v", err)
	}
}
