package kafka

import (
	"time"

	"penstock/kafka/model"
	"penstock/netio"
)

// drain ends connections that have lost their broker, evenly over a window:
// each between two requests and outside of a transaction, or at the deadline of
// its cluster. All are told at once, so that a client which asks for Metadata
// in the meantime is told to bootstrap again.
func drain(conns []*Connection, d model.Drain) {
	for i, c := range conns {
		after := time.Duration(float64(d.Window.D()) * float64(i) / float64(len(conns)))
		c.conn.Post(func() { c.session.Leave(netio.Drained, after, d.TransactionDeadline.D()) })
	}
}

// drainConnections drains the connections whose broker a change has removed.
func (r *Proxy) drainConnections(done model.Applied) {
	for _, state := range done.Removed {
		if state.Last() == nil {
			continue // it could not be served, so nobody has come
		}
		drain(r.clusters.of(state).list(func(*Connection) bool { return true }), state.Last().Spec().Drain)
		r.clusters.markRemoved(state)
	}
	for _, name := range done.Virtual {
		v, ok := done.Table.Virtual(name)
		if !ok {
			continue
		}
		gone := func(c *Connection) bool {
			_, is := c.orphaned()
			return is
		}
		drain(r.clusters.of(v.State()).list(gone), v.Spec().Drain)
	}
}
