package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/node/trust"
)

// A --dev node does not use the state in a folder: a cluster's node started with
// --dev by mistake would seem to have lost everything.
func TestDevRefusesDataDirOfClusterNode(t *testing.T) {
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
	if !errors.Is(err, errClusterDataDir) || !strings.Contains(err.Error(), dir) {
		t.Errorf("it starts with %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Error("it has locked the folder")
	}
	cfg.DataDir = t.TempDir()
	for range 2 { // the second time the folder holds files of a --dev node
		n, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		_ = n.Stop(t.Context())
	}
}
