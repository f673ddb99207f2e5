package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

// known returns a catalog of Services and EndpointSlices.
func known(t testing.TB, family Family, items ...item) *catalog {
	t.Helper()
	c := newCatalog()
	for _, it := range items {
		var k *kind
		var o object
		var err error
		switch it := it.(type) {
		case *corev1.Service:
			k = services
			o, err = newService(it)
		case *discoveryv1.EndpointSlice:
			k = endpointSlices
			o, err = newSlice(it, family)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.put(k, o, map[key]bool{})
	}
	return &c
}

// text returns what the catalog says about the service web: endpoints in the
// form of providertest, or "! " and the error.
func text(c *catalog, port string) string {
	endpoints, err := c.endpoints(key{"shop", "web"}, port)
	if err != nil {
		return "! " + err.Error()
	}
	sink := providertest.NewSink()
	sink.Report(web, endpoints)
	return sink.Text(web)
}

func TestPorts(t *testing.T) {
	slice := aSlice("web-1", "10.0.0.1")
	slice.Ports = []discoveryv1.EndpointPort{
		{Name: to("http"), Port: to(int32(8080)), Protocol: to(corev1.ProtocolTCP)},
		{Name: to("admin"), Port: to(int32(9090))},
		{Name: to("any"), Protocol: to(corev1.ProtocolTCP)},
		{Name: to("dns"), Port: to(int32(5353)), Protocol: to(corev1.ProtocolUDP)},
		{Port: to(int32(7070))},
	}
	udp := aService("web", "http:80", "dns:53")
	udp.Spec.Ports[1].Protocol = corev1.ProtocolUDP
	onlyUDP := aService("web", "dns:53")
	onlyUDP.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	external := aService("web", "http:80")
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "db.example.com"
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("p%d:%d", i, 1000+i))
	}
	for _, test := range []struct {
		service    *corev1.Service
		port, want string
	}{
		{aService("web", "http:80"), "", "10.0.0.1:8080"},
		{aService("web", "http:80"), "http", "10.0.0.1:8080"},
		{aService("web", "http:80"), "80", "10.0.0.1:8080"},
		{aService("web", "http:80"), "8080", `! service "shop/web" has no TCP port "8080": give one of "http" (80)`},
		{aService("web", "http:80", "admin:81"), "81", "10.0.0.1:9090"},
		{aService("web", "http:80", "admin:81"), "", "! service \"shop/web\" has several ports: give one of \"http\" (80), \"admin\" (81)"},
		{aService("web", "http:80", ":82"), "x", `! service "shop/web" has no TCP port "x": give one of "http" (80), 82`},
		{aService("web", ":82"), "", "10.0.0.1:7070"},
		{aService("web", ":82", "http:80"), "82", "10.0.0.1:7070"},
		{aService("web", "any:1234"), "any", "10.0.0.1:1234"},
		{aService("web", "other:1"), "other", "none"}, // no pod has a port of that name
		{aService("web"), "5000", "10.0.0.1:5000"},
		{aService("web"), "", "! service \"shop/web\" has no ports: give the number of the port that its endpoints listen on"},
		{aService("web"), "http", `! service "shop/web" has no ports: give the number of the port that its endpoints listen on`},
		{udp, "", "10.0.0.1:8080"},
		{udp, "53", `! service "shop/web" has no TCP port "53": give one of "http" (80)`},
		{onlyUDP, "53", `! service "shop/web" has no TCP port`},
		{onlyUDP, "", `! service "shop/web" has no TCP port`},
		{aService("web", "http:80"), "0", `! service "shop/web" has no TCP port "0": give one of "http" (80)`},
		{aService("web", "http:80"), "65616", `! service "shop/web" has no TCP port "65616": give one of "http" (80)`}, // 80 + 65536
		{
			external, "",
			`! service "shop/web" has the type ExternalName and stands for "db.example.com": use a provider of the type dns for that`,
		},
		{
			aService("web", many...), "", `! service "shop/web" has several ports: give one of "p0" (1000), "p1" (1001), "p2" (1002), ` +
				`"p3" (1003), "p4" (1004), "p5" (1005), "p6" (1006), "p7" (1007), "p8" (1008), "p9" (1009), ...`,
		},
	} {
		if got := text(known(t, BothFamilies, test.service, slice), test.port); got != test.want {
			t.Errorf("%v, port %q:\ngot  %s\nwant %s", test.service.Spec.Ports, test.port, got, test.want)
		}
	}
}

func TestStates(t *testing.T) {
	yes, no := to(true), to(false)
	for _, test := range []struct {
		ready, serving, terminating *bool
		want                        provider.State
	}{
		{nil, nil, nil, provider.Ready},
		{yes, yes, no, provider.Ready},
		{no, no, no, provider.NotReady},
		{no, nil, nil, provider.NotReady},
		{no, yes, yes, provider.Terminating},
		{no, no, yes, provider.Terminating},
		{yes, yes, yes, provider.Terminating}, // publishNotReadyAddresses
	} {
		conditions := discoveryv1.EndpointConditions{Ready: test.ready, Serving: test.serving, Terminating: test.terminating}
		if got := stateOf(&conditions); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestFamilies(t *testing.T) {
	v6, names := aSlice("web-2", "2001:db8::1"), aSlice("web-3", "a.example.com")
	v6.AddressType, names.AddressType = discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN
	for family, want := range map[Family]string{
		BothFamilies: "10.0.0.1:8080; [2001:db8::1]:8080; a.example.com:8080",
		IPv4:         "10.0.0.1:8080; a.example.com:8080",
		IPv6:         "[2001:db8::1]:8080; a.example.com:8080",
	} {
		if got := text(known(t, family, aService("web", "http:80"), aSlice("web-1", "10.0.0.1"), v6, names), ""); got != want {
			t.Errorf("%q: %s, want %s", family, got, want)
		}
	}
}

// An endpoint that moves to another slice is in both for a moment; the runner
// keeps the readiest.
func TestEndpointsInTwoSlices(t *testing.T) {
	c := known(t, BothFamilies, aService("web", "http:80"), aSlice("web-1", "10.0.0.1-"), aSlice("web-2", "10.0.0.1"))
	if got := text(c, ""); got != "10.0.0.1:8080; 10.0.0.1:8080 terminating" {
		t.Error(got)
	}
}

func TestOddSlices(t *testing.T) {
	nameless := aSlice("web-2", "10.0.0.2")
	nameless.Labels = nil
	addressless := aSlice("web-3", "10.0.0.3")
	addressless.Endpoints[0].Addresses = nil
	several := aSlice("web-4", "10.0.0.4")
	several.Endpoints[0].Addresses = []string{"10.0.0.4", "10.0.0.5"}
	several.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "VirtualMachine", Name: "vm"}
	c := known(t, BothFamilies, aService("web", "http:80"), nameless, addressless, several)
	if got := text(c, ""); got != "10.0.0.4:8080" {
		t.Error(got)
	}
	long := strings.Repeat("x", maxText+1)
	for name, spoil := range map[string]func(*discoveryv1.EndpointSlice){
		"name":      func(s *discoveryv1.EndpointSlice) { s.Name = long },
		"namespace": func(s *discoveryv1.EndpointSlice) { s.Namespace = long },
		"service":   func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = long },
		"port":      func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = &long },
		"address":   func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = long },
		"zone":      func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Zone = &long },
		"node":      func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = &long },
		"pod": func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: long}
		},
	} {
		s := aSlice("web-1", "10.0.0.1")
		spoil(s)
		if _, err := newSlice(s, BothFamilies); err == nil || len(err.Error()) > 300 {
			t.Errorf("a long %s: %v", name, err)
		}
	}
	for name, spoil := range map[string]func(*corev1.Service){
		"name":     func(s *corev1.Service) { s.Name = long },
		"port":     func(s *corev1.Service) { s.Spec.Ports[0].Name = long },
		"external": func(s *corev1.Service) { s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, long },
	} {
		s := aService("web", "http:80")
		spoil(s)
		if _, err := newService(s); err == nil || len(err.Error()) > 300 {
			t.Errorf("a long %s: %v", name, err)
		}
	}
}

// After any changes and lists the catalog says what its present objects say, and
// each change touches the services whose answers it changes.
func TestCatalogAgreesWithItsObjects(t *testing.T) {
	names := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		c := newCatalog()
		model := map[*kind]map[string]object{services: {}, endpointSlices: {}}
		answers := func(c *catalog) map[string]string {
			all := map[string]string{}
			for _, n := range names {
				for _, port := range []string{"", "80", "9"} {
					list, err := c.endpoints(key{"shop", n}, port)
					all[n+" "+port] = fmt.Sprint(list, err)
				}
			}
			return all
		}
		draw := func(k *kind) object {
			name := rapid.SampledFrom(names).Draw(t, "name")
			o := object{key: key{"shop", name}}
			switch {
			case rapid.IntRange(0, 3).Draw(t, "gone") == 0:
			case k == services:
				o, _ = newService(aService(name, []string{"http:80", "http:80"}[:rapid.IntRange(0, 1).Draw(t, "ports")]...))
			default:
				s := aSlice(name, fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, 4).Draw(t, "address")))
				s.Labels[discoveryv1.LabelServiceName] = rapid.SampledFrom(names).Draw(t, "service")
				o, _ = newSlice(s, BothFamilies)
			}
			return o
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			k := rapid.SampledFrom(kinds).Draw(t, "kind")
			before, touched := answers(&c), map[key]bool{}
			if rapid.IntRange(0, 4).Draw(t, "list") == 0 {
				model[k] = map[string]object{}
				for range rapid.IntRange(0, 4).Draw(t, "objects") {
					o := draw(k)
					model[k][o.name] = o
				}
				c.replace(k, slices.Collect(maps.Values(model[k])))
				for _, n := range names {
					touched[key{"shop", n}] = true
				}
			} else {
				o := draw(k)
				model[k][o.name] = o
				c.put(k, o, touched)
			}
			fresh := newCatalog()
			for k, of := range model {
				for _, o := range of {
					fresh.put(k, o, map[key]bool{})
				}
			}
			after := answers(&c)
			if want := answers(&fresh); !maps.Equal(after, want) {
				t.Fatalf("%v, want %v", after, want)
			}
			for question, answer := range after {
				name, _, _ := strings.Cut(question, " ")
				if answer != before[question] && !touched[key{"shop", name}] {
					t.Fatalf("the answer to %q changed, and its service is not touched", question)
				}
			}
			if len(c.of) > len(c.slices) || len(c.slices) > len(names) {
				t.Fatalf("%d slices of %d services are held", len(c.slices), len(c.of))
			}
		}
	})
}

// Whatever a server sends as an object is refused or can be asked for.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop"},"spec":{"ports":[{"name":"http","port":80}]}}`,
		`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"},"spec":{"type":"ExternalName","externalName":"a.example.com"}}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"web-1","namespace":"shop",` +
			`"labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","ports":[{"name":"http","port":8080,"protocol":"TCP"}],` +
			`"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true},"zone":"a","nodeName":"n","targetRef":{"kind":"Pod","name":"p"}}]}`,
		`{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[{},{"endpoints":[{}]}]}`,
		`{"kind":"ServiceList","apiVersion":"v1","items":[{"spec":{"ports":[{"port":-1},{"port":70000,"protocol":"UDP"}]}}]}`,
		"k8s\x00\n\x0d\n\x02v1\x12\x07Service\x12\x00\x1a\x00\x22\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := runtime.Decode(codecs.UniversalDeserializer(), data)
		if err != nil {
			return
		}
		c := newCatalog()
		for _, k := range kinds {
			objects, _, err := k.list(decoded, &Config{})
			if err != nil {
				continue
			}
			if o, ok, err := k.one(decoded, &Config{}); ok && err == nil {
				objects = append(objects, o)
			}
			c.replace(k, objects)
		}
		for name := range c.of {
			c.services[name] = &service{portless: true}
			list, err := c.endpoints(name, "80")
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, e := range list {
				if len(e.Address) > maxText+10 || len(e.Tags) > 3 || e.Weight != 1 {
					t.Errorf("endpoint %+v", e)
				}
			}
		}
		for name := range c.services {
			for _, port := range []string{"", "80", "http"} {
				_, _ = c.endpoints(name, port)
			}
		}
	})
}
