// Package tlsstream provides TLS as a stream.Stream on top of another one, as
// client and server, on a single-threaded event loop. crypto/tls implements
// the protocol; this package drives it without a goroutine per connection.
//
//	pool := tlsstream.NewPool(4096)              // one per node
//	local := tlsstream.NewLocal(loop, pool)      // one per loop
//	s := local.Server(sock, config, hello, own)  // own.Connected, or own.Failed
//	sock.SetOwner(s)
//
// # How it works
//
// A handshake is a coroutine. When crypto/tls needs bytes that have not
// arrived, the coroutine yields, and is resumed when they have. So each step
// can run on any goroutine. Handing a step to another thread and back costs
// half as much as the step itself, so the loop runs the steps, one per turn,
// while they are short (Local.StepLimit) and few are waiting. Long steps (RSA
// keys, slow curves, callbacks) and the backlog of a flood of hellos run on
// the workers of the Pool, one for each processor, so that the loops keep
// their share. The output of a step is collected and sent at once. Nothing is
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
// Only the peer's close_notify leads to Ended. If the underlying stream ends
// without it, the TLS stream was truncated, and the owner's Failed gets
// stream.ErrReset. CloseWrite sends close_notify and then ends the underlying
// stream; the two directions end independently.
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
