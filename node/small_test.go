package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/node/trust"
)

// With --dev nothing of a folder is used, and a node of a cluster that was
// started so would seem to have lost everything.
func TestDevKeepsOffTheFolderOfANode(t *testing.T) {
	dir := t.TempDir()
	id, err := trust.NewIdentity("n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Name: "n1", Dev: true, DataDir: dir, Cluster: "127.0.0.1:0", HTTP: "127.0.0.1:0", Loops: 1}
	n, err := Start(t.Context(), cfg)
	if err == nil {
		_ = n.Stop(t.Context())
	}
	if !errors.Is(err, errOfCluster) || !strings.Contains(err.Error(), dir) {
		t.Errorf("it starts with %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Error("it has locked the folder")
	}
	cfg.DataDir = t.TempDir()
	for range 2 { // its own leavings are no node
		n, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		_ = n.Stop(t.Context())
	}
}
