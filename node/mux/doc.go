// Package mux serves several protocols on the cluster port of a node. It owns the
// listener, the TLS handshake, the demultiplexing by ALPN ("h2": xDS, from proxies)
// and by the first byte inside TLS ('A': admin RPC, 'R': Raft), and the bounds on
// unauthenticated connections. It does not interpret the bytes after the first one.
//
// It refuses everything but TLS (unless it runs plain, for --dev), xDS without a
// proxy's certificate, Raft without a node's, and any other first byte. Without TLS
// the first byte of HTTP/2's preface means xDS. An unauthenticated connection has
// seconds for its handshake and its first byte, and few handshakes compute at
// once. If there are too many such connections, the oldest one of the address with
// the most is closed. So an honest client gets in, however many idle connections
// there are.
//
//	p := mux.New(mux.Config{Listener: ln, TLS: tlsConfig, Peer: peer, Admin: serveAdmin})
//	...
//	transport := raft.NewNetworkTransport(layer{p.Raft()}, ...)
//	conn, err := mux.Dial(ctx, "10.0.0.2:7947", clientConfig, mux.Raft)
package mux
