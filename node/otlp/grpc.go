package otlp

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"penstock/routing/resource"
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 64 << 10

// newGRPC connects to a collector by gRPC: one connection carries all signals. It does not
// wait for the collector.
func newGRPC(o *resource.OTLP, target resource.Target, config *tls.Config, headers map[string]string) (*client, error) {
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	calls := []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxAnswer)}
	if o.Compression == "gzip" {
		calls = append(calls, grpc.UseCompressor(gzip.Name))
	}
	conn, err := grpc.NewClient(
		"dns:///"+target.Address,
		grpc.WithTransportCredentials(creds),
		grpc.WithUnaryInterceptor(intercept(headers)),
		grpc.WithDefaultCallOptions(calls...),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithUserAgent(userAgent),
		grpc.WithMaxHeaderListSize(maxAnswer),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxWait},
			MinConnectTimeout: o.Timeout.D(),
		}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, "tcp", address)
		}),
	)
	if err != nil {
		return nil, err
	}
	none := map[string]string{} // the environment's would be sent otherwise
	c := &client{closeConn: func() { _ = conn.Close() }}
	c.traces = otlptracegrpc.NewClient(
		otlptracegrpc.WithGRPCConn(conn), otlptracegrpc.WithTimeout(o.Timeout.D()), otlptracegrpc.WithHeaders(none),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	if err = c.traces.Start(context.Background()); err != nil {
		return nil, err
	}
	c.logs, err = otlploggrpc.New(context.Background(),
		otlploggrpc.WithGRPCConn(conn), otlploggrpc.WithTimeout(o.Timeout.D()), otlploggrpc.WithHeaders(none),
		otlploggrpc.WithRetry(otlploggrpc.RetryConfig{}))
	if err != nil {
		return nil, err
	}
	c.metrics, err = otlpmetricgrpc.New(context.Background(),
		otlpmetricgrpc.WithGRPCConn(conn), otlpmetricgrpc.WithTimeout(o.Timeout.D()), otlpmetricgrpc.WithHeaders(none),
		otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))
	return c, err
}

// intercept adds the headers to each call, and reads what the collector answers.
func intercept(headers map[string]string) grpc.UnaryClientInterceptor {
	pairs := metadata.New(headers)
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx = metadata.NewOutgoingContext(ctx, pairs)
		if err := invoke(ctx, method, req, reply, conn, opts...); err != nil {
			return grpcError(ctx, err)
		}
		if m, ok := reply.(proto.Message); ok {
			take(ctx, m)
		}
		return nil
	}
}

// grpcError tells by the OTLP specification whether a call may succeed later.
func grpcError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s := status.Convert(err)
	after := time.Duration(0)
	throttled := false
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			after, throttled = info.GetRetryDelay().AsDuration(), true
		}
	}
	failed := &sendError{text: "answered " + s.Code().String(), said: s.Message(), after: after}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		failed.retry = true
	case codes.ResourceExhausted:
		failed.retry = throttled
	}
	return failed
}
