package gossip

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"
)

var (
	_ memberlist.AliveDelegate = (*aliveDelegate)(nil)
	_ memberlist.MergeDelegate = (*aliveDelegate)(nil)
)

var errFull = errors.New("too many members")

// aliveDelegate rejects malformed members, and new ones when the table is full.
// Members of other clusters do not get this far: their packets have another
// label.
type aliveDelegate struct{ members *memberTable }

// NotifyAlive is called before a node is considered alive, under memberlist's
// lock.
func (g *aliveDelegate) NotifyAlive(n *memberlist.Node) error {
	if err := check(n); err != nil {
		return err
	}
	if !g.members.hasRoom(n.Name) {
		return fmt.Errorf("%w: the limit is %d", errFull, maxMembers)
	}
	return nil
}

// NotifyMerge is called before another node's state is merged, when one of the
// two joins the other.
func (g *aliveDelegate) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if err := check(n); err != nil {
			return err
		}
	}
	return nil
}

func check(n *memberlist.Node) error {
	if n.Name == "" || len(n.Name) > maxID || !utf8.ValidString(n.Name) {
		return fmt.Errorf("%w: node ID %.40q", errMalformed, n.Name)
	}
	if (len(n.Addr) != 4 && len(n.Addr) != 16) || n.Port == 0 {
		return fmt.Errorf("%w: address of node %s", errMalformed, n.Name)
	}
	if _, err := decodeMeta(n.Meta); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}
