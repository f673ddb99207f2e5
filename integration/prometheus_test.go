package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// prometheus is a running Prometheus.
type prometheus struct {
	t  testing.TB
	at string
}

// startPrometheus starts Debian's Prometheus, which scrapes these addresses every second
// and evaluates the alerts.
func startPrometheus(t testing.TB, targets []string) *prometheus {
	t.Helper()
	path := requirePeer(t, "prometheus")
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: edge, static_configs: [{targets: [%s]}]}]\n",
		filepath.Join(root(t), alertsFile), strings.Join(targets, ", "))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{t, process.Loopback(ports[0])}
	proc, err := process.Start("prometheus", dir, []string{path, "--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + p.at, "--log.level=warn"}, ports...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of Prometheus:\n%s", proc.Output())
		}
		proc.Kill()
	})
	return p
}

// ask requests a path of /api/v1 and decodes the data of the answer. It returns the error
// that Prometheus gives.
func (p *prometheus) ask(path string, into any) error {
	p.t.Helper()
	resp, err := http.Get("http://" + p.at + "/api/v1/" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s: %s %v", resp.Status, answer.Error, err)
	}
	return json.Unmarshal(answer.Data, into)
}

// promSeries are the labels of a series.
type promSeries map[string]string

// query evaluates a query.
func (p *prometheus) query(query string) (result []promSeries, err error) {
	p.t.Helper()
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := p.ask("query?query="+url.QueryEscape(query), &data); err != nil {
		return nil, err
	}
	if data.ResultType != "vector" {
		return nil, fmt.Errorf("the result is a %s", data.ResultType)
	}
	var series []struct{ Metric promSeries }
	err = json.Unmarshal(data.Result, &series)
	for _, s := range series {
		result = append(result, s.Metric)
	}
	return result, err
}

// metrics returns the metrics that Prometheus has scraped, with their labels.
func (p *prometheus) metrics() promMetrics {
	p.t.Helper()
	var series []promSeries
	if err := p.ask("series?match[]="+url.QueryEscape(`{job="edge"}`), &series); err != nil {
		p.t.Fatal(err)
	}
	known := promMetrics{}
	for _, s := range series {
		m := known.add(s["__name__"])
		for label := range s {
			m.labels[label] = true
		}
	}
	return known
}

// alerts returns the states of the alerts: inactive, pending or firing. It fails the test
// if a rule cannot be evaluated.
func (p *prometheus) alerts() map[string]string {
	p.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string }
		}
	}
	if err := p.ask("rules", &data); err != nil {
		p.t.Fatal(err)
	}
	states := map[string]string{}
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health == "err" {
				p.t.Errorf("the alert %s: %s", r.Name, r.LastError)
			}
			if r.Health == "ok" {
				states[r.Name] = r.State
			}
		}
	}
	return states
}

// observedCluster is a cluster of three nodes that carries TCP, HTTP and Kafka.
func observedCluster(t *testing.T) (f *cluster, traffic func()) {
	t.Helper()
	f = startCluster(t, 3, "--http-insecure")
	kafkaText, _ := kafkaExample(t)
	kafkaText = strings.Replace(kafkaText, "address: 127.0.0.1, ", "", 1) // at each node's --bind
	kafkaPort := regexp.MustCompile(`bootstrapPort: (\d+)`).FindStringSubmatch(kafkaText)[1]
	httpText, _ := httpExample(t)
	httpText = regexp.MustCompile(`"unix:[^"]*"`).ReplaceAllString(httpText, `":9101"`)
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, []byte("mail: [{address: \"127.0.0.1:1\"}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.members[0].apply(serviceOnAll("echo", "9100", testkit.Serve(t, echo)) + kafkaText + httpText + fmt.Sprintf(`---
kind: EndpointProvider
name: listed
spec: {type: file, file: {path: %q}}
---
kind: Service
name: mail
spec: {endpointsFrom: [{provider: listed, service: mail}], circuitBreaker: {service: {connections: 10}}}
---
kind: RateLimit
name: all
spec: {concurrent: 1000000, connections: {rate: 1000000}}
`, file))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return f, func() {
		for _, m := range f.members[:2] {
			c := dial(t, m.ip+":9100")
			roundTrip(t, c, "x")
			_ = c.Close()
			resp, err := client.Get("http://" + m.ip + ":9101/")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			kafkaOnce(t.Context(), t, m.ip+":"+kafkaPort)
		}
	}
}

// Prometheus scrapes a cluster with traffic: every query of the board and of the alerts
// names what nodes export, is evaluated without an error, and has a result where nothing
// in it selects only what is wrong. Metrics of parts that are not in use there are those
// of docs/metrics.md.
func TestBoardAndAlertsOnACluster(t *testing.T) {
	t.Parallel()
	f, traffic := observedCluster(t)
	var targets []string
	for _, m := range f.members {
		targets = append(targets, m.ip+":"+httpPort)
	}
	p := startPrometheus(t, targets)
	queries, ready := allQueries(t, ".*"), map[string]string{}
	testkit.WaitFor(t, "the rules to be evaluated on scrapes of all nodes", func() bool {
		traffic()
		up, err := p.query("up == 1")
		ready = p.alerts()
		return err == nil && len(up) == 3 && len(ready) == len(alertRules(t))
	})
	live, known := p.metrics(), documentedMetrics(t)
	for name, m := range live {
		for label := range m.labels {
			known.add(name).labels[label] = true
		}
	}
	var wantResult []namedQuery
	for i, q := range allQueries(t, anyValue) {
		checked, labels := checkQuery(known, q.query)
		for _, fault := range checked.faults {
			t.Errorf("%s: %s\n\t%s", q.where, fault, q.query)
		}
		for _, m := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
			if !labels[m[1]] {
				t.Errorf("%s: the result has no label %q for %q", q.where, m[1], q.legend)
			}
		}
		inUse := true
		for name := range checked.names {
			inUse = inUse && live[name] != nil
		}
		if inUse && !checked.filters {
			wantResult = append(wantResult, queries[i])
		}
	}
	if t.Failed() {
		return
	}
	if len(wantResult) < 60 {
		t.Errorf("only %d queries are about what the cluster does", len(wantResult))
	}
	for _, q := range queries {
		if _, err := p.query(q.query); err != nil {
			t.Errorf("%s: %v\n\t%s", q.where, err, q.query)
		}
	}
	var none []string
	if !testkit.Poll(testkit.Patience, func() bool {
		traffic()
		none = nil
		for _, q := range wantResult {
			if series, err := p.query(q.query); err != nil || len(series) == 0 {
				none = append(none, fmt.Sprintf("%s: %v\n\t%s", q.where, err, q.query))
			}
		}
		return len(none) == 0
	}) {
		t.Errorf("no result:\n%s", strings.Join(none, "\n"))
	}
	f.mustAlert(p)
}

// mustAlert kills a node and waits for the alerts about it, and for no others about the
// cluster.
func (f *cluster) mustAlert(p *prometheus) {
	f.t.Helper()
	f.members[2].kill()
	wanted := []string{"PenstockNodeDown", "PenstockMemberUnreachable"}
	testkit.WaitFor(f.t, fmt.Sprint("alerts about the node that was killed: ", wanted), func() bool {
		states := p.alerts()
		return !slices.ContainsFunc(wanted, func(name string) bool { return states[name] == "inactive" })
	})
	for _, name := range []string{"PenstockTwoLeaders", "PenstockLogFault", "PenstockListenerDown", "PenstockUnreadableResources", "PenstockWrongTokens"} {
		if state := p.alerts()[name]; state != "inactive" {
			f.t.Errorf("%s is %s", name, state)
		}
	}
}
