package dataplane

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

// A client that connected while a listener was open is served as before, even if
// the listener is removed before the client has sent its ClientHello.
func TestAClientOfARemovedListenerIsStillServed(t *testing.T) {
	ca := certs.NewCA("test CA")
	own := ca.Issue("a.example.com")
	b := nodetest.ServeBackend(t, "b", &tls.Config{Certificates: []tls.Certificate{own.TLS}})
	plain := nodetest.NewBackend(t, "plain")
	n := start(t, nodetest.Certificate("a", own)+"\n---\n"+nodetest.OneService(plain)+`
---
kind: Service
name: secure
spec: {endpoints: [{address: "`+b.At()+`"}]}
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
		testkit.WaitFor(t, "the node to take the client", func() bool { return n.Engine.Stats().Connections > 0 })
		n.mustDelete(t, "listener", listener)
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		client := tls.Client(conn, &tls.Config{ServerName: "a.example.com", RootCAs: ca.Pool})
		if got := nodetest.ReadLine(t, client); got != want {
			t.Errorf("%s: read %q, want %q", listener, got, want)
		}
		client.Close()
		testkit.WaitFor(t, "the connection to end", func() bool { return n.Engine.Stats().Connections == 0 })
	}
	n.Sweep(time.Now().Add(removedListenerTTL + time.Second))
	if n.reconciler.removed.table("pass") != nil || n.reconciler.removed.table("end") != nil {
		t.Error("a removed listener is never forgotten")
	}
}
