package ops

import (
	"context"
	"runtime"

	"penstock/node/admin"
)

// version returns the build that this node runs.
func (m *Methods) version(context.Context, *admin.Empty) (*admin.Version, error) {
	return Version(m.Peers.self.Version), nil
}

// Version describes a build: its version and the Go version.
func Version(version string) *admin.Version {
	return &admin.Version{Version: version, Go: runtime.Version()}
}
