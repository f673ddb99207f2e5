package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/kinds"
	"penstock/routing/formats/crd"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

const gatewayV1 = "gateway.networking.k8s.io/v1"

func (s *server) secret(namespace, name string, p certs.Pair) {
	s.t.Helper()
	s.put("v1", "secrets", namespace, name, fmt.Sprintf(`{"type": "kubernetes.io/tls", "data": {"tls.crt": %q, "tls.key": %q}}`,
		base64.StdEncoding.EncodeToString([]byte(p.Cert)), base64.StdEncoding.EncodeToString([]byte(p.Key))))
}

// gateway puts a Gateway of our class whose listener refers to Secrets.
func (s *server) gateway(namespace, name string, refs string) {
	s.t.Helper()
	s.put(gatewayV1, "gatewayclasses", "", "ours", `{"spec": {"controllerName": "penstock.internal/gateway"}}`)
	s.put(gatewayV1, "gateways", namespace, name, fmt.Sprintf(`{"spec": {"gatewayClassName": "ours", "listeners": [
		{"name": "tls", "port": 8443, "protocol": "TLS", "tls": {"mode": "Terminate", "certificateRefs": %s}}]}}`, refs))
}

// certificate returns the chain of a Certificate in force; "": there is none.
func (c *catalogue) certificate(name string) string {
	set, _ := c.now()
	o, ok := set.Get(resource.Key{Kind: "Certificate", Name: name})
	if !ok {
		return ""
	}
	return o.Spec.(*resource.Certificate).Cert
}

// read lists the Secrets that were listed, by path and name.
func (s *server) reads() *atomic.Pointer[[]string] {
	list := new(atomic.Pointer[[]string])
	list.Store(&[]string{})
	before := s.fail
	s.fail = func(r *http.Request) int {
		if strings.HasPrefix(r.URL.Path, "/api/v1/") {
			text := r.URL.Path + "?" + r.URL.Query().Get("fieldSelector")
			if now := *list.Load(); !slices.Contains(now, text) {
				next := append(slices.Clone(now), text)
				list.Store(&next)
			}
		}
		if before != nil {
			return before(r)
		}
		return 0
	}
	return list
}

func problem(m *member, text string) func() bool {
	return func() bool {
		return slices.ContainsFunc(m.State().Problems, func(p string) bool { return strings.Contains(p, text) })
	}
}

// A Certificate has the content of the Secret that it names, and follows it. What is wrong
// with the Secret is in its status, without content, and the last good version stays.
func TestCertificatesOfSecrets(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	reads := s.reads()
	one, two := certs.SelfSigned("one.example.com"), certs.SelfSigned("two.example.com")
	s.secret("shop", "other", two) // nobody refers to it
	s.put(crd.APIVersion, "certificates", "shop", "web", `{"metadata": {"labels": {"team": "a"}}, "spec": {"secretRef": {"name": "web-tls"}}}`)
	m := c.start(t, s)
	accepted := func() string { return s.accepted("certificates", "shop", "web") }
	testkit.WaitFor(t, "it to be missed", func() bool {
		return accepted() == "False Invalid Certificate/shop.web spec.secretRef: there is no Secret shop/web-tls"
	})
	s.secret("shop", "web-tls", one)
	testkit.WaitFor(t, "the certificate", func() bool { return c.certificate("shop.web") == one.Cert && accepted() == "True Accepted" })
	set, _ := c.now()
	if len(set.WithLabels("Certificate", map[string]string{"team": "a"})) != 1 {
		t.Error("the labels of the object are lost")
	}
	s.secret("shop", "web-tls", two)
	testkit.WaitFor(t, "the new certificate", func() bool { return c.certificate("shop.web") == two.Cert })
	s.put("v1", "secrets", "shop", "web-tls", fmt.Sprintf(`{"type": "kubernetes.io/tls", "data": {"tls.crt": %q, "tls.key": %q}}`,
		base64.StdEncoding.EncodeToString([]byte(two.Cert)), base64.StdEncoding.EncodeToString([]byte(one.Key))))
	testkit.WaitFor(t, "the wrong key to be told", func() bool {
		return strings.Contains(accepted(), "the Secret shop/web-tls cannot be used: tls.key has no key that belongs to the first certificate of tls.crt")
	})
	s.put("v1", "secrets", "shop", "web-tls", `{"type": "Opaque", "data": {}}`)
	testkit.WaitFor(t, "the wrong type to be told", func() bool { return strings.Contains(accepted(), "its type is not kubernetes.io/tls") })
	s.remove("v1", "secrets", "shop", "web-tls")
	testkit.WaitFor(t, "its absence to be told", func() bool { return strings.Contains(accepted(), "there is no Secret") })
	if c.certificate("shop.web") != two.Cert {
		t.Error("the last good version is gone")
	}
	s.put(crd.APIVersion, "certificates", "shop", "web", `{"spec": {"secretRef": {"name": "other"}}}`)
	testkit.WaitFor(t, "the other Secret", func() bool { return accepted() == "True Accepted" && c.certificate("shop.web") == two.Cert })
	s.remove(crd.APIVersion, "certificates", "shop", "web")
	testkit.WaitFor(t, "it to go", func() bool { return c.certificate("shop.web") == "" })
	for _, path := range *reads.Load() {
		if path != "/api/v1/namespaces/shop/secrets?metadata.name=web-tls" && path != "/api/v1/namespaces/shop/secrets?metadata.name=other" {
			t.Errorf("read %s", path)
		}
	}
	s.wantNoKeys(t, m, one, two)
}

// wantNoKeys checks that no key is in the log, in status, or in an object.
func (s *server) wantNoKeys(t *testing.T, m *member, pairs ...certs.Pair) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := m.log.String() + fmt.Sprint(m.State())
	for path, o := range s.objects {
		if !strings.HasPrefix(path, "/api/v1/") {
			text, _ := json.Marshal(o)
			shown += string(text)
		}
	}
	for _, p := range pairs {
		for _, line := range strings.Split(p.Key, "\n") {
			if len(line) > 20 && !strings.HasPrefix(line, "-----") && strings.Contains(shown, line) {
				t.Fatal("a key is shown")
			}
		}
	}
}

func TestFaultsOfSecretRefs(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), newCatalogue()
	for name, text := range map[string]string{
		"unknown": `{"name": "a", "key": "b"}`, "nameless": `{"namespace": "shop"}`, "list": `["a"]`, "path": `{"name": "a/b"}`,
	} {
		s.put(crd.APIVersion, "certificates", "shop", name, `{"spec": {"secretRef": `+text+`}}`)
	}
	s.put(crd.APIVersion, "certificates", "shop", "both", `{"spec": {"secretRef": {"name": "a"}, "certFile": "/a"}}`)
	c.start(t, s)
	for name, want := range map[string]string{
		"unknown": "want {name: NAME}", "nameless": "want {name: NAME}", "list": "want {name: NAME}", "path": "want {name: NAME}",
		"both": "spec.secretRef: stands in place of all other fields",
	} {
		testkit.WaitFor(t, name, func() bool { return strings.Contains(s.accepted("certificates", "shop", name), want) })
	}
	_, faults := codec.DecodeForeign("", []byte(`{"apiVersion": "penstock.io/v1alpha1", "kind": "Certificate", "metadata": {"name": "a"},
		"spec": {"secretRef": {"name": "b"}}}`), kinds.All(), kinds.Formats())
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), "names a Secret, which nodes with --kubernetes-resources read") {
		t.Errorf("penstock check says %v", faults)
	}
}

// A certificateRef of a Gateway makes a Certificate of the Secret's name, unless there is
// one. It goes when nothing refers to the Secret any more.
func TestCertificateRefsOfGateways(t *testing.T) {
	t.Parallel()
	s, c := newServer(t).withGateways(), newCatalogue()
	reads := s.reads()
	one, two := certs.SelfSigned("one.example.com"), certs.SelfSigned("two.example.com")
	s.secret("shop", "web", one)
	s.secret("shop", "own", one)
	s.put(crd.APIVersion, "certificates", "shop", "own", asJSON(map[string]any{"spec": map[string]any{"cert": two.Cert, "key": two.Key}}))
	s.gateway("shop", "edge", `[{"name": "web"}, {"name": "own"}]`)
	m := c.start(t, s)
	testkit.WaitFor(t, "the Certificate of the Secret", func() bool { return c.certificate("shop.web") == one.Cert })
	testkit.WaitFor(t, "the Certificate that there is", func() bool { return c.certificate("shop.own") == two.Cert })
	testkit.WaitFor(t, "the Secret to be watched", func() bool { return s.watches("/api/v1/namespaces/shop/secrets?metadata.name=web") == 1 })
	s.secret("shop", "web", two)
	testkit.WaitFor(t, "the change", func() bool { return c.certificate("shop.web") == two.Cert })
	s.put("v1", "secrets", "shop", "web", `{"type": "kubernetes.io/tls", "data": {}}`)
	testkit.WaitFor(t, "the fault", problem(m, "Secret shop/web is not accepted: tls.crt must be PEM certificates"))
	if c.certificate("shop.web") != two.Cert {
		t.Error("the last good version is gone")
	}
	s.secret("shop", "web", one)
	testkit.WaitFor(t, "the good one", func() bool { return c.certificate("shop.web") == one.Cert })
	s.gateway("shop", "edge", `[{"name": "own"}]`)
	testkit.WaitFor(t, "what nobody refers to any more to go", func() bool { return c.certificate("shop.web") == "" })
	if c.certificate("shop.own") == "" {
		t.Error("the other Certificate is gone")
	}
	testkit.WaitFor(t, "the watch of the Secret to end", func() bool { return s.watches("/api/v1/namespaces/shop/secrets?metadata.name=web") == 0 })
	if n := s.watches("/api/v1/namespaces/shop/secrets?metadata.name=own"); n != 1 {
		t.Errorf("%d watches of the other Secret, want 1", n)
	}
	s.gateway("shop", "edge", `[{"name": "web"}]`)
	testkit.WaitFor(t, "it again", func() bool { return c.certificate("shop.web") == one.Cert })
	s.remove("v1", "secrets", "shop", "web")
	testkit.WaitFor(t, "it to go with the Secret", func() bool { return c.certificate("shop.web") == "" })
	for _, path := range *reads.Load() {
		if !strings.HasSuffix(path, "/shop/secrets?metadata.name=web") && !strings.HasSuffix(path, "/shop/secrets?metadata.name=own") {
			t.Errorf("read %s", path)
		}
	}
	s.wantNoKeys(t, m, one) // the other key is in the Certificate that somebody wrote
}

// A Secret of another namespace is not even read without a ReferenceGrant there.
func TestSecretsOfOtherNamespacesNeedAGrant(t *testing.T) {
	t.Parallel()
	s, c := newServer(t).withGateways(), newCatalogue()
	reads := s.reads()
	pair := certs.SelfSigned("one.example.com")
	for _, name := range []string{"for-gateways", "for-certificates"} {
		s.secret("infra", name, pair)
	}
	s.gateway("shop", "edge", `[{"name": "for-gateways", "namespace": "infra"}]`)
	s.put(crd.APIVersion, "certificates", "shop", "web", `{"spec": {"secretRef": {"name": "for-certificates", "namespace": "infra"}}}`)
	m := c.start(t, s)
	testkit.WaitFor(t, "the refusal", func() bool {
		return strings.Contains(s.accepted("certificates", "shop", "web"),
			"no ReferenceGrant in namespace infra lets a Certificate of namespace shop refer to the Secret for-certificates")
	})
	grant := func(group, kind, name string) {
		s.put(gatewayV1, "referencegrants", "infra", strings.ToLower(kind), fmt.Sprintf(`{"spec": {"from": [{"group": %q, "kind": %q, "namespace": "shop"}],
			"to": [{"group": "", "kind": "Secret", "name": %q}]}}`, group, kind, name))
	}
	grant("example.com", "Gateway", "for-gateways") // kinds of another group
	grant("example.com", "Certificate", "for-certificates")
	m.settle(t, s)
	if len(*reads.Load()) != 0 {
		t.Errorf("read %v", *reads.Load())
	}
	grant("gateway.networking.k8s.io", "Gateway", "for-gateways")
	testkit.WaitFor(t, "that of the Gateway", func() bool { return c.certificate("infra.for-gateways") == pair.Cert })
	if c.certificate("shop.web") != "" {
		t.Error("a grant for Gateways is one for Certificates")
	}
	grant("penstock.io", "Certificate", "for-certificates")
	testkit.WaitFor(t, "that of the Certificate", func() bool { return c.certificate("shop.web") == pair.Cert })
	s.remove(gatewayV1, "referencegrants", "infra", "gateway")
	testkit.WaitFor(t, "what is not granted any more to go", func() bool { return c.certificate("infra.for-gateways") == "" })
}

// Without the right to read a Secret, what needs it stays as it is, all else goes on, and
// status names the right. It is read once the right is there.
func TestSecretsThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	s, c := newServer(t).withGateways(), newCatalogue()
	denied := atomic.Bool{}
	denied.Store(true)
	s.fail = func(r *http.Request) int {
		if strings.HasPrefix(r.URL.Path, "/api/v1/") && denied.Load() {
			return http.StatusForbidden
		}
		return 0
	}
	pair := certs.SelfSigned("one.example.com")
	s.secret("shop", "web", pair)
	s.gateway("shop", "edge", `[{"name": "web"}]`)
	s.service("shop", "web", "10.0.0.1:80")
	m := c.start(t, s)
	testkit.WaitFor(t, "the right to be named", problem(m,
		"403 Forbidden: allow the verbs list and watch on secrets of the core API group with the name web in namespace shop (Role)"))
	testkit.WaitFor(t, "the service", func() bool { return c.has("Service", "shop.web") && c.has("Gateway", "shop.edge") })
	denied.Store(false)
	testkit.WaitFor(t, "the Certificate", func() bool { return c.certificate("shop.web") == pair.Cert })
	denied.Store(true) // taken away again: what is known stays
	s.endWatches()
	testkit.WaitFor(t, "the refusal", problem(m, "403 Forbidden"))
	if c.certificate("shop.web") != pair.Cert {
		t.Error("the Certificate went with the right to read its Secret")
	}
	m.leads.Store(false) // the next leader never knows the Secret
	testkit.WaitFor(t, "it to stop", func() bool { return !m.State().Leading })
	next := c.start(t, s)
	testkit.WaitFor(t, "the refusal", problem(next, "403 Forbidden"))
	s.remove(crd.APIVersion, "services", "shop", "web") // a removal takes two passes
	testkit.WaitFor(t, "another removal", func() bool { return !c.has("Service", "shop.web") })
	if c.certificate("shop.web") != pair.Cert {
		t.Error("the Certificate went though its Secret is not known")
	}
}

// A Secret of the namespace default is not taken for one of another namespace.
func TestSecretsWithTheNameOfOthers(t *testing.T) {
	t.Parallel()
	s, c := newServer(t).withGateways(), newCatalogue()
	ours, theirs := certs.SelfSigned("one.example.com"), certs.SelfSigned("evil.example.com")
	s.secret("shop", "web", ours)
	s.secret("default", "shop.web", theirs)
	s.secret("default", "example.com-tls", theirs)
	s.gateway("default", "evil", `[{"name": "shop.web"}, {"name": "example.com-tls"}]`)
	s.gateway("shop", "edge", `[{"name": "web"}]`)
	m := c.start(t, s)
	testkit.WaitFor(t, "it to be told", problem(m, "Secret default/shop.web, which Gateway default/evil refers to, is not read"))
	testkit.WaitFor(t, "the others", func() bool {
		return c.certificate("example.com-tls") == theirs.Cert && c.certificate("shop.web") == ours.Cert
	})
}

func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
