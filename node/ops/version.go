package ops

import (
	"context"
	"runtime"

	"penstock/node/admin"
)

// version answers with the build that this node runs.
func (m *Methods) version(context.Context, *admin.Empty) (*admin.Version, error) {
	return Version(m.Peers.self.Version), nil
}

// Version describes a build: its version and that of Go.
func Version(version string) *admin.Version {
	return &admin.Version{Version: version, Go: runtime.Version()}
}
