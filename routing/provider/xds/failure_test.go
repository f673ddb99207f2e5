package xds

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

// A control plane that never answers fails each query when the answer is due. A
// late answer counts.
func TestSilence(t *testing.T) {
	variants(t, func(t *testing.T, variant func(*Config)) {
		for _, clusters := range []bool{false, true} {
			n := newNetwork(t)
			answer := make(chan bool)
			n.play(func(p *peer) error {
				if clusters || strings.Contains(p.method, "Delta") {
					return p.waits()
				}
				p.hears("names=web")
				<-answer
				p.says(world("1", "n1", simple("web", "10.0.0.1:80")))
				p.hears("names=web version=1 nonce=n1")
				return p.waits()
			})
			source := n.source(func(c *Config) { variant(c); c.Clusters = clusters })
			sink := providertest.NewSink(web)
			began := time.Now()
			sink.Start(t, source)
			if sink.AwaitFailure(t, web, "within 15s"); time.Since(began) != DefaultTimeout {
				t.Errorf("it failed after %v", time.Since(began))
			}
			if !clusters && !source.cfg.Delta {
				answer <- true
				sink.Await(t, web, "10.0.0.1:80")
				synctest.Wait()
			}
		}
	})
}

// A control plane that reads nothing is given up once requests do not fit into
// gRPC's window.
func TestRequestsThatAreNotRead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		n.play(func(p *peer) error { return p.waits() })
		var queries []provider.Query
		for i := range 1000 {
			queries = append(queries, provider.Query{Service: fmt.Sprintf("%0500d", i)})
		}
		sink := providertest.NewSink(queries...)
		source := n.source(nil)
		done := make(chan error)
		go func() { done <- source.Run(t.Context(), sink) }()
		elapse(time.Second)
		sink.Want(queries[1:]...)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "it does not read requests for 15s") {
			t.Error(err)
		}
	})
}

// Why a stream ends, and what to do about it.
func TestStreamErrors(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, "the control plane at 192.0.2.1:18000 ended the stream"},
		{status.Error(codes.Unavailable, "moving\n"), `is not available: "moving\n": check the address, and whether it has TLS`},
		{status.Error(codes.Unauthenticated, "who?"), `does not know who this is: "who?": give it the client certificate`},
		{status.Error(codes.PermissionDenied, "no"), `does not serve node "edge-1": "no": grant it access there`},
		{status.Error(codes.Unimplemented, "no"), `does not have this variant of xDS (state of the world, aggregated): "no": change delta or separate`},
		{status.Error(codes.ResourceExhausted, "busy"), `is overloaded, or limits its clients: "busy"`},
		{status.Error(codes.Internal, "oops"), `breaks the protocol: "oops"`},
		{status.Error(codes.Canceled, "bye"), `ended the stream with Canceled: "bye"`},
		{status.Error(codes.Unknown, strings.Repeat("x", 1000)), `ended the stream with Unknown: "` + strings.Repeat("x", 300) + `"`},
	} {
		for _, answered := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T) {
				n := newNetwork(t)
				n.play(func(p *peer) error {
					if answered {
						p.hears("names=web")
						p.says(world("1", "n1", simple("web", "10.0.0.1:80")))
						p.hears("names=web version=1 nonce=n1")
					}
					return test.err
				})
				sink := providertest.NewSink(web)
				if err := n.source(nil).Run(t.Context(), sink); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %s", err, test.want)
				}
				if answered != (sink.Text(web) != "") {
					t.Errorf("answer %q", sink.Text(web))
				}
			})
		}
	}
}

// cutConn is a connection that breaks after some bytes.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// A connection that is cut in the middle of a response gives no part of it.
func TestCutResponses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var many []string
		for i := range 10_000 {
			many = append(many, fmt.Sprintf("10.%d.%d.1:80", i/250, i%250))
		}
		response := world("1", "n1", simple("web", many...))
		for _, whole := range []bool{false, true} {
			n := newNetwork(t)
			n.play(func(p *peer) error {
				p.hears("names=web")
				_ = p.stream.SendMsg(response)
				return p.waits()
			})
			source := n.source(nil)
			left := proto.Size(response) - 1
			if whole {
				left *= 2
			}
			source.dialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := n.dial(ctx, address)
				return &cutConn{conn, left}, err
			})}
			sink := providertest.NewSink(web)
			sink.Start(t, source)
			if whole {
				sink.AwaitCount(t, web, len(many))
			} else if sink.AwaitFailure(t, web, "is not available"); sink.Reports() != 0 {
				t.Errorf("%d reports", sink.Reports())
			}
		}
	})
}

func TestLargeResponses(t *testing.T) {
	for want, response := range map[string]*discoveryv3.DiscoveryResponse{
		"sent a response of more than 16777216 bytes: raise maxBytes":         world("1", "n1", &corev3.Node{Id: strings.Repeat("x", DefaultMaxBytes)}),
		"DiscoveryResponse has more than 20 messages in it":                   {Resources: slices.Repeat([]*anypb.Any{{}}, messagesPerEndpoint+1)},
		"it sent a name, version or nonce of 1025 bytes; the maximum is 1024": world("1", strings.Repeat("x", maxName+1)),
	} {
		inVirtualTime(t, func(t *testing.T) {
			n := newNetwork(t)
			n.play(func(p *peer) error {
				p.hears("names=web")
				_ = p.stream.SendMsg(response)
				return p.waits()
			})
			source := n.source(func(c *Config) { c.MaxEndpoints = 1 })
			if err := source.Run(t.Context(), providertest.NewSink(web)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// The source ends with its context whatever it does: connecting, waiting for a
// response, or for a refusal's turn.
func TestEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		n.play(func(p *peer) error {
			for i := 0; p.stream.SendMsg(world("1", fmt.Sprint(i), assign(""))) == nil; i++ {
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.source(nil).Run(ctx, providertest.NewSink(web)) }()
		elapse(time.Minute)
		cancel()
		began := time.Now()
		if err := <-done; err != context.Canceled || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
