package follow

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plane records what is in force.
type plane struct {
	mu sync.Mutex
	m  map[resource.Key]resource.Spec
}

func (p *plane) apply(_ *validate.Set, changes []resource.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ch := range changes {
		if ch.Delete {
			delete(p.m, ch.Key)
		} else {
			p.m[ch.Key] = ch.Spec
		}
	}
}

// cert returns the chain of the certificate "a" that is in force; "": there is none.
func (p *plane) cert() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, _ := p.m[key].(*resource.Certificate)
	if c == nil {
		return ""
	}
	return c.Cert
}

var key = resource.Key{Kind: "Certificate", Name: "a"}

// start returns a running Manager that checks files all the time.
func start(t *testing.T) (*Manager, *plane, *testkit.Log) {
	t.Helper()
	p, log := &plane{m: map[resource.Key]resource.Spec{}}, &testkit.Log{}
	m := New(Config{Apply: p.apply, Log: slog.New(slog.NewTextHandler(log, nil)), Interval: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return m, p, log
}

func write(t *testing.T, dir string, p certs.Pair) {
	t.Helper()
	for name, text := range map[string]string{"cert": p.Cert, "key": p.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// publish replaces both files in one step, as volumes of Kubernetes are: the links cert
// and key lead through the link "now" to the folder of a version.
func publish(t *testing.T, dir, version string, p certs.Pair) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, version), p)
	for _, name := range []string{"cert", "key"} {
		if err := os.Symlink(filepath.Join("now", name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(version, filepath.Join(dir, "next")),
		os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "now"))); err != nil {
		t.Fatal(err)
	}
}

func followed(dir string) []resource.Change {
	return []resource.Change{resource.Put(resource.Object{Key: key, Spec: &resource.Certificate{
		Follow: true, CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"),
	}})}
}

// The periodic check finds what has changed, without being asked.
func TestChangesAreFound(t *testing.T) {
	t.Parallel()
	dir, first, second := t.TempDir(), certs.SelfSigned("a.example"), certs.SelfSigned("a.example")
	m, p, log := start(t)
	publish(t, dir, "1", first)
	m.Apply(nil, followed(dir))
	if p.cert() != first.Cert {
		t.Error("the files are not read when the resource is applied")
	}
	publish(t, dir, "2", second)
	testkit.WaitFor(t, "the second certificate", func() bool { return p.cert() == second.Cert })
	if err := os.Remove(filepath.Join(dir, "now")); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the fault", func() bool { return len(m.Problems("n")) == 1 })
	if p.cert() != second.Cert {
		t.Error("the fault removed the certificate")
	}
	m.Apply(nil, followed(dir)) // a change of something else in the resource
	if p.cert() != second.Cert {
		t.Error("applying the resource again removed the certificate")
	}
	publish(t, dir, "3", first)
	testkit.WaitFor(t, "the first certificate again", func() bool { return p.cert() == first.Cert })
	testkit.WaitFor(t, "the end of the fault", func() bool { return len(m.Problems("n")) == 0 })
	if got := strings.Count(log.String(), "level=ERROR"); got != 1 { // while the files were missing
		t.Errorf("%d errors were logged:\n%s", got, log)
	}
}

// A resource that names other files has only their content, and one that names none
// needs none.
func TestOtherFilesReplaceContent(t *testing.T) {
	t.Parallel()
	dir, other, pair := t.TempDir(), t.TempDir(), certs.SelfSigned("a.example")
	m, p, _ := start(t)
	write(t, dir, pair)
	m.Apply(nil, followed(dir))
	m.Apply(nil, followed(other))
	if p.cert() != "" {
		t.Error("the content of the former files stays in use")
	}
	write(t, other, pair)
	testkit.WaitFor(t, "the certificate", func() bool { return p.cert() == pair.Cert })
	m.Apply(nil, []resource.Change{resource.Put(resource.Object{Key: key, Spec: &resource.Certificate{Cert: "inline"}})})
	if p.cert() != "inline" || len(m.State()) != 0 {
		t.Errorf("%q in force, %v followed", p.cert(), m.State())
	}
	m.Apply(nil, followed(dir))
	m.Apply(nil, []resource.Change{resource.Delete(key)})
	if p.cert() != "" || len(m.State()) != 0 {
		t.Errorf("deleted: %q in force, %v followed", p.cert(), m.State())
	}
}

// Files that are unusable at one check may be in the middle of a replacement: only the
// next check tells of them, except where an administrator asks or nothing is in force.
func TestAFaultIsToldWhenItLasts(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), &testkit.Log{}
	p := &plane{m: map[resource.Key]resource.Spec{}}
	m := New(Config{Apply: p.apply, Log: slog.New(slog.NewTextHandler(log, nil))})
	told := func() bool {
		t.Helper()
		if logged := strings.Contains(log.String(), "level=ERROR"); logged != (m.State()[0].Err != nil) {
			t.Errorf("the log and the state disagree: %v\n%s", m.State(), log)
		}
		return m.State()[0].Err != nil
	}
	pair := certs.SelfSigned("a.example")
	write(t, dir, pair)
	m.Apply(nil, followed(dir))
	write(t, dir, certs.Pair{Cert: pair.Cert, Key: pair.Key[:len(pair.Key)/2]})
	if m.poll(false); told() {
		t.Error("told at the first check")
	}
	if m.poll(false); !told() || !m.State()[0].Kept || p.cert() != pair.Cert {
		t.Errorf("at the second check: %+v, in force %q", m.State(), p.cert())
	}
	m.Apply(nil, []resource.Change{resource.Delete(key)})
	if m.Apply(nil, followed(t.TempDir())); !told() || m.State()[0].Kept {
		t.Errorf("files that were never there: %+v", m.State())
	}
}
