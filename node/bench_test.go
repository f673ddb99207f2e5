package node

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

// manyNames returns the resources of a listener with that many names.
func manyNames(n int, backend string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kind: Service\nname: apps\nspec: {endpoints: [{address: %q}]}\n---\n", backend)
	b.WriteString("kind: Listener\nname: edge\nspec:\n  address: 127.0.0.1:0\n  protocol: tls\n  hosts:\n  - service: apps\n    names:\n")
	for i := range n {
		fmt.Fprintf(&b, "    - t%d.example.com\n", i)
	}
	return b.String()
}

func hostResource(i int) string {
	return fmt.Sprintf("kind: Host\nname: h%d\nspec: {listener: edge, names: [added%d.example.com], service: apps}\n", i, i)
}

// TestAppliedNameIsServed: a Host is in force once apply has answered,
// until delete has answered.
func TestAppliedNameIsServed(t *testing.T) {
	ca := certs.NewCA("test CA")
	pair := ca.Issue("added1.example.com").TLS
	b := nodetest.ServeBackend(t, "b", &tls.Config{Certificates: []tls.Certificate{pair}})
	n := startNode(t, manyNames(10, b.At()))
	config := &tls.Config{RootCAs: ca.Pool, ServerName: "added1.example.com"}
	for range 3 {
		if _, _, err := nodetest.DialTLS(t, n.at(t, "edge"), config); err == nil {
			t.Fatal("a name that nobody has was let in")
		}
		n.mustApply(t, hostResource(1))
		if _, name, err := nodetest.DialTLS(t, n.at(t, "edge"), config); err != nil || name != "b" {
			t.Fatalf("came to %q, %v", name, err)
		}
		n.mustDelete(t, "hosts", "h1")
	}
}

// BenchmarkAddOneName measures the time from the apply request to its answer,
// after which the name is served.
func BenchmarkAddOneName(b *testing.B) {
	for _, names := range []int{10, 100_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			_, c := benchNode(b, nodetest.Objects(b, manyNames(names, "127.0.0.1:1")))
			for i := 0; b.Loop(); i++ {
				doc := fmt.Appendf(nil, `{"kind":"Host","name":"h%d",`+
					`"spec":{"listener":"edge","names":["added%d.example.com"],"service":"apps"}}`, i, i)
				if _, err := rpc.Call[api.ApplyResult](b.Context(), c, api.MethodApply,
					api.ApplyRequest{Documents: [][]byte{doc}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
