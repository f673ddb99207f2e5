package providers

import (
	"io"
	"log/slog"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// The clients of gRPC and Kubernetes write to the standard error by themselves.
// What concerns a provider is in its status and in the node's log anyway.
func init() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
}
