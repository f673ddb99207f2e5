package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
)

// Faults in a file are reported with line, path and value, by check and by
// apply alike; the exit code is 1, and nothing changes.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	good, other := ca.issue("a.example.com"), ca.issue("b.example.com")
	expired := ca.issueUntil(-time.Hour, "old.example.com")
	dir := t.TempDir()
	text := filepath.Join(dir, "text.pem")
	if err := os.WriteFile(text, []byte("this is no PEM\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bomb := "a: &a [\"lol\", \"lol\", \"lol\"]\n"
	for i := 'b'; i < 'z'; i++ {
		bomb += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c]\n", i, i, i-1, i-1, i-1, i-1, i-1)
	}
	n := startNode(t, service("apps", []string{"127.0.0.1:1"}))
	before := n.must("get", "services", "-o", "json") + n.must("get", "certificates", "-o", "json") + n.must("get", "listeners", "-o", "json")
	for name, test := range map[string]struct {
		text string
		want []string // parts of the text after the file name
	}{
		"mismatch": {
			"kind: Certificate\nname: c\nspec: {certFile: " + good.certFile + ", keyFile: " + other.keyFile + "}\n",
			[]string{":3: Certificate/c spec.key: does not belong to the first certificate of cert (" + other.keyFile + ")"},
		},
		"expired": {
			"kind: Certificate\nname: c\nspec: {certFile: " + expired.certFile + ", keyFile: " + expired.keyFile + "}\n",
			[]string{":3: Certificate/c spec.cert: ", "expired"},
		},
		"not PEM": {
			"kind: Certificate\nname: c\nspec: {certFile: " + text + ", keyFile: " + good.keyFile + "}\n",
			[]string{":3: Certificate/c spec.certFile: contains no PEM (" + text + ")"},
		},
		"no such key": {
			"kind: Certificate\nname: c\nspec: {certFile: " + good.certFile + ", keyFile: none.pem}\n",
			[]string{":3: Certificate/c spec.keyFile: cannot be read: no such file or directory"},
		},
		"huge": {
			strings.Repeat("# much text, and nothing in it\n", 50<<20/31),
			[]string{":1: file: is larger than 16 MiB: split it"},
		},
		"unknown": {
			"kind: Service\nname: s\nspec:\n  endpoint: [a]\n  idleTimout: 1h\n",
			[]string{
				":4: Service/s spec.endpoint: unknown field, did you mean endpoints?",
				":5: Service/s spec.idleTimout: unknown field, did you mean idleTimeout?",
			},
		},
		"tab": {
			"kind: Service\nname: s\nspec:\n\tidleTimeout: 1h\n",
			[]string{":4: document 1: a tab in the indentation: YAML requires spaces"},
		},
		"twice": {
			"kind: Service\nname: s\nspec: {}\n---\nkind: Service\nname: s\nspec: {}\n",
			[]string{":5: Service/s", "duplicate, first at line 1"},
		},
		"reference": {
			"kind: Listener\nname: l\nspec:\n  address: 127.0.0.1:0\n  service: nobody\n",
			[]string{":5: Listener/l spec.service: there is no such Service (nobody)"},
		},
		"bomb": {bomb, []string{":1: document 1: anchors and aliases (&x, *x) are not supported: write the value out"}},
		"bad value": {
			"kind: Service\nname: s\nspec: {idleTimeout: 5, endpoints: [{address: nowhere}]}\n",
			[]string{
				":3: Service/s spec.idleTimeout: has no unit: write 5s or 5ms (5)",
				":3: Service/s spec.endpoints[0].address: ", "(nowhere)",
			},
		},
	} {
		file := filepath.Join(dir, "bad.yaml")
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for command, r := range map[string]result{
			"check": command(t, "", "check", "-f", file),
			"apply": n.run("apply", "-f", file),
			"diff":  n.run("diff", "-f", file),
		} {
			if r.code != 1 || r.out != "" {
				t.Errorf("%s %s: exit code %d, output %q", command, name, r.code, r.out)
			}
			for i, want := range test.want {
				if i == 0 || want[0] == ':' {
					want = file + want
				}
				if !strings.Contains(r.err, want) {
					t.Errorf("%s %s:\n%swant: %s", command, name, r.err, want)
				}
			}
		}
	}
	if after := n.must("get", "services", "-o", "json") +
		n.must("get", "certificates", "-o", "json") +
		n.must("get", "listeners", "-o", "json"); after != before {
		t.Errorf("something was changed:\n%s", after)
	}
}

// A private key appears in no answer, log or error.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	first, second := ca.issue("a.example.com"), ca.issue("a.example.com")
	n := startNode(t, certificate("a", first)+service("echo", []string{testkit.Serve(t, echo)})+
		listener("end", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]}", "service: echo"), "--log-level", "debug")
	said := map[string]string{}
	run := func(in string, args ...string) {
		r := n.pipe(in, args...)
		said[strings.Join(args, " ")] = r.out + r.err
	}
	for _, format := range []string{"table", "yaml", "json"} {
		run("", "get", "certificates", "-o", format)
		run("", "get", "certificate", "a", "-o", format)
	}
	run(certificate("a", second), "diff", "-f", "-")
	run(certificate("a", second), "diff", "-f", "-", "-o", "json")
	run(certificate("a", second), "apply", "-f", "-", "-o", "json")
	inline := func(p pair, more string) string {
		indented := func(text string) string {
			return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
		}
		return "kind: Certificate\nname: b\nspec:\n  cert: |\n" + indented(p.Cert) + "  key: |\n" + indented(p.Key) + more
	}
	run(inline(pair{Pair: certs.Pair{Cert: first.Cert, Key: second.Key}}, ""), "apply", "-f", "-")             // mismatched
	run(inline(pair{Pair: certs.Pair{Cert: first.Key, Key: first.Cert}}, ""), "check", "-f", "-")              // swapped
	run(inline(first, "  nonsense: true\n"), "apply", "-f", "-")                                               // unknown field
	run(strings.Replace(inline(first, ""), "  key: |", "  keyy: |", 1), "apply", "-f", "-", "-o", "json")      // misspelt field
	run(strings.Replace(inline(first, ""), "  key: |\n", "  key:\n  - |\n", 1), "diff", "-f", "-")             // wrong type
	run(strings.Replace(inline(first, ""), "name: b\n", "name: b\nkey: oops\n", 1), "apply", "-f", "-")        // wrong place
	run(strings.Replace(inline(first, ""), "BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE", 1), "check", "-f", "-") // unsupported PEM block
	run("", "status", "-o", "json")
	run("", "explain", "--listener", "end", "--sni", "a.example.com", "-o", "json")
	for _, path := range []string{"/v1/certificates", "/v1/certificate/a", "/v1/status", "/metrics"} {
		_, said[path] = n.fetch(path)
	}
	c := dialTLS(t, n.addr("end"), ca.Client("a.example.com"))
	roundTrip(t, c, "hello")
	said["the log"] = n.log()
	if len(said) < 15 || !strings.Contains(said["get certificate a -o yaml"], "(hidden)") {
		t.Errorf("get:\n%s", said["get certificate a -o yaml"])
	}
	for _, p := range []pair{first, second} {
		lines := strings.Split(strings.TrimSpace(p.Key), "\n")
		for _, secret := range lines[1 : len(lines)-1] {
			for where, text := range said {
				if strings.Contains(text, secret) {
					t.Errorf("%s tells a private key:\n%s", where, text)
				}
			}
		}
	}
}
