package netio

import (
	"math"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Accepted implements reactor.Acceptor, on the loop of the listening socket.
func (s *socket) Accepted(fd int, peer netip.AddrPort) {
	home, l := s.loop, s.owner.Load()
	spec := l.spec.Load()
	if why := l.admit(spec, peer.Addr(), home.Now()); why != OK {
		home.refuse(l, s, fd, peer, why)
		return
	}
	to := home.engine.leastLoaded(home)
	to.open.Add(1)
	if to == home {
		to.begin(l, spec, s, fd, peer)
		return
	}
	if !to.Post(func() { to.begin(l, spec, s, fd, peer) }) {
		to.open.Add(-1)
		l.leave(spec, peer.Addr())
		home.refuse(l, s, fd, peer, Shutdown)
	}
}

// AcceptFailed implements reactor.Acceptor. A rest for want of descriptors
// costs nobody a connection: they wait in the kernel's queue.
func (s *socket) AcceptFailed(err error, rest time.Duration) {
	e, name := s.loop.engine, s.owner.Load().name
	if rest > 0 {
		e.rests.Add(1)
		e.rested.Store(time.Now().UnixNano())
		e.log.Warn("accepting rests", "listener", name, "error", err, "for", rest)
		return
	}
	e.log.Error("listening socket failed", "listener", name, "address", s.bound, "error", err)
	// Not here: the engine's lock may be held by someone who waits for this loop.
	go e.lost(s, err)
}

// Room implements reactor.Acceptor: a connection is taken only when there are
// descriptors for both of its sides.
func (s *socket) Room() bool {
	e := s.loop.engine
	return e.connections() < e.files
}

// roomFor is how many connections the process's descriptors suffice for: two
// each, beside those that it has already and a reserve for pipes, commands,
// probes and sockets that are being closed.
func roomFor() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt64
	}
	used := 0
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		used = len(entries)
	}
	reserve := 16 + min(int64(limit.Cur)/16, 1024)
	return max((int64(limit.Cur)-int64(used)-reserve)/2, 1)
}

// leastLoaded is the loop for the next connection: home, unless another one
// has fewer by more than a little. To hand a descriptor over costs a wake-up
// of that loop, which is worth it where few connections may be long and
// heavy, and not for the last one in a hundred.
func (e *Engine) leastLoaded(home *loop) *loop {
	if len(e.loops) == 1 {
		return home
	}
	best, least := home, home.open.Load()
	slack := least / 64
	for _, l := range e.loops {
		if n := l.open.Load(); n < least && n+slack < home.open.Load() {
			best, least = l, n
		}
	}
	return best
}

// admit checks the listener's limits for one more connection and counts it.
func (l *listener) admit(spec *Listener, peer netip.Addr, now time.Duration) Reason {
	if n := l.open.Add(1); spec.MaxConnections > 0 && n > int64(spec.MaxConnections) {
		l.open.Add(-1)
		return LimitConnections
	}
	if spec.MaxPerSecond > 0 && !l.rate.take(spec.MaxPerSecond, now) {
		l.open.Add(-1)
		return LimitRate
	}
	// Behind a trusted proxy or a node of the mesh the client is known after the header.
	if l.countsPeer(spec, peer) && !l.sources.add(peer, spec.MaxPerSource) {
		l.open.Add(-1)
		return LimitPerSource
	}
	return OK
}

// countsPeer tells whether admit counts that peer's address as the source.
func (l *listener) countsPeer(spec *Listener, peer netip.Addr) bool {
	return spec.MaxPerSource > 0 && peer.IsValid() && !spec.trusts(peer) && !spec.MeshHeader
}

// leave takes back what admit counted.
func (l *listener) leave(spec *Listener, peer netip.Addr) {
	l.open.Add(-1)
	if l.countsPeer(spec, peer) {
		l.sources.remove(peer)
	}
}

// trusts tells whether connections from that address begin with a PROXY
// header. Unix sockets have no address and are never asked for one.
func (spec *Listener) trusts(peer netip.Addr) bool {
	peer = peer.WithZone("") // no prefix contains an address with a zone
	for _, p := range spec.ProxyFrom {
		if p.Contains(peer) {
			return true
		}
	}
	return false
}

// refuse turns a connection away with a reset, which leaves nothing behind in
// the kernel.
func (l *loop) refuse(from *listener, at *socket, fd int, peer netip.AddrPort, why Reason) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(fd)
	l.engine.refused.count(why)
	c := &l.refused
	c.loop, c.listener, c.at, c.id, c.born = l, from, at, l.nextID(), l.Now()
	c.peer, c.peerPort = peer.Addr(), peer.Port()
	c.phase = phaseClosed
	l.engine.handler.Closed(c, why)
	c.listener, c.at = nil, nil
}

// begin makes the actor of an accepted connection.
func (l *loop) begin(from *listener, spec *Listener, at *socket, fd int, peer netip.AddrPort) {
	if l.closed {
		l.open.Add(-1)
		from.leave(spec, peer.Addr())
		l.refuse(from, at, fd, peer, Shutdown)
		return
	}
	c := &Conn{
		loop: l, listener: from, spec: spec, at: at, id: l.nextID(),
		peer: peer.Addr(), peerPort: peer.Port(), born: l.Now(), active: l.Now(),
	}
	if from.countsPeer(spec, peer.Addr()) {
		c.flags |= sourceCounted
	}
	l.conns.add(c)
	c.timer.Init(c)
	c.client.Init(l.Loop, (*clientSide)(c))
	c.client.Adopt(fd, peer)
	c.start()
}
