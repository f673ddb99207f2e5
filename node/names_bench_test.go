package node

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/routing/resource"
)

// BenchmarkServeOneNameMore measures adding, renaming and deleting one Host of a
// listener with 100,000 names, in Hosts or in the listener itself: the time until
// the request is answered, the time until a connection with the name has the
// endpoint's first byte, and the heap that a change with an open connection keeps.
func BenchmarkServeOneNameMore(b *testing.B) {
	const many = 100_000
	backend := testkit.Serve(b, greet)
	const format = "more-%07d.example.com"
	hello := helloFor(fmt.Sprintf(format, 0))
	for _, as := range []string{"hosts", "listener"} {
		b.Run(as, func(b *testing.B) {
			n, c := benchNode(b, namesAs(as, many, backend))
			at := n.data.Engine.Listeners()[0].Address
			took := map[string][]time.Duration{}
			put := func(what, resource, name string) net.Conn {
				doc := fmt.Appendf(nil, `{"kind":"Host","name":%q,"spec":{"listener":"edge","names":[%q],"service":"apps"}}`, resource, name)
				start := time.Now()
				if _, err := rpc.Call[api.ApplyResult](b.Context(), c, api.MethodApply,
					api.ApplyRequest{Documents: [][]byte{doc}}); err != nil {
					b.Fatal(err)
				}
				took[what+"-answered"] = append(took[what+"-answered"], time.Since(start))
				conn := greeted(b, at, bytes.Replace(hello, fmt.Appendf(nil, format, 0), []byte(name), 1))
				took[what+"-served"] = append(took[what+"-served"], time.Since(start))
				return conn
			}
			for i := 0; b.Loop(); i += 2 {
				put("add", "more", fmt.Sprintf(format, i)).Close()
				put("change", "more", fmt.Sprintf(format, i+1)).Close()
				start := time.Now()
				if _, err := rpc.Call[api.DeleteResult](b.Context(), c, api.MethodDelete,
					api.DeleteRequest{Kind: "Host", Name: "more"}); err != nil {
					b.Fatal(err)
				}
				took["delete-answered"] = append(took["delete-answered"], time.Since(start))
			}
			for what, all := range took {
				slices.Sort(all)
				for _, p := range []int{50, 99} {
					b.ReportMetric(float64(all[len(all)*p/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", what, p))
				}
			}
			const held = 10
			var conns [held]net.Conn
			before := nodetest.HeapInUse()
			for i := range conns {
				conns[i] = put("held", fmt.Sprint("held-", i), fmt.Sprintf(format, i))
			}
			b.ReportMetric(float64(nodetest.HeapInUse()-before)/held, "B/held")
			for _, conn := range conns {
				conn.Close()
			}
		})
	}
}

// benchNode starts a node and a client of its admin port. Both end with b.
func benchNode(b *testing.B, resources []resource.Object) (*Node, *rpc.Client) {
	b.Helper()
	n, err := Start(b.Context(), Config{
		Name: "n1", Dev: true, Cluster: "127.0.0.1:0", HTTP: "127.0.0.1:0", Loops: 1, Resources: resources,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Stop(b.Context()) }) // ends at once: the context has ended
	c, err := rpc.Dial(b.Context(), n.AdminAddr())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return n, c
}

// namesAs returns the resources of a listener with many names, in Hosts or in the
// listener itself.
func namesAs(as string, many int, endpoint string) []resource.Object {
	put := func(kind, name string, spec resource.Spec) resource.Object {
		return resource.Object{Key: resource.Key{Kind: kind, Name: name}, Spec: spec}
	}
	edge := &resource.Listener{Address: "127.0.0.1:0", Protocol: "tls"}
	all := []resource.Object{
		put("Listener", "edge", edge),
		put("Service", "apps", &resource.Service{Endpoints: []resource.Endpoint{{Address: endpoint}}}),
	}
	for i := range many {
		name := fmt.Sprintf("tenant-%d", i)
		names := []string{name + ".example.com"}
		if as == "hosts" {
			all = append(all, put("Host", name, &resource.Host{Listener: "edge", Names: names, Service: "apps"}))
		} else {
			edge.Hosts = append(edge.Hosts, resource.HostRule{Names: names, Service: "apps"})
		}
	}
	return all
}

// greet sends a byte and holds the connection until the client ends it.
func greet(conn net.Conn) {
	if _, err := conn.Write([]byte("!")); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// greeted sends a hello and waits for the endpoint's first byte.
func greeted(b *testing.B, at string, hello []byte) net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", at)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Write(hello); err != nil {
		b.Fatal(err)
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		b.Fatalf("a name that was just added is not served: %v", err)
	}
	return conn
}

// helloFor returns a ClientHello for a name.
func helloFor(name string) []byte {
	client, server := net.Pipe()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name}).Handshake() // gets no answer
	}()
	defer client.Close()
	head := make([]byte, 5)
	_, _ = io.ReadFull(server, head)
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, _ = io.ReadFull(server, body)
	return append(head, body...)
}
