package netio

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// listener is what is known under one name, over all changes of its
// specification and of the socket that it listens on.
type listener struct {
	name    string
	spec    atomic.Pointer[Listener]
	open    atomic.Int64 // connections that it accepted and that are not closed
	rate    bucket
	sources sources

	// Guarded by the engine's mutex.
	socket *socket       // nil while it does not listen
	err    error         // why not
	pause  time.Duration // before the next try
	retry  *time.Timer
}

// SetListeners makes the engine listen on exactly the given listeners, which
// it identifies by name:
//
//   - A new name gets a socket; where its address cannot be bound,
//     Listeners tells why, and it is tried again, for as long as it takes. The
//     others are not concerned.
//   - Where the address is unchanged the socket stays, and connections that
//     are accepted from now on are treated by the new specification.
//   - Where it changes, the new socket is opened first; then the old one is
//     retired (the other way round where the two exclude each other, as an
//     address and its wildcard do). An address that goes from one name to another goes with its
//     socket, and with the connections in its queue.
//   - A name that is missing is retired: no new connection is taken, those in
//     the kernel's queue are, and the socket is closed a moment later.
//
// Established connections are not affected. The call does not wait for the
// network. Between Drain and Resume, and after Close, it does nothing.
func (e *Engine) SetListeners(specs []Listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return
	}
	wanted := make(map[string]*Listener, len(specs))
	for i := range specs {
		spec := withTimeouts(specs[i])
		if wanted[spec.Name] != nil {
			e.log.Error("two listeners of one name", "listener", spec.Name)
			continue
		}
		wanted[spec.Name] = &spec
	}
	free := e.freeSockets(wanted)
	for i := range specs {
		if spec := wanted[specs[i].Name]; spec != nil {
			e.setListener(spec, free)
			delete(wanted, spec.Name) // the second of that name, if there is one
		}
	}
	for _, s := range free {
		e.retire(s)
	}
}

// withTimeouts fills in the defaults.
func withTimeouts(spec Listener) Listener {
	const minProxyTimeout = 3 * time.Second // a retransmission must fit in
	if spec.ProxyTimeout == 0 {
		spec.ProxyTimeout = 5 * time.Second
	}
	spec.ProxyTimeout = max(spec.ProxyTimeout, minProxyTimeout)
	if spec.HelloTimeout == 0 {
		spec.HelloTimeout = 5 * time.Second
	}
	if spec.HandshakeTimeout == 0 {
		spec.HandshakeTimeout = 10 * time.Second
	}
	return spec
}

// freeSockets takes their sockets from listeners that are not wanted, or not
// at that address, and forgets the former.
func (e *Engine) freeSockets(wanted map[string]*Listener) map[string]*socket {
	free := make(map[string]*socket)
	for name, l := range e.listeners {
		spec := wanted[name]
		if s := l.socket; s != nil && (spec == nil || bindKey(spec) != s.key) {
			free[s.key] = s
			l.socket = nil
		}
		if spec == nil {
			l.stopRetry()
			delete(e.listeners, name)
			e.budget.RemoveListener(name)
			e.places.RemoveListener(name)
			e.log.Info("listener removed", "listener", name)
		}
	}
	return free
}

// setListener gives a listener its specification, and a socket where it has
// none at that address: one of the free ones, or a new one.
func (e *Engine) setListener(spec *Listener, free map[string]*socket) {
	l := e.listeners[spec.Name]
	if l == nil {
		l = &listener{name: spec.Name}
		e.listeners[spec.Name] = l
	}
	l.spec.Store(spec)
	if l.socket != nil {
		return
	}
	l.stopRetry()
	l.pause, l.err = 0, nil
	if s := free[bindKey(spec)]; s != nil {
		delete(free, s.key)
		s.owner.Store(l)
		l.socket = s
		e.log.Info("listening", "listener", l.name, "address", s.bound)
		return
	}
	err := e.listen(l)
	if errors.Is(err, syscall.EADDRINUSE) {
		e.makeWay(spec, free)
		err = e.listen(l)
	}
	if err != nil {
		e.failed(l, err)
	}
}

// listen binds a listener's address and begins to accept.
func (e *Engine) listen(l *listener) error {
	s, err := bind(l.spec.Load(), e.tcp)
	if err != nil {
		return err
	}
	s.loop = e.loops[e.next%len(e.loops)]
	e.next++
	s.owner.Store(l)
	s.loop.Post(s.open)
	l.socket, l.err, l.pause = s, nil, 0
	e.log.Info("listening", "listener", l.name, "address", s.bound)
	return nil
}

// makeWay closes those sockets that have what the specification wants to be
// bound to and that nobody needs any more: free ones, as when an address
// becomes a wildcard, and those that are on their way out. It waits for that.
// Who else wants one of those addresses has to bind it anew.
func (e *Engine) makeWay(spec *Listener, free map[string]*socket) {
	e.onLoops(func(l *loop) {
		for s := range l.sockets {
			if (s.retired || free[s.key] == s) && s.inTheWay(spec) {
				s.retire(false)
			}
		}
	})
	for key, s := range free {
		if s.inTheWay(spec) {
			delete(free, key)
		}
	}
}

func (e *Engine) retire(s *socket) { s.loop.Post(func() { s.retire(true) }) }

// failed notes why a listener does not listen, and tries again later.
func (e *Engine) failed(l *listener, err error) {
	l.err = err
	l.pause = min(max(2*l.pause, e.cfg.BindRetry), e.cfg.BindRetryMax)
	e.log.Error("cannot listen", "listener", l.name, "error", err, "retry", l.pause)
	l.retry = time.AfterFunc(l.pause, func() { e.retryListen(l) })
}

func (e *Engine) retryListen(l *listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped || e.listeners[l.name] != l || l.socket != nil {
		return
	}
	if err := e.listen(l); err != nil {
		e.failed(l, err)
	}
}

func (l *listener) stopRetry() {
	if l.retry != nil {
		l.retry.Stop()
		l.retry = nil
	}
}

// lost replaces a listening socket that is of no use any more.
func (e *Engine) lost(s *socket, err error) {
	s.loop.Post(s.close)
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := s.owner.Load(); l.socket == s {
		l.socket = nil
		if !e.stopped {
			e.failed(l, fmt.Errorf("accept on %s: %w", s.bound, err))
		}
	}
}

// stopListening retires all sockets.
func (e *Engine) stopListening() {
	if e.stopped {
		return
	}
	e.stopped = true
	for _, l := range e.listeners {
		l.stopRetry()
		if l.socket != nil {
			e.retire(l.socket)
			l.socket = nil
		}
	}
	clear(e.listeners)
}
