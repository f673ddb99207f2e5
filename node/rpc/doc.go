// Package rpc is the protocol between commands and nodes, and among nodes:
// msgpack requests and responses over TCP or a unix socket. It owns the
// protocol and its limits; package api has the messages, and a method's handler
// owns its meaning.
//
// Each side first sends eight bytes that negotiate the version. Then frames
// flow both ways, each with a length, a type and a request ID (frame.go). Any
// number of requests may be in flight on one connection. A request has one
// response or a stream of them, carries the caller's deadline, and can be
// cancelled.
//
// A caller is an api.Principal, determined by the listener (the node's own socket),
// by a node's certificate, or by a token in the connection's first request. A
// method declares the lowest role that may call it, and every call that changes
// something is audited. A node that cannot act on a request itself forwards it
// for its caller, once (Pass), and calls each other node over one connection
// (Pool).
//
// An unauthenticated connection costs little: it must send its first request
// within seconds, its memory grows with the bytes that it sends, every frame is
// checked for well-formedness and depth before it is decoded, and connections
// and bytes in flight are capped. Nodes, tokens and unauthenticated connections
// have separate limits, so that none keeps another out. Responses to wrong
// tokens are delayed, and a source of many is soon refused.
//
//	c, err := rpc.Dial(ctx, "unix:/var/lib/penstock/penstock.sock")
//	...
//	list, err := rpc.Call[api.GetResult](ctx, c, api.MethodGet, api.GetRequest{Kind: "Service"})
package rpc
