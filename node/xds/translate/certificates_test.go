package translate_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"penstock/node/xds/snapshot"
	"penstock/routing/resource"
)

const certificateWorld = `
kind: Service
name: web
spec: {discovery: {certificates: [client], upstreams: [{service: shop}]}}
---
kind: Service
name: batch
spec: {discovery: {upstreams: [{service: shop}]}}
---
kind: Service
name: shop
spec: {protocol: http, tls: {serverName: shop.example.com, certificateRef: client}, endpoints: [{address: "10.0.0.1:1"}]}
`

// A cluster presents the Service's client certificate only for proxies that may
// have it, and only they get its key.
func TestOnlyWhoMayHaveTheKeyPresentsTheCertificate(t *testing.T) {
	w := newWorld(t)
	w.certs["client"] = &resource.Certificate{Cert: "chain", Key: "the-key"}
	s := w.apply(certificateWorld)
	web, batch := s.View("web"), s.View("batch")
	if r := web.Get(snapshot.Secret, "client"); r == nil || !bytes.Contains(r.Any, []byte("the-key")) {
		t.Errorf("web gets %v", r)
	}
	if r := batch.Get(snapshot.Secret, "client"); r != nil {
		t.Error("batch gets the certificate")
	}
	presents := func(v snapshot.View) bool {
		return bytes.Contains(v.Get(snapshot.Cluster, "shop").Any, []byte("client"))
	}
	if !presents(web) || presents(batch) {
		t.Errorf("web presents the certificate: %v, batch: %v", presents(web), presents(batch))
	}
}

// A new certificate of the same name is a change of the secret alone; one that is
// gone, or that the node cannot open, is absent.
func TestNewCertificateChangesTheSecretAlone(t *testing.T) {
	w := newWorld(t)
	w.certs["client"] = &resource.Certificate{Cert: "chain", Key: "the-key"}
	before := w.apply(certificateWorld)
	if names(before.View("web").All(snapshot.Secret)) != "client" {
		t.Fatal("no secret")
	}
	changed := func(s snapshot.Snapshot) (all []string) {
		for kind := range snapshot.Types {
			list, _ := s.Changed(before, kind)
			all = append(all, list...)
		}
		return all
	}
	w.certs["client"] = &resource.Certificate{Cert: "chain 2", Key: "the-key"}
	if got := changed(w.update()); !slices.Equal(got, []string{"client"}) {
		t.Errorf("changed are %q", got)
	}
	delete(w.certs, "client")
	if got := changed(w.update()); !slices.Equal(got, []string{"client"}) {
		t.Errorf("changed are %q", got)
	}
	if r := w.snap.View("web").Get(snapshot.Secret, "client"); r != nil {
		t.Error("the secret is still there")
	}
}

// Many streams may ask snapshots while the next ones are built.
func TestSnapshotsMayBeAskedWhileOthersAreBuilt(t *testing.T) {
	w := newWorld(t)
	w.apply(certificateWorld)
	var readers sync.WaitGroup
	for i := range 20 {
		before, after := w.snap, w.apply(fmt.Sprintf(`
kind: MeshTCPRoute
name: r
spec:
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules: [{default: {backendRefs: [{kind: MeshService, name: shop, weight: %d}]}}]
`, i+1))
		for _, name := range []string{"web", "batch"} {
			readers.Go(func() {
				for kind := range snapshot.Types {
					before.View(name).All(kind)
					after.Changed(before, kind)
					for _, r := range after.View(name).All(kind) {
						after.View(name).Get(kind, r.Name)
					}
				}
			})
		}
	}
	readers.Wait()
}
