// Package mux is the one port of a node that the cluster uses. It owns the
// listener, the TLS around everything, the choice by the first byte inside
// ('A': admin RPC, 'R': Raft), and the bounds on those who have not shown who
// they are. What travels after the first byte is the business of others.
//
// It refuses whatever is not TLS (unless it runs plain, for --dev), Raft from
// anyone without a node's certificate, and any other first byte. A stranger
// is never waited for: each has seconds for its handshake and its first byte,
// handshakes that compute at once are few, and of the strangers that are too
// many the oldest of the address that has most of them goes. So a newcomer
// that knows what it wants gets in, however many of them sit there in silence.
//
//	p, err := port.New(port.Config{Listener: ln, TLS: tlsConfig, Peer: trust.Peer, Admin: serveAdmin})
//	...
//	transport := raft.NewNetworkTransport(layer{p.Raft()}, ...)
//	conn, err := port.Dial(ctx, "10.0.0.2:7947", clientConfig, port.Raft)
package mux
