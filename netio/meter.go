package netio

import "sync/atomic"

// A Meter counts what the connections of one listener and service do, one
// shard per loop so that loops do not share cache lines.
type Meter struct {
	Listener, Service string
	shards            []meterShard
}

type meterShard struct {
	accepted  atomic.Uint64 // connections routed here
	active    atomic.Int64  // connections now
	fromPeer  atomic.Uint64 // bytes from clients
	fromUpstr atomic.Uint64 // bytes from endpoints
	_         [32]byte
}

// NewMeter returns a meter for an engine with that many loops; see
// Engine.Loops.
func NewMeter(listener, service string, loops int) *Meter {
	return &Meter{Listener: listener, Service: service, shards: make([]meterShard, loops)}
}

// Counts are the totals of a meter.
type Counts struct {
	Connections uint64 // routed since start
	Active      int64  // now
	// BytesIn are from clients, BytesOut from endpoints.
	BytesIn, BytesOut uint64
}

// Counts returns the totals over all loops.
func (m *Meter) Counts() Counts {
	var c Counts
	for i := range m.shards {
		s := &m.shards[i]
		c.Connections += s.accepted.Load()
		c.Active += s.active.Load()
		c.BytesIn += s.fromPeer.Load()
		c.BytesOut += s.fromUpstr.Load()
	}
	return c
}

// shard is the part that a loop counts in.
func (m *Meter) shard(loop int) *meterShard { return &m.shards[loop%len(m.shards)] }
