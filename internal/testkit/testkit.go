// Package testkit has what the tests of all packages share: waiting for a
// condition, servers on a loopback port, logs, leak checks; below it
// certificates and processes. It imports nothing else of the module, so that
// every package can use it, and only tests and measurements import it.
//
//	addr := testkit.Serve(t, func(c net.Conn) { io.Copy(c, c) })
//	...
//	testkit.WaitFor(t, "the connection to be counted", func() bool { return count.Load() == 1 })
package testkit

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience bounds each wait of a test. It is long because it only ends hangs:
// the result of no test may depend on it, even on a busy machine.
const Patience = 5 * time.Minute

// NotTested ends a test that cannot run here, because a program, a right or a part of
// the system is missing: it fails the test where CI=true, and skips it elsewhere.
func NotTested(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("cannot be tested: "+format, args...)
	}
	t.Skipf("NOT TESTED: "+format, args...)
}

// WaitFor waits until cond returns true, and fails the test if that takes
// longer than Patience.
func WaitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if !Poll(Patience, cond) {
		t.Fatalf("timed out after %v: %s", Patience, what)
	}
}

// Poll calls cond until it returns true or the limit is over, and returns the
// last result. It calls less often as time passes and pauses at least as long
// as a call takes, because cond may take CPU from what it waits for.
func Poll(limit time.Duration, cond func() bool) bool {
	const first, longest = time.Millisecond, 50 * time.Millisecond
	end := time.After(limit)
	for pause := first; ; pause = min(pause+first, longest) {
		begin := time.Now()
		if cond() {
			return true
		}
		select {
		case <-time.After(max(pause, time.Since(begin))):
		case <-end:
			return cond()
		}
	}
}

// Receive waits for a value of a channel, or for its end. It fails the test if
// that takes longer than Patience.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience):
		t.Fatalf("timed out after %v: %s", Patience, what)
		panic("unreachable")
	}
}

// Parallel sets how many parallel tests run at once, unless -parallel does. It
// is for packages whose tests mostly wait for timers or processes, so that more
// of them can run than there are processors. TestMain calls it first.
func Parallel(tests string) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", tests); err != nil {
		panic(err)
	}
}

// VerifyTestMain is goleak.VerifyTestMain with patience: it waits until all
// goroutines have ended. It is for packages whose goroutines end only after a
// timeout of their own, such as a probe's.
func VerifyTestMain(m *testing.M) {
	code := m.Run()
	var leak error
	if code == 0 && !Poll(Patience, func() bool { leak = goleak.Find(); return leak == nil }) {
		fmt.Fprintln(os.Stderr, leak)
		code = 1
	}
	os.Exit(code)
}

// Log is an io.Writer that collects a log. It may be read while it is written.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what has been written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
