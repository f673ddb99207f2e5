package ops

import (
	"penstock/netio"
	"penstock/node/lifecycle"
)

// Readiness determines whether a node should get traffic.
type Readiness struct {
	State  *lifecycle.State
	Engine *netio.Engine
}

// NotReady returns why the node should get no traffic; "": it should.
func (r Readiness) NotReady() string {
	if why := r.State.NotReady(); why != "" {
		return why
	}
	if r.Engine.Exhausted() {
		return outOfFiles
	}
	return ""
}

// outOfFiles is the reason of NotReady when no descriptor is left for new
// connections.
const outOfFiles = "out of file descriptors: new connections wait to be accepted (raise the limit or close connections)"
