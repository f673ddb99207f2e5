package ops

import (
	"context"
	"runtime"

	"penstock/node/api"
)

// version returns the build that this node runs.
func (m *Methods) version(context.Context, *api.Empty) (*api.Version, error) {
	return Version(m.Peers.self.Version), nil
}

// Version describes a build: its version and the Go version.
func Version(version string) *api.Version {
	return &api.Version{Version: version, Go: runtime.Version()}
}
