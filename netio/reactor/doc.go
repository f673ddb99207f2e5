// Package reactor moves bytes: loops, sockets, listeners and timers on epoll.
// It knows no protocol: its user decides, through the contract of package
// stream.
//
// A Loop is one goroutine and everything that lives on it. Nothing on a loop
// is locked. Code outside it calls Post and nothing else:
//
//	l, err := reactor.NewLoop(reactor.Config{})
//	go l.Run()
//	fd, addr, err := reactor.ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), reactor.TCPOptions{})
//	l.Post(func() { ln, err = l.Listen(fd, acceptor) })
//
//	func (a *acceptor) Accepted(fd int, peer netip.AddrPort) {
//		c := &conn{}                 // holds two Sockets and a Timer
//		c.client.Init(l, &c.client)  // the owner: implements stream.Owner
//		c.client.Adopt(fd, peer)
//		c.client.SetReading(true)
//		c.upstream.Init(l, ...)
//		c.upstream.Dial(target, reactor.TCPOptions{})
//	}
//
// # Spreading connections
//
// There are two ways. Listen on one loop and pass descriptors to others with
// Post and Adopt: this is exact, but wakes a loop that sleeps. Or add a
// Listener for the same descriptor to each loop: this costs nothing, but the
// loops that are awake take more. Stop and Drain end a listening socket
// without losing a connection from its queue.
//
// # Sockets
//
// A socket is registered once, edge-triggered, for both directions. Two flags
// remember whether it is readable and writable: the poller sets them, and a
// call that found nothing, or less than it asked for, clears them. Pausing a
// socket means not reading it. A read that does not fill the buffer has
// drained the socket, which saves another read. There are three exceptions, in
// which the socket reads until nothing comes: after a hang-up, whose end would
// be lost, with urgent data, and on unix sockets, where reads stop at passed
// descriptors.
//
// Send writes at once and keeps what the kernel does not take in chunks of the
// loop's pool. With PipeTo, a direction that has filled the read buffer
// several times in a row continues with splice(2) through a pipe of the loop's
// pool, until its source has little to read. The pipe returns to the pool
// whenever it is empty and the source drained; a stalled reader keeps one pipe
// and no heap. Without a free pipe, bytes are copied.
//
// To end a relayed connection, call CloseWrite on one side when the other has
// ended, and Close on both when both have. Close sends the end itself; once
// the peer has ended, it costs no more than closing the descriptor.
//
// # Errors
//
// Readable bytes are delivered before the error behind them, even if a write
// found the error: a peer that answers, refuses the rest of the request and
// resets is heard first. So the owner of a socket that does not read learns of
// a reset at once only if nothing is left to read. Otherwise it does when it
// has read everything, or has read nothing for CloseTimeout; bytes sent
// meanwhile are discarded. After an error in either direction, an end of
// stream is reported as that error.
//
// # Stale reports
//
// The kernel returns reports in batches. A callback for one report may close a
// descriptor and open another socket under the same number, and a later report
// of the batch would then reach the wrong socket. So a report does not carry a
// descriptor. It carries the socket's index in the loop's table and the
// generation that the socket had when it was registered. A generation repeats
// only after four billion others, so a stale report finds a free entry or
// another generation, and is dropped. Reports of the new socket are not lost:
// registering it makes the kernel report its state in a later batch.
//
// Once a socket is connected, reports are only hints: a read or write that
// finds nothing clears its flag, a hang-up makes the socket read until nothing
// comes, and an error is looked up. While a socket connects, a report of
// writability is taken as success, so a stale one would do harm.
package reactor
