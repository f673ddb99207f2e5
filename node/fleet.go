package node

import (
	"context"

	"penstock/node/admin"
)

// alone says why this node cannot decide anything now; "": it can.
func (n *Node) alone() string { return "" }

// notReady says why the node should get no traffic; "": it should.
func (n *Node) notReady() string { return n.state.notReady() }

// authenticate finds out whose token that is.
func (n *Node) authenticate(context.Context, string) (admin.Principal, error) {
	return admin.Principal{}, admin.Errorf(admin.Unauthenticated, "a node with --dev knows no tokens")
}
