// Package stream is the server's side of the xDS protocol for one stream: which
// response follows from the requests of a client and the snapshots served. It
// knows no gRPC, does no I/O and reads no clock.
//
//	s := stream.New(stream.Config{Delta: true}, state, view)
//	err := s.Request(&stream.Request{Type: snapshot.Endpoint, Subscribe: names}, now)
//	s.Update(next, next.View("web"), now)
//	for r, ok := s.Next(now); ok; r, ok = s.Next(now) {
//		send(r)
//	}
//
// A response is made when it can be sent, and there is one unanswered response
// for each type at most. So a client that reads or answers slowly gets the newest
// content when it is ready, and no content waits in a queue.
//
// The protocol is at https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol,
// gRPC's use of it in gRFC A27. Where it leaves a choice, this is what package
// stream does:
//
//   - A request for all resources, "*", is possible for each type. A first request
//     without names means that for clusters and listeners alone.
//   - In the state of the world, clusters and listeners are sent whole, of other
//     types only what changed, as the protocol allows. A response without resources
//     is sent for clusters and listeners alone: for other types it says nothing.
//   - The version of a response in the state of the world is INDEX.DIGEST: the index
//     of the snapshot, and a digest of all that the subscription has, on every node
//     the same. A client that reconnects with the digest of what it would get gets
//     nothing. One with a greater index than this node's waits for the node, for
//     MaxWait at most, so that it does not go back.
//   - A refused response (NACK) is not repeated. The next change of the type brings
//     its resources once more, as a client may have taken none of them.
//   - Endpoints of a cluster follow whenever the cluster was sent, changed or not:
//     an Envoy that gets a cluster waits for them (the protocol, "Resource warming").
//   - Listeners and routes wait for clusters and endpoints that are not sent yet. A
//     cluster that is gone is taken away after the client has accepted the listeners
//     and routes that changed with it.
package stream
