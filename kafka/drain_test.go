package kafka

import (
	"crypto/tls"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/kafka/model"
	"penstock/netio"
)

// twoBrokers is a virtual cluster of two brokers at the listeners one and two.
func twoBrokers(a, b, names, drain string) string {
	return fmt.Sprintf(`kind: PhysicalCluster
name: big
spec: {brokers: [{name: a, address: %q}, {name: b, address: %q}]}
---
kind: PhysicalCluster
name: other
spec: {brokers: [{name: a, address: %[1]q}, {name: b, address: %[2]q}]}
---
kind: Listener
name: one
spec: {address: "127.0.0.1:0", protocol: kafka}
---
kind: Listener
name: two
spec: {address: "127.0.0.1:0", protocol: kafka}
---
kind: VirtualCluster
name: t1
spec:
%[3]s  - {name: second, endpointRef: two, physicalBrokerRef: b, advertise: "x:2"}
  drain: %[4]s
`, a, b, names, drain)
}

const (
	both    = "  physicalClusterRef: big\n  brokers:\n  - {name: first, endpointRef: one, physicalBrokerRef: a, advertise: \"x:1\"}\n"
	renamed = "  physicalClusterRef: big\n  brokers:\n  - {name: anew, endpointRef: one, physicalBrokerRef: a, advertise: \"x:1\"}\n"
	moved   = "  physicalClusterRef: other\n  brokers:\n  - {name: first, endpointRef: one, physicalBrokerRef: a, advertise: \"x:1\"}\n"
	atOnce  = "{window: 0s, transactionDeadline: 1m}"
)

// versions asks what is asked first.
func (c *client) versions() error {
	c.t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "test", "1"
	c.send(req)
	_, err := c.receive(req)
	return err
}

// Removing a broker drains its connections, and no others; moving a virtual
// cluster to another physical one, or removing it, drains all.
func TestConnectionsOfRemovedBrokersAreDrained(t *testing.T) {
	k := fake(t, kfake.NumBrokers(2))
	at := k.ListenAddrs()
	for name, test := range map[string]struct {
		change  func(s *stage)
		second  bool // the second broker's connection stays
		nothing bool // both do
	}{
		"another broker's name": {func(s *stage) { s.apply(twoBrokers(at[0], at[1], renamed, atOnce)) }, true, false},
		"another cluster":       {func(s *stage) { s.apply(twoBrokers(at[0], at[1], moved, atOnce)) }, false, false},
		"none":                  {func(s *stage) { s.remove("VirtualCluster", "t1") }, false, false},
		"other settings":        {func(s *stage) { s.apply(twoBrokers(at[0], at[1], both, "{window: 1s}")) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, Config{})
			s.apply(twoBrokers(at[0], at[1], both, atOnce))
			listeners := s.listen(nil, "one", "two")
			first, second := dial(t, listeners["one"]), dial(t, listeners["two"])
			for _, c := range []*client{first, second} {
				if err := c.versions(); err != nil {
					t.Fatal(err)
				}
			}
			test.change(s)
			if !test.nothing && !first.closed() {
				t.Error("the connection was reset, want a clean end")
			}
			if test.second {
				for range 2 {
					if err := second.versions(); err != nil {
						t.Errorf("the other broker's connection: %v", err)
					}
				}
			} else if !second.closed() {
				t.Error("the other broker's connection was reset, want an end in order")
			}
			if test.nothing {
				if err := first.versions(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A request in flight is answered before its connection ends.
func TestDrainedConnectionGetsItsResponseFirst(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	s.apply(oneBroker(k.ListenAddrs()[0], "  drain: "+atOnce))
	c := dial(t, s.listen(nil, "one")["one"])
	if err := c.versions(); err != nil {
		t.Fatal(err)
	}
	broker := hold(k)
	question := metadata("none")
	c.send(question)
	<-broker.held
	v := s.virtual("t1")
	s.remove("VirtualCluster", "t1")
	if over(v) {
		t.Error("the version was released while a request needs its filters")
	}
	close(broker.free)
	if _, err := c.receive(question); err != nil {
		t.Fatal(err)
	}
	if !c.closed() {
		t.Error("the connection was reset, want a clean end")
	}
	testkit.WaitFor(t, "the version is released", func() bool { return over(v) })
}

// Connections end one after the other, evenly over the window of their cluster.
func TestDrainSpreadsOverTheWindow(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	const window, n = 600 * time.Millisecond, 4
	s.apply(oneBroker(k.ListenAddrs()[0], "  drain: {window: "+window.String()+"}"))
	address := s.listen(nil, "one")["one"]
	for range n {
		if err := dial(t, address).versions(); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	s.remove("VirtualCluster", "t1")
	for i := range n {
		testkit.WaitFor(t, fmt.Sprintf("%d have left", i+1), func() bool { return s.ends(netio.Drained) > i })
		if took, due := time.Since(begun), window*time.Duration(i)/n; took < due {
			t.Errorf("connection %d left after %v, due %v", i, took, due)
		}
	}
}

// A client must show the certificate that the virtual cluster asks for by the
// settings that lead it, whatever it was asked for in its handshake.
func TestUnacceptedClientIsNotRouted(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	asked := make(chan string, 10)
	var shut atomic.Bool
	s := newStage(t, Config{AcceptClient: func(v *model.Virtual, state *tls.ConnectionState) bool {
		if !state.HandshakeComplete {
			t.Error("AcceptClient was called before the end of the handshake")
		}
		asked <- v.Name()
		return !shut.Load()
	}})
	// The engine hears of the certificate; to the proxy TLS is the listener's.
	s.apply(oneBroker(k.ListenAddrs()[0], ""))
	config := selfSigned()
	address := s.listen(config, "one")["one"]
	secured := func() (*tls.Conn, error) {
		raw := dial(t, address)
		c := tls.Client(raw, &tls.Config{RootCAs: config.RootCAs, ServerName: "localhost"})
		if err := c.Handshake(); err != nil {
			return nil, err
		}
		return c, nil
	}
	c, err := secured()
	if err != nil {
		t.Fatal(err)
	}
	if err := (&client{Conn: c, t: t}).versions(); err != nil {
		t.Fatalf("an accepted client: %v", err)
	}
	testkit.WaitFor(t, "AcceptClient to be called", func() bool { return len(asked) == 1 })
	if got := <-asked; got != "t1" {
		t.Errorf("AcceptClient was called for %s", got)
	}
	shut.Store(true)
	if c, err = secured(); err == nil {
		if err := (&client{Conn: c, t: t}).versions(); err == nil {
			t.Error("a client that is not accepted got a response")
		}
	}
	testkit.WaitFor(t, "the connection to end with handshake_failed", func() bool { return s.ends(netio.HandshakeFailed) == 1 })
}

// selfSigned has a certificate for localhost, and trusts it.
func selfSigned() *tls.Config {
	own := certs.SelfSigned("localhost")
	return &tls.Config{Certificates: []tls.Certificate{own.TLS}, RootCAs: own.Pool(), MinVersion: tls.VersionTLS12}
}

// A drain does not see a connection that is being made when its cluster is
// removed: that one ends once it is connected.
func TestConnectingToARemovedClusterEnds(t *testing.T) {
	config := selfSigned()
	ln := testkit.Listen(t)
	s := newStage(t, Config{ClientTLS: func(string, string, *model.PhysicalTLS) *tls.Config {
		return &tls.Config{RootCAs: config.RootCAs, ServerName: "localhost"}
	}})
	s.apply(strings.Replace(oneBroker(ln.Addr().String(), "  drain: "+atOnce), "}]}", "}], tls: {}}", 1))
	c := dial(t, s.listen(nil, "one")["one"])
	broker, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	s.remove("VirtualCluster", "t1")
	// Only now does the broker take the connection.
	if err := tls.Server(broker, config).Handshake(); err != nil {
		t.Fatal(err)
	}
	if !c.closed() {
		t.Error("the connection was reset, want a clean end")
	}
	testkit.WaitFor(t, "the connection to end", func() bool { return s.ends(netio.Drained) == 1 })
}
