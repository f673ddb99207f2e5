// Package tlsstream is TLS as a stream.Stream on top of another one, in both
// roles, on a single-threaded event loop. crypto/tls does the protocol; this
// package drives it without a goroutine per connection.
//
//	pool := tlsstream.NewPool(4096)              // one per node
//	local := tlsstream.NewLocal(loop, pool)      // one per loop
//	s := local.Server(sock, config, hello, own)  // own.Connected, or own.Failed
//	sock.SetOwner(s)
//
// # How it works
//
// A handshake is a coroutine. Whenever crypto/tls wants bytes that have not
// come, it yields; whoever has the bytes resumes it. So each of its steps can
// run anywhere. Handing a step to another thread and back costs half as much
// as the step itself, so the loop does them, one per turn, as long as they are
// short (Local.StepLimit) and few are waiting. Long ones (RSA keys, slow
// curves, callbacks) and what a flood of hellos piles up run on the workers of
// the Pool, of which there are as many as processors, so that the loops keep
// their share. What a step writes is gathered and sent at once. Nothing is
// locked: the coroutine belongs to the loop or to a worker, and changes hands
// between steps.
//
// After the handshake the loop cuts the incoming bytes into records and gives
// crypto/tls one whole record at a time, so it never waits and never holds
// half a record. Where the layout of tls.Conn is the known one (inside.go),
// the record is decrypted in the very buffer that it arrived in, and nothing
// of it stays in the connection: an idle connection has no buffer.
//
// # Ends
//
// Ended follows the peer's close_notify and nothing else. An end of the under
// stream without it is a truncation, wherever it falls, and is told as
// stream.ErrReset. CloseWrite sends close_notify and then ends the under
// stream; each direction ends by itself.
//
// # Configurations
//
// A *tls.Config is shared by all connections that it is right for, and is not
// cloned per connection: every tls.Conn keeps its config alive. Choose it by
// the ClientHello before calling Server; GetConfigForClient is not needed.
// Pass new configs through Defaults. Session tickets work across configs, and
// across nodes, when each config was given to Tickets.Share of one Tickets
// whose keys the nodes agree on. Tickets binds every ticket to the server name
// and to a scope that the caller names, because crypto/tls itself would let a
// session of one virtual host be resumed on another. Do not also call
// SetSessionTicketKeys on such configs: it has no effect there.
//
// For the client role set ServerName: it is what the certificate is verified
// for and the key under which sessions are kept in ClientSessionCache.
//
// TLS renegotiation is refused in both roles, whatever the config says.
package tlsstream
