package integration

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "penstock"

// mayImport lists, for each top-level folder, the other ones that its packages
// may import (drawn in docs/architecture.md). Tests may also import internal.
var mayImport = map[string][]string{
	"cmd":       {"node", "consensus", "gossip", "kafka", "mysql", "netio", "routing", "deploy"},
	"deploy":    {},
	"node":      {"consensus", "gossip", "kafka", "mysql", "netio", "routing"},
	"kafka":     {"netio", "routing"},
	"mysql":     {"netio", "routing"},
	"netio":     {},
	"routing":   {},
	"consensus": {},
	"gossip":    {},
	"internal":  {},
	// Tests and measurements use everything.
	"integration": {"cmd", "node", "consensus", "gossip", "kafka", "mysql", "netio", "routing"},
}

// mayImportInside lists what packages inside a top-level folder may import from
// the module: whole top-level folders, and packages by name. Tests may also
// import forTests.
var mayImportInside = map[string][]string{
	"consensus/membership": {},
	"consensus/replica":    {"consensus/snapshot", "consensus/store"},
	"consensus/snapshot":   {"consensus/store"},
	"consensus/store":      {},

	"mysql/mysqltest": {"mysql/wire"},
	"mysql/wire":      {},

	"node/api": {"routing", "node/telemetry"},
	"node/cluster/bootstrap": {
		"consensus", "node/api", "node/rpc", "node/trust", "node/cluster/datadir", "node/cluster/directory", "node/cluster/record",
		"node/cluster/rotation",
	},
	"node/cluster/datadir": {"node/trust"},
	"node/cluster/directory": {
		"consensus", "gossip", "node/api", "node/mux", "node/rpc", "node/trust", "node/cluster/datadir", "node/cluster/record",
	},
	"node/cluster/leader": {
		"consensus", "node/api", "node/rpc", "node/trust", "node/cluster/directory", "node/cluster/identity",
		"node/cluster/record", "node/cluster/rotation",
	},
	"node/cluster/identity": {"consensus", "node/api", "node/rpc", "node/trust", "node/cluster/record", "routing"},
	"node/cluster/record":   {"consensus", "node/trust"},
	"node/cluster/rotation": {"consensus", "node/api", "node/rpc", "node/trust", "node/cluster/record"},
	"node/cluster/token":    {"consensus", "node/api", "node/rpc", "node/trust", "node/cluster/record", "routing"},
	"node/accesslog":        {"routing", "node/trace"},
	"node/logs":             {"node/accesslog", "node/api"},
	"node/acme":             {"consensus", "netio/clienthello", "routing"},
	"node/audit":            {"consensus/store", "node/api", "node/rpc"},
	"node/dataplane":        {"kafka", "mysql", "netio", "routing", "node/accesslog", "node/api", "node/audit", "node/tlsconfig", "node/trace", "node/trust"},
	"node/events":           {"node/api"},
	"node/expiry":           {"routing"},
	"node/federation":       {"consensus", "routing", "node/tlsconfig", "node/trust"},
	"node/follow":           {"routing", "node/files"},
	"node/kinds":            {"kafka", "routing", "node/api", "node/cluster/record"},
	"node/kubernetes":       {"routing", "node/api", "node/kinds"},
	"node/lifecycle":        {},
	"node/metrics": {
		"kafka", "routing", "node/accesslog", "node/acme", "node/api", "node/audit", "node/rpc", "node/catalog", "node/cluster", "node/dataplane",
		"node/events", "node/expiry", "node/federation", "node/follow", "node/kinds", "node/kubernetes", "node/lifecycle", "node/logs", "node/mux",
		"node/otlp", "node/providers", "node/quota", "node/rollout",
		"node/svid", "node/telemetry", "node/trust", "node/workload", "node/xds",
	},
	"node/otlp":          {"routing", "node/accesslog", "node/tlsconfig", "node/trace"},
	"node/otlp/otlptest": {},
	"node/trace":         {},

	"node/nodetest":  {"routing", "node/kinds"},
	"node/providers": {"consensus", "routing", "node/files", "node/tlsconfig"},
	"node/quota":     {"routing", "node/api"},
	"node/svid":      {"routing", "node/files", "node/workload"},
	"node/telemetry": {},
	"node/ui":        {"node/api", "node/rpc"},
	"node/workload":  {"routing", "node/api", "node/trust"},

	"node/xds":              {"routing", "node/api", "node/xds/snapshot", "node/xds/stream"},
	"node/xds/snapshot":     {"routing"},
	"node/xds/snapshottest": {"routing", "node/xds/snapshot"},
	"node/xds/stream":       {"node/xds/snapshot"},
	"node/xds/translate":    {"routing", "node/xds/snapshot"},
}

var forTests = []string{"node/kinds", "node/nodetest", "node/otlp/otlptest", "node/xds/snapshottest"}

// onlyTests are packages that nothing but tests and measurements imports.
var onlyTests = []string{"mysql/mysqltest", "node/nodetest", "node/otlp/otlptest"}

// Packages with a list import only what it allows, and only tests import
// packages for tests.
func TestPackagesKeepToTheirImports(t *testing.T) {
	seen := map[string]bool{}
	forEachGoFile(t, func(path string, file *ast.File, _ *token.FileSet) {
		from, test := filepath.ToSlash(filepath.Dir(path)), strings.HasSuffix(path, "_test.go")
		allowed, listed := mayImportInside[from]
		seen[from] = true
		for _, imp := range file.Imports {
			target, inside := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"/")
			switch {
			case !inside:
			case slices.Contains(onlyTests, target) && !test && !strings.HasPrefix(path, "integration/"):
				t.Errorf("%s imports %s, which is for tests", path, target)
			case strings.HasPrefix(target, "internal/"): // TestImportsPointOneWay checks it
			case !listed || target == from || test && slices.Contains(forTests, target):
			case !slices.ContainsFunc(allowed, func(one string) bool { return target == one || strings.HasPrefix(target, one+"/") }):
				t.Errorf("%s imports %s: %s may import only %v", path, target, from, allowed)
			}
		}
	})
	for from := range mayImportInside {
		if !seen[from] {
			t.Errorf("there is no package %s", from)
		}
	}
}

// mayUseTestkit reports whether a file may import internal: tests, measurements
// and what tests of node share.
func mayUseTestkit(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "integration/") || strings.HasPrefix(path, "node/nodetest/")
}

func TestImportsPointOneWay(t *testing.T) {
	checked := 0
	forEachGoFile(t, func(path string, file *ast.File, _ *token.FileSet) {
		room := strings.SplitN(path, "/", 2)[0]
		allowed, known := mayImport[room]
		if !known {
			t.Errorf("%s: %q is no room of the house", path, room)
			return
		}
		for _, imp := range file.Imports {
			target, inside := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"/")
			if !inside {
				continue
			}
			checked++
			other := strings.SplitN(target, "/", 2)[0]
			switch {
			case other == room:
			case other == "internal":
				if !mayUseTestkit(path) {
					t.Errorf("%s imports %s, which is for tests", path, target)
				}
			case !slices.Contains(allowed, other):
				t.Errorf("%s imports %s: %s may import only %v", path, target, room, allowed)
			}
		}
	})
	if checked == 0 {
		t.Fatal("no import was checked: the walk found nothing")
	}
}

func TestFilesAndFunctionsStayShort(t *testing.T) {
	const maxFile, maxFunc = 600, 70
	forEachGoFile(t, func(path string, file *ast.File, fset *token.FileSet) {
		if n := fset.Position(file.End()).Line; n > maxFile {
			t.Errorf("%s has %d lines, over %d: split it", path, n, maxFile)
		}
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
			if n > maxFunc {
				t.Errorf("%s: %s has %d lines, over %d: split it", path, f.Name.Name, n, maxFunc)
			}
		}
	})
}

func TestNoTestSleeps(t *testing.T) {
	forEachGoFile(t, func(path string, file *ast.File, fset *token.FileSet) {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "internal/") && !strings.HasPrefix(path, "node/nodetest/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
				t.Errorf("%s sleeps: wait for a condition instead", fset.Position(n.Pos()))
			}
			return true
		})
	})
}

// A test that is skipped where CI=true checks nothing, in silence: only
// testkit.NotTested skips, and Kafka's suites by the length that was asked for. A test
// that the race detector would distort is in a file for builds without it, which
// norace.sh runs.
func TestOnlyNotTestedSkips(t *testing.T) {
	found := 0
	forEachGoFile(t, func(path string, file *ast.File, fset *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Skip" && sel.Sel.Name != "Skipf" && sel.Sel.Name != "SkipNow" {
				return true
			}
			of, ok := sel.X.(*ast.Ident)
			switch {
			case !ok || of.Name != "t" && of.Name != "b" && of.Name != "f":
			case strings.HasPrefix(path, "integration/kafka/"), path == "internal/testkit/testkit.go":
				found++
			case path == "netio/relay/random_test.go": // rapid draws another action
			default:
				t.Errorf("%s skips: use testkit.NotTested", fset.Position(n.Pos()))
			}
			return true
		})
	})
	if found < 5 {
		t.Errorf("only %d of the allowed skips were found", found)
	}
}

// TestMakefileRunsTestsThatExist checks that each name in a -run or -bench
// pattern of the Makefile is part of a test's name: a renamed test would
// otherwise no longer run, in silence.
func TestMakefileRunsTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var tests []string
	forEachGoFile(t, func(path string, file *ast.File, _ *token.FileSet) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasSuffix(path, "_test.go") {
				tests = append(tests, f.Name.Name)
			}
		}
	})
	checked := 0
	for _, m := range regexp.MustCompile(`-(?:run|bench) '?\^?([A-Za-z|]+)`).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(m[1], "|") {
			checked++
			if !slices.ContainsFunc(tests, func(test string) bool { return strings.Contains(test, name) }) {
				t.Errorf("Makefile runs %q: no test has that in its name", name)
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d patterns were checked", checked)
	}
}

func TestGoModHasNoReplace(t *testing.T) {
	f, err := os.Open(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	n := 0
	for lines.Scan() {
		n++
		if strings.HasPrefix(strings.TrimSpace(lines.Text()), "replace") {
			t.Errorf("go.mod:%d: a replace breaks go install", n)
		}
	}
	if n == 0 {
		t.Fatal("go.mod is empty")
	}
}

// forEachGoFile visits every Go file of the module; path is relative to the
// root, with slashes.
func forEachGoFile(t *testing.T, visit func(path string, file *ast.File, fset *token.FileSet)) {
	t.Helper()
	top := root(t)
	parsed.Do(func() { parsed.err = parseBelow(top) })
	if parsed.err != nil {
		t.Fatal(parsed.err)
	}
	for i, path := range parsed.paths {
		visit(path, parsed.files[i], parsed.fset)
	}
}

// parsed holds the module's files, parsed once for all tests. They must not be
// modified.
var parsed struct {
	sync.Once
	fset  *token.FileSet
	paths []string
	files []*ast.File
	err   error
}

func parseBelow(top string) error {
	parsed.fset = token.NewFileSet()
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != top && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(parsed.fset, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		parsed.paths, parsed.files = append(parsed.paths, filepath.ToSlash(rel)), append(parsed.files, file)
		return err
	})
}

// root returns the folder of go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
}
