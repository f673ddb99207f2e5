package dataplane

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
	"penstock/routing/resource"
)

// oneService has a listener "front" with a service "apps".
func oneService(b *nodetest.Backend) string {
	return fmt.Sprintf(`---
kind: Service
name: apps
spec: {endpoints: [{address: %q}]}
---
kind: Listener
name: front
spec: {address: "127.0.0.1:0", service: apps}
`, b.At())
}

const denyLoopback = `---
kind: TrafficPermission
name: no-loopback
spec: {from: [{networks: [127.0.0.0/8]}], to: [{services: [apps]}], action: deny, onChange: %s, window: 1s}
`

// A denied connection ends before it reaches an endpoint, and is counted.
func TestDeniedConnectionsReachNoEndpoint(t *testing.T) {
	n := start(t, oneService(nodetest.NewBackend(t, "a"))+fmt.Sprintf(denyLoopback, "keep"))
	if c, err := net.Dial("tcp", n.at(t, "front")); err == nil { // the reset may come before Dial returns
		defer c.Close()
		if b, err := io.ReadAll(c); len(b) > 0 {
			t.Errorf("got %q, %v", b, err)
		}
	}
	testkit.WaitFor(t, "the denial to be counted", func() bool {
		return n.metric(t, `penstock_permission_denials_total{action="deny",permission="no-loopback"}`) == "1" &&
			n.metric(t, `penstock_connections_total{listener="front",result="permission_denied",service="apps"}`) == "1"
	})
}

// A change closes established connections as the permission says.
func TestChangesOfPermissionsCloseConnections(t *testing.T) {
	for _, onChange := range []string{"keep", "drain", "close"} {
		t.Run(onChange, func(t *testing.T) {
			n := start(t, oneService(nodetest.NewBackend(t, "a")))
			c, err := net.Dial("tcp", n.at(t, "front"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			testkit.WaitFor(t, "the connection to be established", func() bool {
				return n.metric(t, `penstock_connections{listener="front",service="apps"}`) == "1"
			})
			n.mustApply(t, fmt.Sprintf(denyLoopback, onChange))
			if onChange == "keep" {
				if got := n.metric(t, `penstock_connections{listener="front",service="apps"}`); got != "1" {
					t.Errorf("%s connections", got)
				}
				return
			}
			testkit.WaitFor(t, "the connection to be closed", func() bool {
				return n.metric(t, `penstock_connections_total{listener="front",result="permission_revoked",service="apps"}`) == "1"
			})
		})
	}
}

// A listener that gives its clients other tags denies established connections as a
// change of the permissions does.
func TestChangesOfTagsCloseConnections(t *testing.T) {
	const permission = `---
kind: TrafficPermission
name: no-guests
spec: {from: [{tags: {group: guests}}], action: deny, onChange: close}
`
	for name, tags := range map[string]string{
		"of the listener": "tags: {group: %s}", "of the client's network": "sources: [{from: [127.0.0.0/8], tags: {group: %s}}]",
	} {
		t.Run(name, func(t *testing.T) {
			listener := func(group string) string {
				return "---\nkind: Listener\nname: front\nspec: {address: \"127.0.0.1:0\", service: apps, " + fmt.Sprintf(tags, group) + "}\n"
			}
			b := nodetest.NewBackend(t, "a")
			n := start(t, oneService(b)+permission)
			n.mustApply(t, listener("staff"))
			c, err := net.Dial("tcp", n.at(t, "front"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			testkit.WaitFor(t, "the connection to be established", func() bool {
				return n.metric(t, `penstock_connections{listener="front",service="apps"}`) == "1"
			})
			guests := nodetest.Objects(t, listener("guests"))
			table := n.Router.Table()
			whatIf, err := table.WhatIf([]resource.Change{resource.Put(guests[0])}, n.Resolver, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if count, err := n.CountRevoked(t.Context(), table, whatIf.After(), whatIf.ChangedListeners()); err != nil || count != 1 {
				t.Errorf("the change would close %d connections, %v", count, err)
			}
			n.mustApply(t, listener("guests"))
			testkit.WaitFor(t, "the connection to be closed", func() bool {
				return n.metric(t, `penstock_connections_total{listener="front",result="permission_revoked",service="apps"}`) == "1"
			})
		})
	}
}

// What a certificate claims without a single valid SPIFFE ID is undecided.
func TestSeveralIdentitiesAreUndecided(t *testing.T) {
	for _, c := range []struct {
		uris string
		want bool
	}{
		{"spiffe://corp/a", false},
		{"spiffe://corp/a spiffe://corp/b", true},
		{"spiffe://corp/a?x=1", true},
		{"spiffe://corp/a/../b", true},
		{"spiffe://corp/" + strings.Repeat("a", 300), true},
		{"https://corp/a", false},
		{"", false},
	} {
		leaf := &x509.Certificate{}
		for _, s := range strings.Fields(c.uris) {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			leaf.URIs = append(leaf.URIs, u)
		}
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
		if got := undecided(state, identity(state)); got != c.want {
			t.Errorf("%q: undecided %v", c.uris, got)
		}
	}
}
