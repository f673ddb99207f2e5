package netio

import (
	"io"
	"net"
	"testing"

	"penstock/internal/testkit"
)

// The client and the endpoint run in this process and count, too: compare
// results with earlier ones, not with other proxies (make bench does that).

func BenchmarkRoundTrip(b *testing.B) {
	r := newRig(b, Config{Log: quiet, Loops: 1}, testkit.Serve(b, echo), Profile{})
	c, p := dial(b, r.serve(b, Listener{})), make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkConnection(b *testing.B) {
	for name, mode := range map[string]Mode{"plain": ModePlain, "hello": ModeHello} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, Config{Log: quiet, Loops: 1}, testkit.Serve(b, echo), Profile{})
			addr, hello := r.serve(b, Listener{Mode: mode}), clientHello(b, "api.example.com")
			p := make([]byte, len(hello))
			b.ReportAllocs()
			for b.Loop() {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Write(hello); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, p); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}
