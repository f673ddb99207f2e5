// Package reactor moves bytes: loops, sockets, listeners and timers on epoll.
// It knows nothing of protocols; whoever uses it decides (see package stream,
// whose contract Socket keeps).
//
// A Loop is one goroutine and everything that lives on it. Nothing on a loop
// is locked, and nothing of it is touched from elsewhere but through Post:
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
// Listen on one loop and give every second descriptor to the other one, by
// Post and Adopt there: exact, at the price of a wake-up of the other loop
// where that one is asleep. Or have a Listener for the same descriptor on each
// loop: free, but whoever is awake takes more. Stop and Drain end a listening
// socket without losing a connection from its queue.
//
// # Sockets
//
// A socket is registered once, edge-triggered, in both directions; whether it
// is readable or writable is then kept in two flags, which the poller sets and
// a call that found nothing, or less than it asked for, clears. To pause is
// not to read. A read that brings less than the buffer holds has drained the
// socket and saves the call that would say so; except after a hang-up, whose
// end would be lost, with urgent data, and on unix sockets, where reads stop at
// passed descriptors: there it reads until nothing comes.
//
// Bytes go out at once, in the call of Send. What the kernel does not take is
// kept in chunks of the loop's pool. With PipeTo, a direction that has filled
// the read buffer several times in a row goes on with splice(2) through a
// pipe of the loop's pool, until its source has little to give. The pipe goes back
// to the pool whenever it is empty and the source drained; a stalled reader keeps
// one pipe and no heap. Where no pipe is to be had it is copied as before.
//
// To end a relayed connection, call CloseWrite on one side when the other has
// ended, and Close on both when both have: Close sends the end itself, and costs
// no more than closing the descriptor once the peer has ended.
//
// # Errors
//
// What is readable is told before the error that follows it, also when the
// error came to light by writing: a peer that answers, refuses the rest of the
// request and resets is heard first. So a socket that does not read is told of
// a reset at once only if nothing is left to read, and otherwise when it has read,
// or has not for CloseTimeout; what is sent to it meanwhile is thrown away. After an error of either direction an end of stream is not believed: it
// is reported as the error.
//
// # Stale reports
//
// The kernel hands out reports in batches. A callback for one report may close
// a descriptor and open another socket under the same number, for which a later
// report of the batch was not meant. So a report carries no descriptor but the
// socket's place in the loop's table and the generation it had when it was
// registered. Generations are never reused (but after four billion), so a
// stale report finds an empty place or another generation and is dropped.
// Reports of the new socket are not lost: registering it makes the kernel
// report its present state in a later batch.
//
// Even a report that came late would do no harm, as reports are hints and
// calls decide: a read or write that finds nothing clears its flag, a hang-up
// only makes the socket read until nothing comes, and an error is looked up.
package reactor
