package workload

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	spiffe "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/node/api"
	"penstock/node/trust"
	"penstock/routing/resource"
)

// Bounds of the Workload API.
const (
	// MaxConnections bounds the connections.
	MaxConnections = 1024
	// MaxPerUser bounds the connections of one user ID.
	MaxPerUser = 64
	// maxStreams bounds the streams of one connection.
	maxStreams = 8
	// maxRequest bounds a request, which is empty, and maxHeaders its headers, in bytes.
	maxRequest, maxHeaders = 4 << 10, 8 << 10
	// maxSVIDs bounds the identities of one caller; the first by name count.
	maxSVIDs = 32
	// patience is how long a caller waits for a certificate before it is told that
	// there is none.
	patience = 5 * time.Second
)

// securityHeader must be "true" in the metadata of each call (SPIFFE Workload
// Endpoint, section 6.1): a caller that can be made to send requests to any URL
// cannot be made to send it.
const securityHeader = "workload.spiffe.io"

// API serves the SPIFFE Workload API to the processes beside a node. A caller is
// known by the user and group that the kernel says it has (SO_PEERCRED), or by a token
// that it shows, and gets the identities whose WorkloadIdentity selects it.
type API struct {
	spiffe.UnimplementedSpiffeWorkloadAPIServer

	// Self is a process that is refused, 0: none. A node that serves connections to
	// endpoints sets its own: an endpoint may be the socket by any path, and clients of
	// it would have the identities of the node's user.
	Self int
	// Tokens verify what callers show as a token; nil: none is accepted.
	Tokens Tokens

	source      *Source
	trustDomain string
	bundles     *trust.Bundles // of other trust domains, by TrustBundle
	log         *slog.Logger
	grpc        *grpc.Server
	stopping    chan struct{}
	stopOnce    sync.Once

	mu         sync.Mutex
	identities map[string]*resource.WorkloadIdentity // by name, with defaults
	changed    chan struct{}                         // closed when identities change
	conns      map[uint32]int                        // open connections by user ID
	stats      APIStats
}

// APIStats are the counts of an API.
type APIStats struct {
	Connections, Streams int
	Sent                 uint64 // messages with SVIDs or bundles
	Denied               uint64 // calls of those that no identity selects, or with a wrong token
	Refused              uint64 // connections beyond a bound
}

// NewAPI returns an API that serves nobody before Apply and Serve. bundles are those of
// other trust domains.
func NewAPI(source *Source, trustDomain string, bundles *trust.Bundles, log *slog.Logger) *API {
	a := &API{
		source: source, trustDomain: trustDomain, bundles: bundles, log: log, stopping: make(chan struct{}),
		identities: map[string]*resource.WorkloadIdentity{}, changed: make(chan struct{}), conns: map[uint32]int{},
	}
	a.grpc = grpc.NewServer(
		grpc.Creds(peerCredentials{a}), grpc.MaxRecvMsgSize(maxRequest), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ReadBufferSize(1<<10), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 5 * time.Minute}),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := checkHeader(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := checkHeader(ss.Context()); err != nil {
				return err
			}
			return next(srv, ss)
		}),
	)
	spiffe.RegisterSpiffeWorkloadAPIServer(a.grpc, a)
	return a
}

// checkHeader refuses a call without the security header.
func checkHeader(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get(securityHeader); len(got) != 1 || got[0] != "true" {
		return status.Errorf(codes.InvalidArgument, "the metadata must have %s: true", securityHeader)
	}
	return nil
}

// Apply applies changes of resources, those of other kinds have no effect.
func (a *API) Apply(changes []resource.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	relevant := false
	for i := range changes {
		ch := &changes[i]
		if ch.Kind != resource.KindWorkload {
			continue
		}
		relevant = true
		if w, ok := ch.Spec.(*resource.WorkloadIdentity); ok && !ch.Delete {
			a.identities[ch.Name] = w.WithDefaults()
		} else {
			delete(a.identities, ch.Name)
		}
	}
	if relevant {
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// Serve serves the connections of a listener of unix sockets until Stop.
func (a *API) Serve(l net.Listener) error {
	if err := a.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Stop ends all streams and connections.
func (a *API) Stop() {
	a.stopOnce.Do(func() { close(a.stopping) })
	a.grpc.Stop()
}

// Stats returns the counts.
func (a *API) Stats() APIStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	for _, n := range a.conns {
		s.Connections += n
	}
	return s
}

// count changes the counts.
func (a *API) count(change func(*APIStats)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.stats)
}

// entitled is an identity that a caller may have.
type entitled struct {
	identity  Identity
	hint      string
	federates []string // TrustBundles
}

// entitlements returns the identities of a caller in the order of their names, at
// most maxSVIDs, and a channel that is closed when they may have changed.
func (a *API) entitlements(c *caller) ([]entitled, <-chan struct{}) {
	selected := a.selector(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []entitled
	for _, name := range slices.Sorted(maps.Keys(a.identities)) {
		w := a.identities[name]
		if !selected(w) || len(list) == maxSVIDs {
			continue
		}
		list = append(list, entitled{
			Identity{ID: w.SPIFFE, DNS: w.DNS, TTL: time.Duration(w.TTL), Reissue: w.OnRevoke == "reissue"}, w.Hint, w.FederatesWith,
		})
	}
	return list, a.changed
}

// federated returns the trust bundles of the identities of a caller, by the SPIFFE ID
// of their trust domain, as DER; and a channel that is closed when they may have
// changed. Those that are not there yet are left out.
func (a *API) federated(list []entitled) (bundles map[string][]byte, changed <-chan struct{}) {
	set, changed := a.bundles.Current()
	bundles = map[string][]byte{}
	for i := range list {
		for _, name := range list[i].federates {
			if b := set.Get(name); b != nil && name != resource.OwnTrustDomain {
				bundles["spiffe://"+b.TrustDomain] = b.DER()
			}
		}
	}
	return bundles, changed
}

// sameBundles reports whether two results of federated are equal.
func sameBundles(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// selects reports whether a selector matches a process. An empty one matches none.
func selects(u *resource.UnixSelector, c credentials) bool {
	has := func(ids []int, id uint32) bool { return len(ids) == 0 || slices.Contains(ids, int(id)) }
	return len(u.UID)+len(u.GID) > 0 && has(u.UID, c.uid) && has(u.GID, c.gid)
}

// FetchX509SVID sends the caller's SVIDs, and again after each change.
func (a *API) FetchX509SVID(_ *spiffe.X509SVIDRequest, ss grpc.ServerStreamingServer[spiffe.X509SVIDResponse]) error {
	c, ctx, end, err := a.begin(ss.Context())
	if err != nil {
		return err
	}
	defer end()
	w := svidWatch{api: a, holds: map[string]*Hold{}}
	defer w.close()
	var lacking <-chan time.Time // nil: there is an SVID
	for {
		list, changed := a.entitlements(&c)
		if len(list) == 0 {
			return a.denied(&c)
		}
		next, err := w.look(list)
		if err != nil {
			return err
		}
		switch {
		case len(next.svids) > 0:
			lacking = nil
		case lacking == nil:
			lacking = time.After(patience)
		}
		federated, replaced := a.federated(list)
		if next.settled && len(next.svids) > 0 && (!slices.Equal(next.svids, w.sent) || !sameBundles(federated, w.federated)) {
			resp, err := response(next.svids, federated)
			if err != nil {
				return status.Error(codes.Internal, err.Error())
			}
			if err := ss.Send(resp); err != nil {
				return err
			}
			w.sent, w.federated = next.svids, federated
			a.count(func(s *APIStats) { s.Sent++ })
		}
		if expired := wait(lacking, append(next.changed, changed, replaced, ctx.Done(), a.stopping)); expired {
			return next.missing()
		}
		select {
		case <-ctx.Done():
			return ended(ctx)
		case <-a.stopping:
			return status.Error(codes.Unavailable, "the node stops")
		default:
		}
	}
}

// wait waits until a channel is closed or the timer fires, and reports the latter.
func wait(timer <-chan time.Time, channels []<-chan struct{}) (expired bool) {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(timer)}}
	for _, ch := range channels {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)})
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen == 0
}

// svidWatch is what one stream holds.
type svidWatch struct {
	api   *API
	holds map[string]*Hold // by Identity.key
	sent  []labeled

	federated map[string][]byte // sent with it
}

func (w *svidWatch) close() {
	for _, h := range w.holds {
		h.Release()
	}
}

// labeled is an SVID with the hint of its WorkloadIdentity.
type labeled struct {
	*SVID

	hint string
}

// svidView is what the Source has for a caller now.
type svidView struct {
	svids   []labeled
	settled bool              // none is still on its way
	changed []<-chan struct{} // closed when the view is outdated
	errs    []error           // of those without an SVID
}

// look holds the identities of a list, releases others, and returns what there is.
func (w *svidWatch) look(list []entitled) (*svidView, error) {
	wanted, v := map[string]bool{}, &svidView{settled: true}
	for i := range list {
		key := list[i].identity.key()
		wanted[key] = true
		if w.holds[key] == nil {
			h, err := w.api.source.Hold(list[i].identity)
			if err != nil {
				return nil, status.Errorf(codes.ResourceExhausted, "%v", err)
			}
			w.holds[key] = h
		}
		svid, changed, err := w.holds[key].Get()
		switch {
		case changed == nil:
			return nil, status.Error(codes.Unavailable, "the node stops")
		case err != nil:
			v.errs = append(v.errs, err)
			v.settled = v.settled && !errors.Is(err, ErrPending)
		default:
			v.svids = append(v.svids, labeled{svid, list[i].hint})
		}
		v.changed = append(v.changed, changed)
	}
	for key, h := range w.holds {
		if !wanted[key] {
			h.Release()
			delete(w.holds, key)
		}
	}
	return v, nil
}

// missing returns the refusal of a caller none of whose identities has an SVID.
func (v *svidView) missing() error {
	code, reasons := codes.PermissionDenied, []string{}
	for _, err := range v.errs {
		var refused *api.Error
		if !errors.Is(err, errRevoked) && (!errors.As(err, &refused) || refused.Code != api.Forbidden) {
			code = codes.Unavailable // it may succeed later
		}
		reasons = append(reasons, err.Error())
	}
	return status.Error(code, strings.Join(reasons, "; "))
}

// response makes the message with SVIDs and the bundles of other trust domains.
func response(svids []labeled, federated map[string][]byte) (*spiffe.X509SVIDResponse, error) {
	resp := &spiffe.X509SVIDResponse{FederatedBundles: federated}
	for _, svid := range svids {
		key, err := x509.MarshalPKCS8PrivateKey(svid.Cert.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("the key of %s: %w", svid.ID, err)
		}
		resp.Svids = append(resp.Svids, &spiffe.X509SVID{
			SpiffeId: svid.ID, X509Svid: slices.Concat(svid.Cert.Certificate...), X509SvidKey: key,
			Bundle: slices.Concat(svid.Bundle...), Hint: svid.hint,
		})
	}
	return resp, nil
}

// FetchX509Bundles sends the trust bundle and those of other trust domains, and again
// after each change. It is for those who have an identity.
func (a *API) FetchX509Bundles(_ *spiffe.X509BundlesRequest, ss grpc.ServerStreamingServer[spiffe.X509BundlesResponse]) error {
	c, ctx, end, err := a.begin(ss.Context())
	if err != nil {
		return err
	}
	defer end()
	var sent map[string][]byte
	for {
		list, changed := a.entitlements(&c)
		if len(list) == 0 {
			return a.denied(&c)
		}
		roots, replaced := a.source.Roots()
		bundles, others := a.federated(list)
		bundles["spiffe://"+a.trustDomain] = slices.Concat(roots...)
		if len(roots) > 0 && !sameBundles(bundles, sent) {
			if err := ss.Send(&spiffe.X509BundlesResponse{Bundles: bundles}); err != nil {
				return err
			}
			sent = bundles
			a.count(func(s *APIStats) { s.Sent++ })
		}
		select {
		case <-changed:
		case <-replaced:
		case <-others:
		case <-ctx.Done():
			return ended(ctx)
		case <-a.stopping:
			return status.Error(codes.Unavailable, "the node stops")
		}
	}
}
