package demo

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

func TestSweepRemovesOnlyDemoFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	swept := make(chan error)
	go func() { swept <- Sweep(r, dir) }()
	if _, err := w.Write([]byte("the demo runs")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the folder of a demo that runs: %v", err)
	}
	w.Close()
	if err := <-swept; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder is still there")
	}
	for _, other := range []string{
		os.TempDir(), filepath.Join(os.TempDir(), "other"),
		filepath.Join(dir, "..", ".."), "/" + folderPrefix + "1",
	} {
		if err := Sweep(strings.NewReader(""), other); err == nil {
			t.Errorf("%s was taken for a folder of a demo", other)
		}
	}
}

// If a user's own nodes have the default ports, the demo uses others.
func TestTakenPortsAreSkipped(t *testing.T) {
	mine := testkit.Listen(t)
	l, err := listen(t.Context(), portOf(mine))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	all := hosts(portOf(l))
	if slices.Equal(all, hosts(shopPort)) || len(slices.Compact(slices.Sorted(slices.Values(all)))) != nodeCount {
		t.Errorf("the hosts are %v", all)
	}
	taken, err := net.Listen("tcp", all[2]+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port, err := freePort(t.Context(), all, portOf(taken))
	if err != nil || port == portOf(taken) || !free(t.Context(), all, port) {
		t.Errorf("got port %d where %d is taken, %v", port, portOf(taken), err)
	}
}

// The demo's nodes ignore a user's settings for other nodes.
func TestNodesDoNotInheritSettings(t *testing.T) {
	t.Setenv("PENSTOCK_TOKEN", "secret")
	t.Setenv("OTHER", "kept")
	env := environment()
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PENSTOCK_") }) || !slices.Contains(env, "OTHER=kept") {
		t.Errorf("the environment is %v", env)
	}
}

// If another demo has the default plain-text Kafka ports, others are found.
func TestSecondDemoFindsKafkaPorts(t *testing.T) {
	if taken, err := net.Listen("tcp", at("127.0.0.1", plainPort)); err == nil { // else another program has it
		defer taken.Close()
	}
	first, err := plainPorts(t.Context(), hosts(plainPort))
	if err != nil {
		t.Fatal(err)
	}
	if first == 0 || first == plainPort {
		t.Errorf("the first port is %d", first)
	}
}
