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

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
)

// scratch is a folder that is removed at the end of the run.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "penstock-kafka-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	testkit.Parallel("4")
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

// shared is the shared cluster, started on first use.
var shared = sync.OnceValues(func() (*realkafka.Cluster, error) {
	started = true
	dir := filepath.Join(scratch, "cluster")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	// On a busy machine no broker must lose its session, and no leader must move
	// during a test.
	return realkafka.Start(ctx, realkafka.Config{Dir: dir, Brokers: 3, FastStart: true, Properties: map[string]string{
		"broker.session.timeout.ms": "60000", "auto.leader.rebalance.enable": "false",
	}})
})

// cluster returns the shared cluster; the end of its logs is printed if the
// test fails. If Kafka is not installed, the test fails in CI and is skipped
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

// longTests reports whether long tests are enabled (make test-long).
func longTests() bool { return os.Getenv("PENSTOCK_LONG") != "" }

// wholeSuite reports whether the whole suites run (CI, and make test-kafka): every
// program on every target, and every version of every API. Otherwise each test
// runs a sample.
func wholeSuite() bool { return os.Getenv("PENSTOCK_SUITE") == "whole" || longTests() }

// requireWholeSuite skips a test that runs only in the whole suites.
func requireWholeSuite(t testing.TB) {
	t.Helper()
	if !wholeSuite() {
		t.Skip("make test-kafka runs it")
	}
}

// versions returns the versions of an API to test: the whole range in the whole
// suites, otherwise the oldest and the two newest.
func versions(oldest, newest int16) []int16 {
	var all []int16
	for v := oldest; v <= newest; v++ {
		if wholeSuite() || v == oldest || v >= newest-1 {
			all = append(all, v)
		}
	}
	return all
}

// long skips a test unless long tests are enabled.
func long(t testing.TB) {
	t.Helper()
	if !longTests() {
		t.Skip("make test-long runs it")
	}
}

// must fails the test on an error. If a peer is not installed, it skips the
// test instead, except in CI.
func must(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, realkafka.ErrMissing):
		testkit.NotTested(t, "%v", err)
	default:
		t.Fatal(err)
	}
}

// requirePeer returns the path of a program that setup.sh installs.
func requirePeer(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		must(t, fmt.Errorf("%s: %w", name, realkafka.ErrMissing))
	}
	return path
}
