package node

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/acme"
	"penstock/node/api"
	"penstock/node/expiry"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

// Metrics and status say when each certificate and CA in force ends, those of files and
// of the node itself among them, and "get" when that of a file does.
func TestEndsOfCertificatesAreTold(t *testing.T) {
	ca, f := certs.NewCA("test CA"), newFollowedFiles(t)
	end := time.Now().Add(time.Hour).Truncate(time.Second) // less than a quarter of the life
	good, ending := ca.Issue("edge.example"), ca.IssueUntil(end, "edge.example")
	f.write(f.cert, good.Cert)
	f.write(f.key, good.Key)
	f.write(f.clientCA, ca.PEM)
	f.write(f.serviceCA, ca.PEM)
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, f.resources(b)+"---\n"+nodetest.Certificate("stored", ca.Issue("a.example")))
	_, text := n.get(t, "/metrics")
	for _, series := range []string{
		`resource="Certificate/edge",role="certificate"`, `resource="Certificate/stored",role="certificate"`,
		`resource="Listener/edge",role="ca"`, `resource="Service/apps",role="ca"`,
	} {
		if !strings.Contains(text, "penstock_certificate_expiry_timestamp_seconds{"+series+"}") ||
			!strings.Contains(text, "penstock_certificate_problem{"+series+"} 0\n") {
			t.Errorf("no metrics of %s, or a problem", series)
		}
	}
	f.write(f.cert, ending.Cert)
	f.write(f.key, ending.Key)
	n.Reread()
	want := fmt.Sprintf("node n1: Certificate/edge: the certificate expires soon, at %s: renew it", end.UTC().Format(time.RFC3339))
	testkit.WaitFor(t, "the warning", func() bool { return strings.Contains(strings.Join(n.mustStatus(t).Warnings, "\n"), want) })
	of := `{resource="Certificate/edge",role="certificate"}`
	value := strconv.FormatFloat(float64(end.Unix()), 'g', -1, 64)
	if got := n.metric(t, "penstock_certificate_expiry_timestamp_seconds"+of); got != value {
		t.Errorf("the metric is %s, want %s", got, value)
	}
	if got := n.metric(t, "penstock_certificate_problem"+of); got != "1" {
		t.Errorf("the metric of problems is %s", got)
	}
	got, err := rpc.Call[api.GetResult](t.Context(), n.client, api.MethodGet, api.GetRequest{Kind: "Certificate"})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got.Documents {
		var with struct{ Status *acme.Status }
		if err := json.Unmarshal(d.Data, &with); err != nil {
			t.Fatal(err)
		}
		s := with.Status
		if d.Name == "edge" && (s == nil || s.Source != "files" || s.State != "expiring" || !s.NotAfter.Equal(end)) {
			t.Errorf("the status of a followed certificate is %+v", s)
		}
		if d.Name == "stored" && s != nil {
			t.Errorf("the status of a stored certificate is %+v", s)
		}
	}
}

// The certificate of --http, of a node in its cluster, and the cluster's CA are tracked
// as those of resources are.
func TestEndsOfTheNodesOwnCertificatesAreTold(t *testing.T) {
	pair := certs.NewCA("test CA").Issue("127.0.0.1")
	cert, key, err := pair.WriteFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := founder(t, Config{Name: "n1", HTTPCert: cert, HTTPKey: key})
	ends := map[string]time.Time{}
	for _, s := range n.expiry.State(time.Now()) {
		ends[s.Resource+" "+string(s.Role)] = s.Until
		if s.Trouble != expiry.None {
			t.Errorf("%+v", s)
		}
	}
	id := n.cluster.Identity()
	for name, want := range map[string]time.Time{
		"--http-cert certificate": pair.TLS.Leaf.NotAfter, "node certificate": id.Expires(),
	} {
		if !ends[name].Equal(want) {
			t.Errorf("%s ends %v, want %v", name, ends[name], want)
		}
	}
	if ends["cluster ca"].Before(id.Expires()) {
		t.Errorf("the cluster's CA ends %v", ends["cluster ca"])
	}
}
