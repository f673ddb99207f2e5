package translate_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/node/xds/snapshot"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// serviceNames are those of random services; the last never exists.
var serviceNames = []string{"a", "b", "c", "d", "missing"}

// question is what was asked of a snapshot.
type question struct {
	view string
	kind snapshot.Type
	name string
}

// model is the resources that a random world has.
type model struct {
	objects map[resource.Key]resource.Object
	found   []provider.Endpoint
	certs   map[string]*resource.Certificate
}

// However the resources came about, the same ones give the same versions, all of
// them valid; nobody sees more than they may; and Changed names what differs of
// what was asked before.
func TestAnyChangesGiveWhatTheResourcesSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		m := &model{objects: map[resource.Key]resource.Object{}, certs: w.certs}
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			before := w.snap
			asked := askSome(rt, before)
			for range rapid.IntRange(1, 3).Draw(rt, "updates") {
				m.change(rt, w)
			}
			checkChanged(rt, before, w.snap, asked)
			m.checkViews(rt, t, w.snap)
		}
		fresh := newWorld(t)
		maps.Copy(fresh.certs, w.certs)
		fresh.found(filesRef, m.found...)
		for _, k := range rapid.Permutation(slices.SortedFunc(maps.Keys(m.objects), resource.Key.Compare)).Draw(rt, "order") {
			fresh.change(resource.Put(m.objects[k]))
		}
		compareSnapshots(rt, w.snap, fresh.snap)
	})
}

var filesRef = provider.Ref{Provider: "files", Query: provider.Query{Service: "any"}}

// change makes one random change.
func (m *model) change(t *rapid.T, w *world) {
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		m.found = nil
		for i := range rapid.IntRange(0, 3).Draw(t, "found") {
			m.found = append(m.found, provider.Endpoint{
				Address: fmt.Sprintf("10.9.0.%d:1", i), Weight: rapid.IntRange(0, 2).Draw(t, "weight"),
				Tags: anyTags(t), State: rapid.SampledFrom([]provider.State{provider.Ready, provider.NotReady, provider.Terminating}).Draw(t, "state"),
			})
		}
		w.found(filesRef, m.found...)
		return
	case 1:
		name := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "certificate")
		if m.certs[name] = nil; rapid.Bool().Draw(t, "exists") {
			version := rapid.IntRange(0, 1).Draw(t, "version")
			m.certs[name] = &resource.Certificate{Cert: fmt.Sprintf("chain-%s-%d", name, version), Key: resource.Secret("key-" + name)}
		}
		w.update()
		return
	}
	o := anyObject(t)
	if _, exists := m.objects[o.Key]; exists && rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
		delete(m.objects, o.Key)
		w.change(resource.Delete(o.Key))
		return
	}
	m.objects[o.Key] = o
	w.change(resource.Put(o))
}

func anyTags(t *rapid.T) map[string]string {
	return rapid.SampledFrom([]map[string]string{nil, {"v": "1"}, {"v": "2", "zone": "z"}}).Draw(t, "tags")
}

func anyObject(t *rapid.T) resource.Object {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return resource.Object{Key: resource.Key{Kind: "MeshTCPRoute", Name: rapid.SampledFrom([]string{"r", "s"}).Draw(t, "route")}, Spec: &resource.MeshTCPRoute{
			TargetRef: anySource(t),
			To: []resource.RouteTo{{TargetRef: anyService(t), Rules: []resource.RouteRule{{
				Default: resource.RouteDefault{BackendRefs: anyBackends(t)},
			}}}},
		}}
	case 1:
		prefix := resource.HTTPRule{
			Matches: []resource.HTTPMatch{{Path: &resource.PathMatch{Type: "PathPrefix", Value: "/a"}}},
			Default: resource.HTTPDefault{BackendRefs: anyBackends(t)},
		}
		rest := resource.HTTPRule{Matches: []resource.HTTPMatch{{}}, Default: resource.HTTPDefault{BackendRefs: anyBackends(t)}}
		return resource.Object{Key: resource.Key{Kind: "MeshHTTPRoute", Name: "h"}, Spec: &resource.MeshHTTPRoute{
			TargetRef: anySource(t),
			To:        []resource.HTTPRouteTo{{TargetRef: anyService(t), Rules: []resource.HTTPRule{rest, prefix}}},
		}}
	}
	i := rapid.IntRange(0, len(serviceNames)-2).Draw(t, "service")
	s := &resource.Service{
		Protocol:  rapid.SampledFrom([]string{"tcp", "http", "http2", "kafka"}).Draw(t, "protocol"),
		Balancing: resource.Balancing{Policy: rapid.SampledFrom([]string{"", "maglev", "leastConnections", "random"}).Draw(t, "policy")},
		Discovery: anyDiscovery(t),
	}
	for j := range rapid.IntRange(0, 2).Draw(t, "endpoints") {
		weight := rapid.IntRange(0, 2).Draw(t, "weight")
		s.Endpoints = append(s.Endpoints, resource.Endpoint{Address: fmt.Sprintf("10.%d.0.%d:1", i+1, j), Tags: anyTags(t), Weight: &weight})
	}
	if rapid.IntRange(0, 4).Draw(t, "by name") == 0 {
		s.Endpoints = append(s.Endpoints, resource.Endpoint{Address: "host.example:1"})
	}
	if i == 0 && rapid.Bool().Draw(t, "files") {
		s.EndpointsFrom = []resource.EndpointsFrom{{Provider: filesRef.Provider, Service: filesRef.Service}}
	}
	if rapid.IntRange(0, 2).Draw(t, "tls") == 0 {
		s.TLS = &resource.ServiceTLS{CA: "ca-of-" + serviceNames[i], CertificateRef: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "client certificate")}
	}
	return resource.Object{Key: resource.Key{Kind: "Service", Name: serviceNames[i]}, Spec: s}
}

func anyService(t *rapid.T) resource.TargetRef {
	return resource.TargetRef{Kind: "MeshService", Name: rapid.SampledFrom(serviceNames).Draw(t, "to")}
}

func anySource(t *rapid.T) *resource.TargetRef {
	if rapid.Bool().Draw(t, "from all") {
		return nil
	}
	from := anyService(t)
	return &from
}

func anyBackends(t *rapid.T) (refs []resource.BackendRef) {
	for range rapid.IntRange(0, 3).Draw(t, "backends") {
		weight := rapid.IntRange(0, 3).Draw(t, "weight")
		r := resource.BackendRef{Kind: "MeshService", Name: rapid.SampledFrom(serviceNames).Draw(t, "backend"), Weight: &weight}
		if tags := anyTags(t); tags != nil {
			r.Kind, r.Tags = "MeshServiceSubset", tags
		}
		refs = append(refs, r)
	}
	return refs
}

func anyDiscovery(t *rapid.T) *resource.Discovery {
	if rapid.IntRange(0, 2).Draw(t, "discovery") == 0 {
		return nil
	}
	d := &resource.Discovery{Certificates: rapid.SampledFrom([][]string{nil, {"x"}, {"x", "y"}}).Draw(t, "certificates")}
	all := append(slices.Clone(serviceNames), resource.EveryService)
	for i, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 3, rapid.ID).Draw(t, "upstreams") {
		u := resource.Upstream{Service: name}
		if name != resource.EveryService && rapid.Bool().Draw(t, "listens") {
			u.Address = fmt.Sprintf("127.0.0.1:%d", 9000+i)
		}
		d.Upstreams = append(d.Upstreams, u)
	}
	return d
}

// universe lists the names that resources of a type may have.
func universe(kind snapshot.Type) (all []string) {
	for _, name := range serviceNames {
		switch kind {
		case snapshot.Cluster, snapshot.Endpoint:
			all = append(all, name, name+"?v=1", name+"?v=2&zone=z")
		case snapshot.Listener:
			all = append(all, name, "upstream/"+name)
		case snapshot.Route:
			all = append(all, name)
		case snapshot.Secret:
			all = append(all, "ca/"+name)
		}
	}
	switch kind {
	case snapshot.Cluster:
		all = append(all, "penstock/closed")
	case snapshot.Secret:
		all = append(all, "x", "y")
	}
	return all
}

// askSome asks a snapshot for some names and some lists.
func askSome(t *rapid.T, s snapshot.Snapshot) map[question]string {
	asked := map[question]string{}
	for _, service := range serviceNames {
		v := s.View(service)
		if v == nil {
			continue
		}
		for kind := range snapshot.Types {
			switch rapid.IntRange(0, 2).Draw(t, "ask") {
			case 0:
				for _, name := range universe(kind) {
					asked[question{service, kind, name}] = versionOf(v.Get(kind, name))
				}
			case 1:
				listed := map[string]string{}
				for _, r := range v.All(kind) {
					listed[r.Name] = r.Version
				}
				for _, name := range universe(kind) {
					if kind == snapshot.Cluster || kind == snapshot.Endpoint || listed[name] != "" {
						asked[question{service, kind, name}] = listed[name]
					}
				}
			}
		}
	}
	return asked
}

func versionOf(r *snapshot.Resource) string {
	if r == nil {
		return ""
	}
	return r.Version
}

func checkChanged(t *rapid.T, before, after snapshot.Snapshot, asked map[question]string) {
	for kind := range snapshot.Types {
		names, ok := after.Changed(before, kind)
		if !ok {
			continue
		}
		if !slices.IsSorted(names) {
			t.Fatalf("%v", names)
		}
		for q, version := range asked {
			v := after.View(q.view)
			if v == nil || q.kind != kind {
				continue
			}
			if now := versionOf(v.Get(kind, q.name)); now != version && !slices.Contains(names, q.name) {
				t.Fatalf("%v %s as %s sees it was %q and is %q, but only %v changed", kind, q.name, q.view, version, now, names)
			}
		}
	}
}

// checkViews checks that each view has valid resources, and nothing of services
// that it may not reach.
func (m *model) checkViews(rt *rapid.T, t *testing.T, s snapshot.Snapshot) {
	for _, service := range serviceNames {
		v := s.View(service)
		if v == nil {
			continue
		}
		discovery := m.objects[resource.Key{Kind: "Service", Name: service}].Spec.(*resource.Service).Discovery
		reached := m.reached(discovery)
		for kind := range snapshot.Types {
			all := v.All(kind)
			for _, r := range all {
				if got := v.Get(kind, r.Name); got == nil || got.Version != r.Version {
					rt.Fatalf("%s: All has %v %s, Get has not", service, kind, r.Name)
				}
			}
			for _, name := range universe(kind) {
				r := v.Get(kind, name)
				if r == nil {
					continue
				}
				if kind != snapshot.Listener && kind != snapshot.Route && !slices.ContainsFunc(all, func(x *snapshot.Resource) bool { return x.Name == name }) {
					rt.Fatalf("%s: Get has %v %s, All has not", service, kind, name)
				}
				decode(t, r)
				for i, other := range serviceNames {
					if reached[other] {
						continue
					}
					for _, secret := range []string{fmt.Sprintf("10.%d.0.", i+1), "ca-of-" + other, `"` + other + `"`, other + "?v"} {
						if bytes.Contains(r.Any, []byte(secret)) {
							rt.Fatalf("%s sees %q of %s in %v %s", service, secret, other, kind, name)
						}
					}
				}
				for _, cert := range []string{"x", "y"} {
					if bytes.Contains(r.Any, []byte("key-"+cert)) && !slices.Contains(discovery.Certificates, cert) {
						rt.Fatalf("%s gets the key of %s", service, cert)
					}
				}
			}
		}
	}
}

// reached returns the services that upstreams, or the routes to them, name.
func (m *model) reached(d *resource.Discovery) map[string]bool {
	upstreams, all := map[string]bool{}, map[string]bool{}
	for _, u := range d.Upstreams {
		for _, name := range serviceNames {
			if u.Service == name || u.Service == resource.EveryService {
				upstreams[name], all[name] = true, true
			}
		}
	}
	for _, o := range m.objects {
		switch r := o.Spec.(type) {
		case *resource.MeshTCPRoute:
			for _, b := range r.To[0].Rules[0].Default.BackendRefs {
				all[b.Name] = all[b.Name] || upstreams[r.To[0].TargetRef.Name]
			}
		case *resource.MeshHTTPRoute:
			for _, rule := range r.To[0].Rules {
				for _, b := range rule.Default.BackendRefs {
					all[b.Name] = all[b.Name] || upstreams[r.To[0].TargetRef.Name]
				}
			}
		}
	}
	return all
}

func compareSnapshots(t *rapid.T, a, b snapshot.Snapshot) {
	for _, service := range serviceNames {
		v, w := a.View(service), b.View(service)
		if (v == nil) != (w == nil) {
			t.Fatalf("view of %s: %v, %v", service, v, w)
		}
		if v == nil {
			continue
		}
		for kind := range snapshot.Types {
			if got, want := contents(v.All(kind)), contents(w.All(kind)); got != want {
				t.Fatalf("%v of %s:\n%s\nby another way:\n%s", kind, service, got, want)
			}
			for _, name := range universe(kind) {
				if got, want := versionOf(v.Get(kind, name)), versionOf(w.Get(kind, name)); got != want {
					t.Fatalf("%v %s of %s: %s, by another way %s", kind, name, service, got, want)
				}
			}
		}
	}
}

func contents(list []*snapshot.Resource) string {
	var b strings.Builder
	for _, r := range list {
		fmt.Fprintln(&b, r.Name, r.Version)
	}
	return b.String()
}
