package dataplane

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

// text is the message of the test's service, in both directions.
type text = wrapperspb.StringValue

// talker is a gRPC service with a unary, a server-streaming and a bidirectional
// method.
var talker = grpc.ServiceDesc{
	ServiceName: "test.Talker", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Say",
		Handler: func(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(text)
			if err := dec(in); err != nil {
				return nil, err
			}
			_ = grpc.SetTrailer(ctx, metadata.Pairs("by", srv.(string)))
			if in.Value == "fail" {
				return nil, status.Error(codes.ResourceExhausted, "no more of it: é")
			}
			return wrapperspb.String(srv.(string) + " " + in.Value), nil
		},
	}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Count", ServerStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
			in := new(text)
			if err := s.RecvMsg(in); err != nil {
				return err
			}
			for i := range len(in.Value) {
				if err := s.SendMsg(wrapperspb.String(fmt.Sprint(srv, " ", i))); err != nil {
					return err
				}
			}
			return nil
		}},
		{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
			for in := new(text); ; {
				if err := s.RecvMsg(in); err == io.EOF {
					s.SetTrailer(metadata.Pairs("by", srv.(string)))
					return status.Error(codes.Aborted, "that was all")
				} else if err != nil {
					return err
				}
				if err := s.SendMsg(wrapperspb.String(srv.(string) + " " + in.Value)); err != nil {
					return err
				}
			}
		}},
	},
}

// grpcServer starts a server of that service and returns its address.
func grpcServer(t *testing.T, name string) string {
	t.Helper()
	l := testkit.Listen(t)
	s := grpc.NewServer()
	s.RegisterService(&talker, name)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-ended })
	return l.Addr().String()
}

// gRPC works through the node: calls, streams in both directions while routes
// change, trailers, and statuses including the node's own.
func TestGRPC(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", ", protocol: http2", grpcServer(t, "v1"))+
		nodetest.WebService("next", ", protocol: http2", grpcServer(t, "v2"))+
		nodetest.WebService("empty", ", protocol: http2")+nodetest.WebRoute(nodetest.Rule("/", "")))
	conn, err := grpc.NewClient("passthrough:///"+n.at(t, "web"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	say := func(what string) (string, string, error) {
		out, trailer := new(text), metadata.MD{}
		err := conn.Invoke(ctx, "/test.Talker/Say", wrapperspb.String(what), out, grpc.Trailer(&trailer))
		return out.Value, fmt.Sprint(trailer["by"]), err
	}
	if got, by, err := say("hello"); got != "v1 hello" || by != "[v1]" || err != nil {
		t.Errorf("%q by %s, %v", got, by, err)
	}
	for range 300 { // a trailers-only answer must stay one
		if _, _, err := say("fail"); status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
	if _, by, err := say("fail"); status.Code(err) != codes.ResourceExhausted ||
		status.Convert(err).Message() != "no more of it: é" || by != "[v1]" {
		t.Errorf("by %s: %v", by, err)
	}
	talk, err := conn.NewStream(ctx, &talker.Streams[1], "/test.Talker/Talk")
	if err != nil {
		t.Fatal(err)
	}
	said := func(what string) {
		t.Helper()
		in := new(text)
		if err := talk.SendMsg(wrapperspb.String(what)); err != nil {
			t.Fatal(err)
		}
		if err := talk.RecvMsg(in); err != nil || in.Value != "v1 "+what {
			t.Fatalf("%q, %v", in.Value, err)
		}
	}
	said("one")
	n.mustApply(t, nodetest.WebRoute(nodetest.Rule("/", nodetest.To("next")))[5:])
	said("two")
	if got, _, err := say("hello"); got != "v2 hello" || err != nil {
		t.Errorf("after the change: %q, %v", got, err)
	}
	count, err := conn.NewStream(ctx, &talker.Streams[0], "/test.Talker/Count")
	if err != nil {
		t.Fatal(err)
	}
	if err := count.SendMsg(wrapperspb.String("1234567")); err != nil {
		t.Fatal(err)
	}
	_ = count.CloseSend()
	for i := 0; ; i++ {
		in := new(text)
		if err := count.RecvMsg(in); err == io.EOF && i == 7 {
			break
		} else if err != nil || in.Value != fmt.Sprint("v2 ", i) {
			t.Fatalf("message %d: %q, %v", i, in.Value, err)
		}
	}
	n.mustApply(t, nodetest.WebRoute(nodetest.Rule("/", nodetest.To("empty")))[5:])
	if _, _, err := say("hello"); status.Code(err) != codes.Unavailable {
		t.Errorf("without a backend: %v", err)
	}
	said("three")
	_ = talk.CloseSend()
	if err := talk.RecvMsg(new(text)); status.Code(err) != codes.Aborted || fmt.Sprint(talk.Trailer()["by"]) != "[v1]" {
		t.Errorf("at the end: %v, trailer %v", err, talk.Trailer())
	}
	if total := n.metric(t, `penstock_routed_connections_total{listener="web",service="shop"}`); total != "1" {
		t.Errorf("%s connections, want 1", total)
	}
}
