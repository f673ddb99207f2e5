package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
)

// xor is a sealer with a key of one byte, which makes its use visible.
type xor struct{ key atomic.Uint32 }

func newXOR(key byte) *xor {
	x := new(xor)
	x.key.Store(uint32(key))
	return x
}

func (x *xor) turn(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = b[i] ^ byte(x.key.Load())
	}
	return out
}

func (x *xor) Seal(aad, plain []byte) ([]byte, error) {
	return x.turn(fmt.Appendf(nil, "%s|%s", aad, plain)), nil
}

func (x *xor) Open(aad, sealed []byte) ([]byte, error) {
	plain, ok := bytes.CutPrefix(x.turn(sealed), append(aad, '|'))
	if !ok {
		return nil, errors.New("does not open")
	}
	return plain, nil
}

func certificate(t testing.TB, name, pair string) resource.Object {
	t.Helper()
	read := func(file string) string {
		data, err := os.ReadFile("../../routing/resource/codec/testdata/pem/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	return resource.Object{
		Key:  resource.Key{Kind: "Certificate", Name: name},
		Spec: &resource.Certificate{Cert: read(pair + ".crt"), Key: resource.Secret(read(pair + ".key"))},
	}
}

func newSealed(t *testing.T, s Store, sealer Sealer) *Catalog {
	t.Helper()
	c := New(Config{Store: s, Kinds: resource.RoutingKinds(), Sealer: sealer})
	c.retryInterval = time.Millisecond
	startFollow(t, c, nil)
	return c
}

const terminating = "kind: Listener\nname: edge\n" +
	"spec: {address: \":9443\", protocol: tls, tls: {mode: terminate, certificateRefs: [a]}, service: apps}\n---\n" +
	"kind: Service\nname: apps\nspec: {}\n"

// TestSecretsAreSealedInTheStore: neither stored values nor displayed ones
// contain the key; every node with the cluster's keys has it.
func TestSecretsAreSealedInTheStore(t *testing.T) {
	memory := store.NewMemory(store.Limits{})
	c := newSealed(t, memory, newXOR(7))
	one, two := certificate(t, "a", "a"), certificate(t, "a", "b")
	for _, o := range []resource.Object{one, two} {
		if _, err := c.Apply(t.Context(), Change{Objects: append(objects(t, terminating), o)}); err != nil {
			t.Fatal(err)
		}
	}
	key := store.Key{Kind: "Certificate", Name: "a"}
	for _, r := range memory.Snapshot().History(key) {
		if bytes.Contains(r.Value, []byte("PRIVATE")) || bytes.Contains(r.Value, []byte("CERTIFICATE")) {
			t.Errorf("version %d is stored in the clear: %.40s", r.Version, r.Value)
		}
	}
	if e, _ := memory.Snapshot().Get(store.Key{Kind: "Service", Name: "apps"}); !strings.HasPrefix(string(e.Value), "{") {
		t.Errorf("a resource without secrets is stored as %.40q", e.Value)
	}
	other := newSealed(t, memory, newXOR(7))
	checkAgrees(t, other, memory)
	if set, _ := other.InForce(); set.Len() != 3 {
		t.Errorf("%d objects are in force elsewhere", set.Len())
	}
	history, err := other.History("certificates", "a")
	if err != nil || len(history.Revisions) != 2 || !strings.Contains(history.Revisions[0].YAML, resource.HiddenSecret) ||
		strings.Contains(fmt.Sprint(history), "PRIVATE") {
		t.Errorf("history: %+v, %v", history, err)
	}
	if _, err := other.Rollback(t.Context(), Target{Kind: "certificate", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Await(t.Context(), memory.Snapshot().Index()); err != nil {
		t.Fatal(err)
	}
	set, _ := c.InForce()
	if got, _ := set.Get(resource.Key(key)); !resource.Equal(got, one) {
		t.Error("the rollback did not bring the first certificate with its key back")
	}
}

// TestUndecryptableResourceKeepsItsPreviousVersion: an unreadable resource
// keeps its version in force, is reported, can be deleted, and applies once the
// key is there.
func TestUndecryptableResourceKeepsItsPreviousVersion(t *testing.T) {
	memory := store.NewMemory(store.Limits{})
	keys := newXOR(7)
	c, behind := newSealed(t, memory, newXOR(7)), newSealed(t, memory, keys)
	first, second := certificate(t, "a", "a"), certificate(t, "a", "b")
	apply := func(c *Catalog, objects ...resource.Object) {
		t.Helper()
		if _, err := c.Apply(t.Context(), Change{Objects: objects}); err != nil {
			t.Fatal(err)
		}
		if err := behind.Await(t.Context(), memory.Snapshot().Index()); err != nil {
			t.Fatal(err)
		}
	}
	apply(c, append(objects(t, terminating), first)...)
	keys.key.Store(9)
	apply(c, second, certificate(t, "new", "a"))
	set, _ := behind.InForce()
	if got, _ := set.Get(first.Key); !resource.Equal(got, first) || set.Len() != 3 {
		t.Errorf("%d objects are in force, the certificate is %v", set.Len(), resource.Equal(got, first))
	}
	faults := behind.Unreadable()
	if len(faults) != 2 || faults[0].Key != "Certificate/a" || !strings.Contains(faults[0].Message, "version 2") {
		t.Errorf("reported: %+v", faults)
	}
	got, err := behind.Get(&api.GetRequest{Kind: "certificate", Name: "a"})
	if err != nil || strings.Contains(string(got.Documents[0].Data), `"version"`) {
		t.Errorf("it is shown with a version that it is not: %s, %v", got.Documents[0].Data, err)
	}
	// The node leads: it applies other changes, and those that repair it.
	apply(behind, objects(t, "kind: Service\nname: more\nspec: {}")...)
	if _, err := behind.Delete(t.Context(), Target{Kind: "certificate", Name: "new"}); err != nil {
		t.Error(err)
	}
	if r, err := behind.Apply(t.Context(), Change{Objects: []resource.Object{first}, DryRun: true}); err != nil ||
		r.Changes[0].Action != api.Configured {
		t.Errorf("configuring an unreadable certificate: %+v, %v", r, err)
	}
	keys.key.Store(7)
	if err := behind.until(t.Context(), func() bool { return len(behind.unread) == 0 }); err != nil {
		t.Fatal(err)
	}
	checkAgrees(t, behind, memory)
	apply(behind, objects(t, "kind: Service\nname: last\nspec: {}")...)
	checkAgrees(t, c, memory)
	checkAgrees(t, behind, memory)
}

func TestSealedValueOpensOnlyForItsResource(t *testing.T) {
	memory := store.NewMemory(store.Limits{})
	c := newSealed(t, memory, newXOR(7))
	if _, err := c.Apply(t.Context(), Change{Objects: []resource.Object{certificate(t, "a", "a")}}); err != nil {
		t.Fatal(err)
	}
	e, _ := memory.Snapshot().Get(store.Key{Kind: "Certificate", Name: "a"})
	if _, err := memory.Commit(t.Context(), &store.Batch{
		Ops: []store.Op{{Key: store.Key{Kind: "Certificate", Name: "b"}, Value: e.Value}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Await(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if faults := c.Unreadable(); len(faults) != 1 || faults[0].Key != "Certificate/b" {
		t.Errorf("%+v", faults)
	}
	plain := newSealed(t, memory, nil)
	if err := plain.Await(t.Context(), 2); err != nil || len(plain.Unreadable()) != 2 {
		t.Errorf("without keys: %+v, %v", plain.Unreadable(), err)
	}
}
