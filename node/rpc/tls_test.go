package rpc

import (
	"crypto/tls"
	"net"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// serveTLS serves s like a cluster port: a client with a node's certificate is
// that node.
func serveTLS(t testing.TB, s *Server, config *tls.Config) (addr string) {
	t.Helper()
	return listenTLS(t, config, func(conn net.Conn) {
		p := api.Principal{}
		if chains := conn.(*tls.Conn).ConnectionState().VerifiedChains; len(chains) > 0 {
			id := chains[0][0].Subject.CommonName
			p = api.Principal{Name: id, Role: api.RoleNode, Node: id}
		}
		s.ServeConn(conn, p)
	})
}

// listenTLS is testkit.Serve with TLS.
func listenTLS(t testing.TB, config *tls.Config, answer func(net.Conn)) (addr string) {
	t.Helper()
	return testkit.Serve(t, func(raw net.Conn) {
		conn := tls.Server(raw, config)
		if conn.HandshakeContext(t.Context()) == nil {
			answer(conn)
		}
	})
}
