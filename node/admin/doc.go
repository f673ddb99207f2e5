// Package admin is how commands talk to a node: requests and answers in
// msgpack, over TCP or a unix socket. It owns the protocol, its bounds and
// the types that travel; what a method does is its handler's business.
//
// Each side begins with eight bytes that settle the version. Then frames
// travel both ways, each with a length, a type and the id of its request
// (frame.go). Any number of requests may be in flight on one connection; one
// has a single answer or a stream of them, carries the caller's deadline, and
// can be cancelled.
//
// Whoever asks is a Principal: by the listener (the node's own socket), by a
// node's certificate, or by a token that the connection's first request shows.
// A method names the least role that it needs; what it changes is audited. A
// node that cannot act on a request itself passes it on for its caller, once
// (Pass), and calls other nodes over one connection each (Pool).
//
// A stranger costs little: it has seconds to send a first request, its
// memory grows with the bytes that it sends, a frame is checked to be
// well-formed and of bounded depth before anything decodes it, and
// connections and bytes in flight are capped. Nodes, tokens and strangers
// have places apart, so that none keeps another out, and wrong tokens are
// answered late and, from one source, soon not at all.
//
//	c, err := admin.Dial(ctx, "unix:/var/lib/penstock/penstock.sock")
//	...
//	list, err := admin.Call[admin.GetResult](ctx, c, admin.MethodGet, admin.GetRequest{Kind: "Service"})
package admin
