package ops

import (
	"penstock/netio"
	"penstock/node/lifecycle"
)

import ()

// Readiness says whether a node should get traffic.
type Readiness struct {
	State  *lifecycle.State
	Engine *netio.Engine
}

// NotReady says why the node should get no traffic; "": it should.
func (r Readiness) NotReady() string {
	if why := r.State.NotReady(); why != "" {
		return why
	}
	if r.Engine.Exhausted() {
		return outOfFiles
	}
	return ""
}

// outOfFiles is why a node is not ready on which new connections have to wait.
const outOfFiles = "out of file descriptors: new connections wait to be accepted (raise the limit, or close some)"
