package svid

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"penstock/node/files"
	"penstock/routing/resource"
)

const (
	// maxMessage bounds a message of an agent, in bytes.
	maxMessage = 4 << 20
	// longestConnect is the longest pause before another attempt to connect to an
	// agent, which may be restarted at any time.
	longestConnect = 5 * time.Second
	// messagePause is the least time between two messages that are looked at.
	messagePause = 100 * time.Millisecond
	// maxFault bounds the text of an agent's fault, in bytes.
	maxFault = 400
)

// followAgent keeps the SVID and bundle that an agent gives through the SPIFFE Workload
// API, until the entry ends. The client of go-spiffe reconnects; it gives up when the
// answer says that the call itself is invalid, as an agent may while it is replaced.
func (e *entry) followAgent() {
	if path, ok := strings.CutPrefix(e.spec.WorkloadAPI.Socket, "unix:"); ok {
		// Whoever connects to the node's own socket may give any command.
		if _, err := files.Resolve(strings.TrimPrefix(path, "//"), e.m.cfg.DataDir); errors.Is(err, files.ErrPrivate) {
			e.learn(nil, e.agentFault(err))
			return
		}
	}
	connect := grpc.ConnectParams{Backoff: backoff.DefaultConfig}
	connect.Backoff.MaxDelay = longestConnect
	opts := []workloadapi.ClientOption{
		workloadapi.WithAddr(e.spec.WorkloadAPI.Socket),
		workloadapi.WithDialOptions(
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)), grpc.WithConnectParams(connect)),
	}
	if e.m.cfg.Backoff != nil {
		opts = append(opts, workloadapi.WithBackoffStrategy(e.m.cfg.Backoff))
	}
	client, err := workloadapi.New(e.ctx, opts...)
	if err != nil {
		e.learn(nil, e.agentFault(err)) // not seen: validation has checked the address
		return
	}
	defer client.Close()
	for e.ctx.Err() == nil {
		_ = client.WatchX509Context(e.ctx, agentWatcher{e}) // the watcher has the error
		select {
		case <-time.After(longestConnect):
		case <-e.ctx.Done():
		}
	}
}

// agentWatcher is what the client calls, one call at a time.
type agentWatcher struct{ e *entry }

// OnX509ContextUpdate takes a message.
func (w agentWatcher) OnX509ContextUpdate(x *workloadapi.X509Context) {
	c, err := take(w.e.spec.WorkloadAPI, x, time.Now())
	if err != nil {
		err = w.e.agentFault(fmt.Errorf("its answer cannot be used: %w", err))
	}
	w.e.learn(c, err)
	w.pause()
}

// OnX509ContextWatchError takes the end of a stream, or an invalid message.
func (w agentWatcher) OnX509ContextWatchError(err error) {
	if w.e.ctx.Err() == nil {
		w.e.learn(nil, w.e.agentFault(err))
		w.pause()
	}
}

// pause slows an agent that sends without end, by the flow control of its stream.
func (w agentWatcher) pause() {
	select {
	case <-time.After(messagePause):
	case <-w.e.ctx.Done():
	}
}

// agentFault says what an agent did. Its own words are quoted and cut.
func (e *entry) agentFault(err error) error {
	text := err.Error()
	return fmt.Errorf("the agent at %s: %q", e.spec.WorkloadAPI.Socket, text[:min(len(text), maxFault)])
}

// take returns the SVID of a message that is wanted, with the bundle of its trust
// domain, which has to verify it.
func take(want *resource.WorkloadAPI, x *workloadapi.X509Context, now time.Time) (*content, error) {
	svid, err := pick(want, x.SVIDs)
	if err != nil {
		return nil, err
	}
	bundle, err := x.Bundles.GetX509BundleForTrustDomain(svid.ID.TrustDomain())
	if err != nil {
		return nil, err
	}
	leaf := svid.Certificates[0]
	if at := leaf.NotBefore; now.Before(at) {
		now = at // the agent's clock may be ahead
	}
	if _, _, err := x509svid.Verify(svid.Certificates, bundle, x509svid.WithTime(now)); err != nil {
		return nil, err
	}
	c := &content{until: leaf.NotAfter, bundle: &resource.CertificateBundle{TrustDomain: svid.ID.TrustDomain().Name(), PEM: bundlePEM(bundle)}}
	chain, key, err := svid.Marshal()
	if err != nil {
		return nil, errors.New("its key cannot be used")
	}
	c.chain, c.key = string(chain), string(key)
	return c, nil
}

// pick returns the SVID that is wanted, or the agent's default one.
func pick(want *resource.WorkloadAPI, svids []*x509svid.SVID) (*x509svid.SVID, error) {
	var given []string
	for _, s := range svids {
		switch {
		case want.SPIFFEID != "" && s.ID.String() != want.SPIFFEID:
		case want.Hint != "" && s.Hint != want.Hint:
		default:
			return s, nil
		}
		given = append(given, s.ID.String())
	}
	return nil, fmt.Errorf("no SVID is %s; there are %s", cmp.Or(want.SPIFFEID, "for the hint "+want.Hint), strings.Join(given, ", "))
}

// bundlePEM returns a bundle as PEM, sorted, so that the same bundle gives the same text.
func bundlePEM(b *x509bundle.Bundle) string {
	var ders [][]byte
	for _, c := range b.X509Authorities() {
		ders = append(ders, c.Raw)
	}
	slices.SortFunc(ders, slices.Compare)
	return certificates(ders)
}
