package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/otlp/otlptest"
)

// The first example of docs/telemetry.md, with the key of a collector, makes every node
// send, and no node has the key in plain text on its disk or in its answers.
func TestEachNodeSendsToTheCollector(t *testing.T) {
	t.Parallel()
	c := otlptest.New(t, otlptest.Config{})
	m := regexp.MustCompile("(?s)```yaml\n(kind: Telemetry.*?)```").FindStringSubmatch(readDocument(t, "docs/telemetry.md"))
	if m == nil {
		t.Fatal("docs/telemetry.md has no example")
	}
	const key = "hunter2-hunter2-hunter2"
	example, n := m[1], 0
	example = regexp.MustCompile(`"127\.0\.0\.1:4317"`).ReplaceAllStringFunc(example, func(string) string {
		n++
		return fmt.Sprintf("%q, headers: [{name: x-key, value: %s}]", c.Address, key)
	})
	if n != 1 {
		t.Fatalf("the example has %d endpoints:\n%s", n, example)
	}
	f := startCluster(t, 3)
	f.members[1].apply(example)
	nodes, clusters := map[string]bool{}, map[string]bool{}
	testkit.WaitFor(t, "metrics of three nodes", func() bool {
		for _, m := range c.Metrics() {
			nodes[m.Resource["penstock.node"]], clusters[m.Resource["penstock.cluster"]] = true, true
		}
		return len(nodes) == 3
	})
	if len(clusters) != 1 || clusters[""] || c.Header().Get("x-key") != key {
		t.Errorf("clusters %v, headers %v", clusters, c.Header())
	}
	looked := 0
	for _, m := range f.members {
		err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() { // a temporary file that was removed
				return nil
			}
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if looked++; bytes.Contains(text, []byte(key)) {
				t.Errorf("%s has the key in plain text", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked < 3 {
		t.Fatalf("looked at %d files", looked)
	}
}
