package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// hellos caches ClientHello templates made by crypto/tls, by kind; only the
// name in them is replaced.
var hellos sync.Map // kind -> []byte

func classicHello(name string) []byte {
	return helloFor("classic", name, []tls.CurveID{tls.X25519})
}

func quantumHello(name string) []byte {
	return helloFor("quantum", name, []tls.CurveID{tls.X25519MLKEM768, tls.X25519})
}

// helloFor returns a ClientHello for the name. All names of the benchmark have
// the same length, so one template per kind suffices.
func helloFor(kind, name string, curves []tls.CurveID) []byte {
	template, ok := hellos.Load(kind)
	if !ok {
		made := captureHello(manyName(0), curves)
		template, _ = hellos.LoadOrStore(kind, made)
	}
	t := template.([]byte)
	out := make([]byte, len(t))
	copy(out, t)
	return replaceName(out, manyName(0), name)
}

func replaceName(b []byte, old, name string) []byte {
	if len(old) != len(name) {
		panic("bench: names of different lengths") // a bug in this program
	}
	for i := 0; i+len(old) <= len(b); i++ {
		if string(b[i:i+len(old)]) == old {
			copy(b[i:], name)
			return b
		}
	}
	panic("bench: no server name in the hello")
}

// captureHello returns the ClientHello that crypto/tls sends.
func captureHello(name string, curves []tls.CurveID) []byte {
	c := &captureConn{}
	_ = tls.Client(c, &tls.Config{ServerName: name, CurvePreferences: curves}).HandshakeContext(context.Background())
	return c.sent
}

var errCaptured = errors.New("captured")

type captureConn struct {
	net.Conn
	sent []byte
}

func (c *captureConn) Write(p []byte) (int, error) {
	c.sent = append(c.sent, p...)
	return len(p), nil
}
func (c *captureConn) Read([]byte) (int, error) { return 0, errCaptured }
func (c *captureConn) Close() error             { return nil }
