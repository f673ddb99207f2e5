package netio

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/proxyproto"
)

func meshHeader(t testing.TB, h proxyproto.Header) string {
	t.Helper()
	b, err := proxyproto.AppendMesh(nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func ofClient(address string) proxyproto.Header {
	return proxyproto.Header{
		Source: mustAddr(address), Destination: mustAddr("198.51.100.1:443"), Authority: "api.example.com", ALPN: "h2",
		UniqueID: []byte("0123456789abcdef"), Mesh: &proxyproto.Mesh{Service: "shop", Tags: map[string]string{"a": "b"}},
	}
}

// The header is read from any cut of the records, the bytes behind it reach the
// endpoint, and what it says describes the connection from there on.
func TestMeshHeaderInsideTLS(t *testing.T) {
	for _, cut := range []int{0, 1, 20} {
		r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
		routed := make(chan *proxyproto.Mesh, 1)
		route := r.route
		r.route = func(c *Conn) (Plan, Reason) {
			d := c.Describe()
			if c.ServerName() != "api.example.com" || c.Hello() != nil || string(c.UniqueID()) != "0123456789abcdef" ||
				d.ALPN != "h2" || d.SSL != nil || d.Destination != mustAddr("198.51.100.1:443") || string(d.UniqueID) != string(c.UniqueID()) {
				t.Errorf("routed as %+v", d)
			}
			routed <- c.Mesh()
			return route(c)
		}
		spec, config := terminating(t, "node.example.com")
		spec.MeshHeader = true
		c := tls.Client(dial(t, r.serve(t, spec)), config)
		header := meshHeader(t, ofClient("192.0.2.7:1234"))
		if cut > 0 {
			mustWrite(t, c, header[:cut])
			header = header[cut:]
		}
		mustWrite(t, c, header+"first")
		mustRead(t, c, "first")
		if m := <-routed; m.Service != "shop" || m.Tags["a"] != "b" {
			t.Errorf("routed by %+v", m)
		}
		roundTrip(t, c, "second")
		c.CloseWrite()
		mustEnd(t, c, "")
		if e := r.wantEnd(t, ClientFIN); e.client != mustAddr("192.0.2.7:1234") || e.in != 11 {
			t.Errorf("ending %+v", e)
		}
		testkit.WaitFor(t, "the memory to be given back", func() bool { return r.Stats().BudgetUsed == 0 })
	}
}

// A client without an address has none here either, and not that of the peer.
func TestMeshHeaderWithoutAnAddress(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	spec, config := terminating(t, "node.example.com")
	spec.MeshHeader, spec.MaxPerSource = true, 1
	c := tls.Client(dial(t, r.serve(t, spec)), config)
	mustWrite(t, c, meshHeader(t, proxyproto.Header{Mesh: &proxyproto.Mesh{Service: "shop"}}))
	roundTrip(t, c, "hello")
	c.CloseWrite()
	mustEnd(t, c, "")
	if e := r.wantEnd(t, ClientFIN); e.client.IsValid() {
		t.Errorf("the client is %v", e.client)
	}
}

func TestMeshHeadersThatFail(t *testing.T) {
	whole := meshHeader(t, ofClient("192.0.2.7:1234"))
	ordinary := string(proxyproto.Append(nil, proxyproto.V2, proxyproto.Header{
		Source: mustAddr("192.0.2.7:1"), Destination: mustAddr("198.51.100.1:443"),
	}))
	for name, test := range map[string]struct {
		sent string
		end  bool
		why  Reason
	}{
		"none":     {"GET / HTTP/1.1\r\n\r\n", false, MeshBadHeader},
		"ordinary": {ordinary, false, MeshBadHeader},
		"cut":      {whole[:30], false, MeshHeaderTimeout},
		"nothing":  {"", false, MeshHeaderTimeout},
		"gone":     {whole[:30], true, ClientGone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			routed := r.watch()
			spec, config := terminating(t, "node.example.com")
			spec.MeshHeader, spec.ProxyTimeout = true, testkit.Patience
			if test.why == MeshHeaderTimeout {
				spec.ProxyTimeout = time.Nanosecond // 3s
			}
			c := tls.Client(dial(t, r.serve(t, spec)), config)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, test.sent); err != nil && test.why != MeshHeaderTimeout { // it may be too late
				t.Fatal(err)
			}
			if test.end {
				c.Close()
			}
			e := r.wantEnd(t, test.why)
			if (e.failure != nil) != (test.why == MeshBadHeader) || len(routed) != 0 {
				t.Errorf("ending %+v", e)
			}
			testkit.WaitFor(t, "the memory to be given back", func() bool { return r.Stats().BudgetUsed == 0 })
		})
	}
}

// The limit counts the clients, not the node that they come through.
func TestMeshClientsHaveTheirOwnLimit(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	spec, config := terminating(t, "node.example.com")
	spec.MeshHeader, spec.MaxPerSource = true, 1
	address := r.serve(t, spec)
	for _, from := range []string{"192.0.2.7:1", "192.0.2.8:1"} {
		c := tls.Client(dial(t, address), config)
		mustWrite(t, c, meshHeader(t, ofClient(from)))
		roundTrip(t, c, "hello")
	}
	c := tls.Client(dial(t, address), config)
	mustWrite(t, c, meshHeader(t, ofClient("192.0.2.7:2")))
	if e := r.wantEnd(t, LimitPerSource); e.client != mustAddr("192.0.2.7:2") {
		t.Errorf("ending %+v", e)
	}
}

// A preface goes before the client's bytes; where there can be none, nothing goes.
func TestPreface(t *testing.T) {
	preface := func(_ *Conn, dst []byte) ([]byte, error) { return append(dst, "before "...), nil }
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{Preface: preface})
	c := dial(t, r.serve(t, Listener{}))
	mustWrite(t, c, "after")
	mustRead(t, c, "before after")
	c.CloseWrite()
	mustEnd(t, c, "")
	if e := r.wantEnd(t, ClientFIN); e.in != 5 {
		t.Errorf("ending %+v", e)
	}
	why, got := errors.New("too long"), make(chan int64, 1)
	r = newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c)
		got <- n
	}), Profile{Preface: func(_ *Conn, dst []byte) ([]byte, error) { return append(dst, "half"...), why }})
	if c, err := net.Dial("tcp", r.serve(t, Listener{})); err == nil { // it may be reset before that returns
		defer c.Close()
	}
	if e := r.wantEnd(t, MeshHeaderTooLong); !errors.Is(e.failure, why) {
		t.Errorf("ending %+v", e)
	}
	if n := <-got; n != 0 {
		t.Errorf("the endpoint got %d bytes", n)
	}
}
