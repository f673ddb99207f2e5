package kafka

import (
	"context"
	"sync"
	"time"

	"penstock/kafka/model"
	"penstock/netio"
)

// leaving ends connections that a change leaves without a broker: evenly over a
// window, each at a moment between two requests and outside of a transaction,
// or at the deadline of its cluster.
type leaving struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (l *leaving) init() { l.ctx, l.cancel = context.WithCancel(context.Background()) }

// close stops sending away, and waits until nobody does.
func (l *leaving) close() {
	l.cancel()
	l.wg.Wait()
}

// away has connections leave.
func (l *leaving) away(conns []*Connection, d model.Drain) {
	if len(conns) == 0 {
		return
	}
	l.wg.Go(func() {
		begun := time.Now()
		timer := time.NewTimer(0)
		defer timer.Stop()
		for i, c := range conns {
			due := begun.Add(time.Duration(float64(d.Window.D()) * float64(i) / float64(len(conns))))
			timer.Reset(time.Until(due))
			select {
			case <-timer.C:
			case <-l.ctx.Done():
				return
			}
			c.conn.Post(func() { c.session.Leave(netio.Drained, d.TransactionDeadline.D()) })
		}
	})
}

// sendAway finds whom a change leaves without a broker.
func (r *Room) sendAway(done model.Applied) {
	for _, life := range done.Removed {
		r.leaving.away(r.clusters.of(life).list(func(*Connection) bool { return true }), life.Last().Spec().Drain)
		r.clusters.retire(life)
	}
	for _, name := range done.Virtual {
		v, ok := done.Table.Virtual(name)
		if !ok {
			continue
		}
		gone := func(c *Connection) bool {
			_, is := c.astray()
			return is
		}
		r.leaving.away(r.clusters.of(v.Life()).list(gone), v.Spec().Drain)
	}
}
