package node

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// rule 11: who came while a listener was open is served as it was then, even
// when the listener is gone before the client has said where it wants to go.
func TestAClientOfARemovedListenerIsStillServed(t *testing.T) {
	ca := newAuthority(t)
	cert, key, pair := ca.issue(t, "a.example.com")
	b := serveBackend(t, "b", &tls.Config{Certificates: []tls.Certificate{pair}})
	plain := newBackend(t, "plain")
	n := startNode(t, certificate("a", cert, key)+"\n---\n"+oneService(plain)+`
---
kind: Service
name: secure
spec: {endpoints: [{address: "`+b.at()+`"}]}
---
kind: Listener
name: pass
spec: {address: "127.0.0.1:0", protocol: tls, service: secure}
---
kind: Listener
name: end
spec: {address: "127.0.0.1:0", protocol: tls, tls: {mode: terminate, certificateRefs: [a]}, service: apps}
`)
	for listener, want := range map[string]string{"pass": "b", "end": "plain"} {
		conn, err := net.Dial("tcp", n.at(t, listener))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		waitFor(t, "the node to take the client", func() bool { return n.engine.Stats().Connections > 0 })
		n.mustDelete(t, "listener", listener)
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		client := tls.Client(conn, &tls.Config{ServerName: "a.example.com", RootCAs: ca.pool})
		if got := readLine(t, client); got != want {
			t.Errorf("%s: read %q, want %q", listener, got, want)
		}
		client.Close()
		waitFor(t, "the connection to end", func() bool { return n.engine.Stats().Connections == 0 })
	}
	n.reconciler.tidy(time.Now().Add(goneGrace + time.Second))
	if n.reconciler.gone.table("pass") != nil || n.reconciler.gone.table("end") != nil {
		t.Error("a removed listener is never forgotten")
	}
}
