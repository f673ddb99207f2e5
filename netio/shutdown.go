package netio

// Close ends all connections at once with the reason Shutdown, stops the loops
// and waits for their goroutines.
func (e *Engine) Close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	e.stopListening()
	e.mu.Unlock()
	// Nobody accepts any more after this round, so no connection is on its
	// way to another loop after the next one.
	e.onLoops(func(l *loop) {
		for s := range l.sockets {
			s.close()
		}
	})
	e.onLoops((*loop).shutdown)
	for _, l := range e.loops {
		l.Close()
	}
	e.running.Wait()
	close(e.over)
}

// shutdown ends all connections at once.
func (l *loop) shutdown() {
	l.closed = true
	for c := l.conns.head; c != nil; c = l.conns.head {
		c.stop(Shutdown, c.isIdle())
	}
	if l.draining != nil {
		l.draining.finish()
	}
}
