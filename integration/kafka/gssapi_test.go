package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// rounds are the tokens of one GSSAPI login, by side.
type rounds struct{ client, broker [][]byte }

// randomRounds returns random tokens, as opaque as those of GSSAPI, in all
// sizes allowed before a login, including empty ones.
func randomRounds(seed uint64) rounds {
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	token := func(n int) []byte {
		b := make([]byte, n)
		_, _ = source.Read(b)
		return b
	}
	var r rounds
	for i, n := range []int{1, 0, 700, 3, 4096, 64<<10 - 100, 17} {
		r.client, r.broker = append(r.client, token(n)), append(r.broker, token((n*3+i)%(60<<10)))
	}
	return r
}

// gssapiBroker is a broker that supports only logins: it sends the given
// tokens, and forwards those that it receives to got.
type gssapiBroker struct {
	addr string
	send [][]byte
	got  chan []byte
}

func startGSSAPI(t *testing.T, send [][]byte) *gssapiBroker {
	t.Helper()
	b := &gssapiBroker{send: send, got: make(chan []byte, 1000)}
	b.addr = testkit.Serve(t, b.serve)
	return b
}

// serve answers the requests of one connection.
func (b *gssapiBroker) serve(conn net.Conn) {
	c := &rawConn{Conn: conn}
	for round := 0; ; {
		frame, err := c.readFrame() // a request starts differently, but also has a length
		if err != nil || len(frame) < 10 {
			return
		}
		key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
		req := kmsg.RequestForKey(key)
		if req == nil {
			return
		}
		req.SetVersion(version)
		body := frame[10+max(0, int(int16(binary.BigEndian.Uint16(frame[8:])))):]
		if req.IsFlexible() {
			body = body[1:] // no tagged fields
		}
		if err := req.ReadFrom(body); err != nil {
			return
		}
		resp := req.ResponseKind()
		switch req := req.(type) {
		case *kmsg.ApiVersionsRequest:
			for _, k := range [][3]int16{{17, 0, 1}, {18, 0, 3}, {36, 0, 2}, {60, 0, 0}} {
				one := kmsg.NewApiVersionsResponseApiKey()
				one.ApiKey, one.MinVersion, one.MaxVersion = k[0], k[1], k[2]
				resp.(*kmsg.ApiVersionsResponse).ApiKeys = append(resp.(*kmsg.ApiVersionsResponse).ApiKeys, one)
			}
		case *kmsg.SASLHandshakeRequest:
			resp.(*kmsg.SASLHandshakeResponse).SupportedMechanisms = []string{"GSSAPI"}
		case *kmsg.SASLAuthenticateRequest:
			b.got <- bytes.Clone(req.SASLAuthBytes)
			resp.(*kmsg.SASLAuthenticateResponse).SASLAuthBytes = b.send[round%len(b.send)]
			round++
		case *kmsg.DescribeClusterRequest:
			resp.(*kmsg.DescribeClusterResponse).ClusterID = fmt.Sprint("after ", round, " rounds")
		}
		out := append([]byte{0, 0, 0, 0}, frame[4:8]...)
		if resp.IsFlexible() && key != 18 {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// TestGSSAPITokensPassUnchanged logs in with random tokens: each must arrive
// unchanged, in both directions, with and without filters, and again at
// reauthentication. (No KDC is needed: tokens are opaque to Penstock.)
func TestGSSAPITokensPassUnchanged(t *testing.T) {
	tokens := randomRounds(1)
	b := startGSSAPI(t, tokens.broker)
	ports, err := process.FreePorts(2)
	must(t, err)
	startPenstock(t, fmt.Sprintf(`kind: PhysicalCluster
name: big
spec: {brokers: [{name: b0, address: %q}]}
---
kind: Listener
name: plain
spec: {address: "127.0.0.1:%d", protocol: kafka}
---
kind: Listener
name: tenant
spec: {address: "127.0.0.1:%d", protocol: kafka}
---
kind: VirtualCluster
name: plain
spec:
  physicalClusterRef: big
  brokers: [{name: v0, endpointRef: plain, physicalBrokerRef: b0}]
---
kind: VirtualCluster
name: tenant
spec:
  physicalClusterRef: big
  filters: [{type: MultiTenant, config: {tenantKey: opaque}}]
  brokers: [{name: v0, endpointRef: tenant, physicalBrokerRef: b0}]
`, b.addr, ports[0], ports[1]), ports...)
	for i, name := range []string{"direct", "plain", "tenant"} {
		g := target{name: name, bootstrap: []string{b.addr}}
		if i > 0 {
			g.bootstrap = []string{process.Loopback(ports[i-1])}
		}
		t.Run(name, func(t *testing.T) {
			waitAnswers(t, g)
			for version := int16(0); version <= 2; version++ {
				c, err := g.raw(t.Context(), g.bootstrap[0])
				must(t, err)
				b.login(t, c, tokens, version)
				b.login(t, c, tokens, version) // reauthentication, KIP-368
				resp, _, err := c.ask(request(60, 0))
				must(t, err)
				want := fmt.Sprint("after ", 2*len(tokens.client), " rounds")
				if got := resp.(*kmsg.DescribeClusterResponse).ClusterID; got != want {
					t.Errorf("the broker answers %q, want %q", got, want)
				}
				c.Close()
			}
		})
	}
}

// login exchanges the tokens and compares each.
func (b *gssapiBroker) login(t *testing.T, c *rawConn, tokens rounds, version int16) {
	t.Helper()
	hello := kmsg.NewPtrSASLHandshakeRequest()
	hello.Mechanism, hello.Version = "GSSAPI", 1
	if _, _, err := c.ask(hello); err != nil {
		t.Fatal(err)
	}
	for i, token := range tokens.client {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.SASLAuthBytes, req.Version = token, version
		resp, _, err := c.ask(req)
		if err != nil {
			t.Fatalf("v%d, token %d of %d bytes: %v", version, i, len(token), err)
		}
		if got := <-b.got; !bytes.Equal(got, token) {
			t.Errorf("v%d, token %d of %d bytes came to the broker as %d others", version, i, len(token), len(got))
		}
		if got := resp.(*kmsg.SASLAuthenticateResponse).SASLAuthBytes; !bytes.Equal(got, tokens.broker[i]) {
			t.Errorf("v%d, token %d of %d bytes came to the client as %d others", version, i, len(tokens.broker[i]), len(got))
		}
	}
}
