package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
)

// Files for Prometheus and Grafana.
const (
	alertsFile     = "deploy/prometheus/penstock-alerts.yml"
	alertTestsFile = "deploy/prometheus/penstock-alerts_test.yml"
	boardFile      = "deploy/grafana/penstock.json"
)

// alertRule is a rule of alertsFile.
type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string      `yaml:"name"`
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	decodeYAML(t, alertsFile, &file)
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) < 30 {
		t.Fatalf("%s has only %d rules", alertsFile, len(rules))
	}
	return rules
}

func decodeYAML(t *testing.T, file string, into any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(readDocument(t, file)))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// Every alert is valid, fires on what it is for, and does not fire before its time nor on
// what is well.
func TestAlertsFire(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", alertTestsFile}} {
		args[2] = filepath.Join(root(t), args[2])
		if r := peer(t, "", "promtool", args...); r.code != 0 {
			t.Errorf("promtool %v: %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	var tests struct {
		RuleFiles          []string `yaml:"rule_files"`
		EvaluationInterval string   `yaml:"evaluation_interval"`
		Tests              []struct {
			Name          string           `yaml:"name"`
			Interval      string           `yaml:"interval"`
			InputSeries   []map[string]any `yaml:"input_series"`
			AlertRuleTest []struct {
				Alert string           `yaml:"alertname"`
				Time  string           `yaml:"eval_time"`
				Exp   []map[string]any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	decodeYAML(t, alertTestsFile, &tests)
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, a := range test.AlertRuleTest {
			fires[a.Alert] = fires[a.Alert] || len(a.Exp) > 0 && len(test.InputSeries) > len(a.Exp)
			rests[a.Alert] = rests[a.Alert] || len(a.Exp) == 0
		}
	}
	for _, r := range alertRules(t) {
		if !fires[r.Alert] || !rests[r.Alert] {
			t.Errorf("%s: fires in a test: %v, does not fire in a test: %v", r.Alert, fires[r.Alert], rests[r.Alert])
		}
	}
}

// docs/alerts.md lists the alerts with their severities, and says of each what to do.
func TestDocsAlerts(t *testing.T) {
	inDocs, inRules := map[string]bool{}, map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `(Penstock\\w+)` \\| (\\w+) \\| ([^|]+) \\| ([^|]+) \\|$")
	for _, m := range row.FindAllStringSubmatch(readDocument(t, "docs/alerts.md"), -1) {
		inDocs[m[1]+" "+m[2]] = true
	}
	for _, r := range alertRules(t) {
		inRules[r.Alert+" "+r.Labels["severity"]] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
			t.Errorf("%s: severity %q, summary %q", r.Alert, r.Labels["severity"], r.Annotations["summary"])
		}
	}
	checkSame(t, "alert", inDocs, inRules)
}

// boardPanel is a panel of the board.
type boardPanel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource any    `json:"datasource"`
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct {
		RefID        string
		Expr         string
		LegendFormat string
		Datasource   any
	}
}

// board is the board of Grafana.
type board struct {
	UID           string       `json:"uid"`
	Title         string       `json:"title"`
	SchemaVersion int          `json:"schemaVersion"`
	Panels        []boardPanel `json:"panels"`
	Annotations   struct {
		List []struct {
			Expr        string
			TitleFormat string
		} `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []struct {
			Name, Type, Definition string
			Query                  any
		} `json:"list"`
	} `json:"templating"`
}

func readBoard(t *testing.T) *board {
	t.Helper()
	var b board
	if err := json.Unmarshal([]byte(readDocument(t, boardFile)), &b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// The board is one that Grafana takes, with the datasource that its user chooses.
func TestBoardIsWellFormed(t *testing.T) {
	b := readBoard(t)
	if b.UID != "penstock" || b.Title == "" || b.SchemaVersion < 36 {
		t.Errorf("uid %q, title %q, schemaVersion %d", b.UID, b.Title, b.SchemaVersion)
	}
	var rows, variables []string
	ids, titles := map[int]bool{}, map[string]bool{}
	for i, p := range b.Panels {
		if p.ID < 1 || ids[p.ID] || p.Title == "" {
			t.Errorf("panel %q: id %d is not unique, or it has no title", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
			clear(titles)
			continue
		}
		if titles[p.Title] {
			t.Errorf("two panels %q in the row %s", p.Title, rows[len(rows)-1])
		}
		titles[p.Title] = true
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: place %+v", p.Title, p.GridPos)
		}
		for _, other := range b.Panels[:i] {
			a, c := p.GridPos, other.GridPos
			if a.X < c.X+c.W && c.X < a.X+a.W && a.Y < c.Y+c.H && c.Y < a.Y+a.H {
				t.Errorf("%s lies over %s", p.Title, other.Title)
			}
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if target.RefID == "" || refs[target.RefID] || fmt.Sprint(target.Datasource) != chosenDatasource {
				t.Errorf("%s: target %q, datasource %v", p.Title, target.RefID, target.Datasource)
			}
			refs[target.RefID] = true
		}
		if len(p.Targets) == 0 || fmt.Sprint(p.Datasource) != chosenDatasource {
			t.Errorf("%s: %d targets, datasource %v", p.Title, len(p.Targets), p.Datasource)
		}
	}
	for _, v := range b.Templating.List {
		variables = append(variables, v.Name)
	}
	for what, pair := range map[string][2][]string{
		"rows": {rows, {
			"Cluster", "Traffic", "Errors by reason", "Latencies", "Kafka", "MySQL", "HTTP", "Limits and permissions", "Health",
			"Node resources",
		}},
		"variables": {variables, {"datasource", "job", "node", "listener", "service", "virtual_cluster"}},
	} {
		if !slices.Equal(pair[0], pair[1]) {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
	text, err := os.ReadFile(filepath.Join(root(t), boardFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"uid": *"([^"]*)"`).FindAllSubmatch(text, -1) {
		if uid := string(m[1]); uid != "${datasource}" && uid != b.UID {
			t.Errorf("the uid %q of a datasource exists in one Grafana alone", uid)
		}
	}
}

const chosenDatasource = "map[type:prometheus uid:${datasource}]"

// namedQuery is a query with the place where it stands.
type namedQuery struct {
	where, query string
	legend       string // uses {{label}}
}

var (
	boardVariable  = regexp.MustCompile(`\$(job|node|listener|service|virtual_cluster)\b`)
	labelValues    = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	legendLabel    = regexp.MustCompile(`\{\{ *(?:\$labels\.)?(\w+) *\}\}`)
	grafanaMacros  = strings.NewReplacer("$__rate_interval", "20s", "$__range", "1m", "$__interval", "20s")
	leftOverDollar = regexp.MustCompile(`\$\w+`)
)

// allQueries returns the queries of the board and of the alerts, with value for each
// variable.
func allQueries(t *testing.T, value string) (all []namedQuery) {
	t.Helper()
	b := readBoard(t)
	fill := func(q string) string {
		q = boardVariable.ReplaceAllString(grafanaMacros.Replace(q), value)
		if m := leftOverDollar.FindString(q); m != "" {
			t.Errorf("the variable %s is not known: %s", m, q)
		}
		return q
	}
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all = append(all, namedQuery{"panel " + p.Title, fill(target.Expr), target.LegendFormat})
		}
	}
	for _, a := range b.Annotations.List {
		all = append(all, namedQuery{"annotation", fill(a.Expr), a.TitleFormat})
	}
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		if q, _ := v.Query.(map[string]any); m == nil || q["query"] != v.Definition {
			t.Fatalf("variable %s: %q", v.Name, v.Definition)
		}
		all = append(all, namedQuery{"variable " + v.Name, "count by (" + m[2] + ") (" + fill(m[1]) + ")", ""})
	}
	for _, r := range alertRules(t) {
		all = append(all, namedQuery{"alert " + r.Alert, r.Expr, r.Annotations["summary"]})
	}
	return all
}
