package node

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// TestProbesWithoutHostAreAnswered: load balancers probe by HTTP/1.0 without a Host, as
// HAProxy's httpchk does; browsers always send one.
func TestProbesWithoutHostAreAnswered(t *testing.T) {
	n := startNode(t, "")
	for _, method := range []string{"GET", "HEAD"} {
		conn, err := net.Dial("tcp", n.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "%s /readyz HTTP/1.0\r\n\r\n", method)
		answer, _ := io.ReadAll(conn)
		conn.Close()
		if line, _, _ := strings.Cut(string(answer), "\r\n"); !strings.HasSuffix(line, " 200 OK") {
			t.Errorf("%s /readyz without a host: %s", method, line)
		}
	}
}
