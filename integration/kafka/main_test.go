package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/integration/process"
	"penstock/integration/realkafka"
)

// patience is how long a test waits for what must come, on a machine that is
// busy with everything else.
const patience = 5 * time.Minute

// scratch is a folder for what lives as long as the run.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "penstock-kafka-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	if err := process.AtOnce("4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if started {
		if c, err := shared(); err == nil {
			c.Stop()
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

var (
	started bool
	ids     atomic.Uint32
)

// shared is the one cluster, started by the first who asks.
var shared = sync.OnceValues(func() (*realkafka.Cluster, error) {
	started = true
	dir := filepath.Join(scratch, "cluster")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	// Its brokers live as long as the run: on a busy machine none is given up,
	// and no leader moves while a test is asking it.
	return realkafka.Start(ctx, realkafka.Config{Dir: dir, Brokers: 3, Quick: true, Properties: map[string]string{
		"broker.session.timeout.ms": "60000", "auto.leader.rebalance.enable": "false",
	}})
})

// cluster gives the shared one; what its brokers said is shown when the test
// fails. Where Kafka is not installed the test fails in CI, and is skipped
// elsewhere.
func cluster(t testing.TB) *realkafka.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("NOT TESTED: -short starts no brokers")
	}
	c, err := shared()
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}
	})
	return c
}

// atLength reports whether there is time for everything (make test-long).
func atLength() bool { return os.Getenv("PENSTOCK_LONG") != "" }

// whole reports whether the suites run whole (CI, and make test-kafka): every
// program on every target, and every version of every API. Without it each
// test runs on a sample.
func whole() bool { return os.Getenv("PENSTOCK_SUITE") == "whole" || atLength() }

// ofSuite leaves a test out that only the whole suites have.
func ofSuite(t testing.TB) {
	t.Helper()
	if !whole() {
		t.Skip("make test-kafka runs it")
	}
}

// versions are those of an API that are asked: all of the range where the
// suites run whole, else its oldest and the two newest.
func versions(oldest, newest int16) []int16 {
	var all []int16
	for v := oldest; v <= newest; v++ {
		if whole() || v == oldest || v >= newest-1 {
			all = append(all, v)
		}
	}
	return all
}

// long leaves a test out where there is no such time.
func long(t testing.TB) {
	t.Helper()
	if !atLength() {
		t.Skip("make test-long runs it")
	}
}

// must ends the test on an error: as a skip where something is not installed,
// unless this is CI.
func must(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, realkafka.ErrMissing) && os.Getenv("CI") != "true":
		t.Skip("NOT TESTED: ", err)
	default:
		t.Fatal(err)
	}
}

// requirePeer gives the path of a program that setup.sh installs.
func requirePeer(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		must(t, fmt.Errorf("%s: %w", name, realkafka.ErrMissing))
	}
	return path
}

// waitFor polls until the condition holds.
func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("waited %v for %s", patience, what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
