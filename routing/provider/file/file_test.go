package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web = provider.Query{Service: "web"}
	db  = provider.Query{Service: "db"}
)

// must fails the test if an operation on files fails.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes a file in place.
func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// replace writes a file under another name and renames it.
func replace(t testing.TB, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	must(t, os.Rename(path+".new", path))
}

// list is a file with one endpoint.
func list(address string) string { return fmt.Sprintf("- {address: %q}\n", address) }

// start runs a source. Changes that inotify does not report are seen after an
// hour, so that a test of inotify cannot pass by polling.
func start(t testing.TB, cfg Config, queries ...provider.Query) *providertest.Sink {
	t.Helper()
	cfg.PollInterval = time.Hour
	source, err := New(cfg)
	must(t, err)
	sink := providertest.NewSink(queries...)
	sink.Start(t, source)
	return sink
}

func TestListAnswersEveryQuery(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	write(t, path, list("10.0.0.1:80"))
	sink := start(t, Config{Path: path}, web, db)
	sink.Await(t, web, "10.0.0.1:80")
	sink.Await(t, db, "10.0.0.1:80")
}

// TestAnswersAreOfTheirOwn checks that a sink, which keeps and sorts what it is
// given, changes no other query's answer.
func TestAnswersAreOfTheirOwn(t *testing.T) {
	c := content{every: &service{endpoints: []provider.Endpoint{{Address: "a:1"}}}}
	first, err := c.answer(web)
	must(t, err)
	second, err := c.answer(db)
	must(t, err)
	first[0].Address = "b:1"
	if second[0].Address != "a:1" {
		t.Error("two queries share an answer")
	}
}

func TestMapAnswersItsServices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	write(t, path, "web: [{address: \"10.0.0.1:80\"}]\ndb: []\n")
	other, port := provider.Query{Service: "other"}, provider.Query{Service: "web", Port: "80"}
	sink := start(t, Config{Path: path}, web, db, other, port)
	sink.Await(t, web, "10.0.0.1:80")
	sink.Await(t, db, "none")
	sink.AwaitFailure(t, other, path+` has no service "other": list its endpoints there, or [] if it has none`)
	sink.AwaitFailure(t, port, "leave port out")

	replace(t, path, "db: [{address: \"10.0.0.2:80\"}]\n")
	sink.Await(t, db, "10.0.0.2:80")
	sink.AwaitFailure(t, web, `has no service "web"`)
	if got := sink.Text(web); got != "10.0.0.1:80" {
		t.Errorf("web is %q, want its last answer", got)
	}
	sink.Want(other)
	replace(t, path, "other: [{address: \"10.0.0.3:80\"}]\n")
	sink.Await(t, other, "10.0.0.3:80")
}

// TestChanges checks the ways in which files are changed.
func TestChanges(t *testing.T) {
	type step func(t *testing.T, dir string)
	tests := map[string]struct {
		path          string // below the test's folder
		first, second step
	}{
		"written in place": {"f.yaml",
			func(t *testing.T, dir string) { write(t, dir+"/f.yaml", list("10.0.0.1:80")) },
			func(t *testing.T, dir string) { write(t, dir+"/f.yaml", list("10.0.0.2:80")) }},
		"replaced by a rename": {"f.yaml",
			func(t *testing.T, dir string) { write(t, dir+"/f.yaml", list("10.0.0.1:80")) },
			func(t *testing.T, dir string) { replace(t, dir+"/f.yaml", list("10.0.0.2:80")) }},
		"its symlink is swapped": {"f.yaml",
			func(t *testing.T, dir string) {
				write(t, dir+"/1.yaml", list("10.0.0.1:80"))
				must(t, os.Symlink("1.yaml", dir+"/f.yaml"))
			},
			func(t *testing.T, dir string) {
				write(t, dir+"/2.yaml", list("10.0.0.2:80"))
				must(t, os.Symlink("2.yaml", dir+"/new"))
				must(t, os.Rename(dir+"/new", dir+"/f.yaml"))
			}},
		"changed where its symlink leads": {"f.yaml",
			func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir+"/far", 0o700))
				write(t, dir+"/far/f.yaml", list("10.0.0.1:80"))
				must(t, os.Symlink(dir+"/far/f.yaml", dir+"/f.yaml"))
			},
			func(t *testing.T, dir string) { replace(t, dir+"/far/f.yaml", list("10.0.0.2:80")) }},
		"in a ConfigMap": {"f.yaml", configMap("1", "10.0.0.1:80"), configMap("2", "10.0.0.2:80")},
		"the folder of a ConfigMap": {"",
			configMap("1", "10.0.0.1:80"), configMap("2", "10.0.0.2:80")},
		"in a folder whose symlink is swapped": {"link/f.yaml",
			func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir+"/v1", 0o700))
				write(t, dir+"/v1/f.yaml", list("10.0.0.1:80"))
				must(t, os.Symlink("v1", dir+"/link"))
			},
			func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir+"/v2", 0o700))
				write(t, dir+"/v2/f.yaml", list("10.0.0.2:80"))
				must(t, os.Symlink("v2", dir+"/new"))
				must(t, os.Rename(dir+"/new", dir+"/link"))
			}},
		"the folder is a file now": {"f.yaml",
			func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir+"/f.yaml", 0o700))
				write(t, dir+"/f.yaml/web.yaml", list("10.0.0.1:80"))
			},
			func(t *testing.T, dir string) {
				must(t, os.RemoveAll(dir+"/f.yaml"))
				write(t, dir+"/f.yaml", list("10.0.0.2:80"))
			}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			q := web
			if test.path == "" {
				q.Service = "f"
			}
			test.first(t, dir)
			sink := start(t, Config{Path: filepath.Join(dir, test.path)}, q)
			sink.Await(t, q, "10.0.0.1:80")
			test.second(t, dir)
			sink.Await(t, q, "10.0.0.2:80")
		})
	}
}

// TestNewFoldersAreWatched checks that changes are seen where the path leads
// after it led elsewhere.
func TestNewFoldersAreWatched(t *testing.T) {
	dir := t.TempDir()
	folder := func(name, address string) {
		t.Helper()
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name, "web.yaml"), list(address))
	}
	folder("v1", "10.0.0.1:80")
	must(t, os.Symlink("v1", dir+"/link"))
	sink := start(t, Config{Path: dir + "/link"}, web)
	sink.Await(t, web, "10.0.0.1:80")

	folder("v2", "10.0.0.2:80")
	must(t, os.Symlink("v2", dir+"/new"))
	must(t, os.Rename(dir+"/new", dir+"/link"))
	sink.Await(t, web, "10.0.0.2:80")
	replace(t, dir+"/v2/web.yaml", list("10.0.0.3:80"))
	sink.Await(t, web, "10.0.0.3:80")

	folder("v3", "10.0.0.4:80")
	must(t, os.Rename(dir+"/v2", dir+"/old"))
	must(t, os.Rename(dir+"/v3", dir+"/v2"))
	sink.Await(t, web, "10.0.0.4:80")
	replace(t, dir+"/v2/web.yaml", list("10.0.0.5:80"))
	sink.Await(t, web, "10.0.0.5:80")
}

// configMap writes a version of a folder as the kubelet does: the files lead
// through ..data, which is renamed.
func configMap(version, address string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		must(t, os.Mkdir(dir+"/.."+version, 0o700))
		write(t, dir+"/.."+version+"/f.yaml", list(address))
		must(t, os.Symlink(".."+version, dir+"/..data_tmp"))
		must(t, os.Rename(dir+"/..data_tmp", dir+"/..data"))
		if _, err := os.Lstat(dir + "/f.yaml"); errors.Is(err, os.ErrNotExist) {
			must(t, os.Symlink("..data/f.yaml", dir+"/f.yaml"))
		}
	}
}

// TestFileThatComesAndGoes checks a file whose folders do not exist yet.
func TestFileThatComesAndGoes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "f.yaml")
	sink := start(t, Config{Path: path}, web)
	sink.AwaitFailure(t, web, path+": no such file or directory: write the file, it will be read then")
	for _, address := range []string{"10.0.0.1:80", "10.0.0.2:80"} {
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		write(t, path, list(address))
		sink.Await(t, web, address)
		must(t, os.RemoveAll(filepath.Join(dir, "a")))
		sink.AwaitFailure(t, web, "no such file or directory")
		if got := sink.Text(web); got != address {
			t.Errorf("web is %q, want its last answer", got)
		}
	}
}

// TestFaultsKeepTheLastAnswer checks what cannot be read, and that the source
// recovers.
func TestFaultsKeepTheLastAnswer(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.yaml")
	write(t, path, list("10.0.0.1:80"))
	sink := start(t, Config{Path: path, MaxBytes: 1000}, web)
	sink.Await(t, web, "10.0.0.1:80")
	faults := []struct {
		want  string
		write func()
	}{
		{": is not YAML", func() { write(t, path, "- {address: \"10.0.0.2:80\"}\n- {addr") }},
		{path + ":1: is empty", func() { write(t, path, "") }},
		{path + " is larger than maxBytes", func() { replace(t, path, strings.Repeat("#", 1001)) }},
		{path + " is not a file: write a file there", func() {
			must(t, os.Remove(path))
			must(t, syscall.Mkfifo(path, 0o600))
		}},
		{"too many levels of symbolic links", func() {
			must(t, os.Remove(path))
			must(t, os.Symlink("f.yaml", path))
		}},
	}
	for _, fault := range faults {
		fault.write()
		sink.AwaitFailure(t, web, fault.want)
		if got := sink.Text(web); got != "10.0.0.1:80" {
			t.Errorf("after %q, web is %q, want its last answer", fault.want, got)
		}
	}
	must(t, os.Remove(path))
	write(t, path, list("10.0.0.2:80"))
	sink.Await(t, web, "10.0.0.2:80")
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/web.yaml", list("10.0.0.1:80"))
	write(t, dir+"/more.json", `{"db": [{"address": "10.0.0.2:80"}], "x": []}`)
	write(t, dir+"/web.yaml~", "an editor's")
	write(t, dir+"/.web.yaml.swp", "an editor's")
	write(t, dir+"/.hidden.yaml", "db: []")
	must(t, os.Mkdir(dir+"/folder.yaml.d", 0o700))
	x := provider.Query{Service: "x"}
	sink := start(t, Config{Path: dir}, web, db, x)
	sink.Await(t, web, "10.0.0.1:80")
	sink.Await(t, db, "10.0.0.2:80")
	sink.Await(t, x, "none")

	// A broken file leaves the others' services as they are.
	replace(t, dir+"/more.json", "{")
	sink.AwaitFailure(t, db, dir+` has no service "db" in the files that can be read: `+dir+"/more.json:1: is not JSON: it ends too early")
	replace(t, dir+"/web.yaml", list("10.0.0.3:80"))
	sink.Await(t, web, "10.0.0.3:80")
	replace(t, dir+"/web.yaml", "x")
	sink.AwaitFailure(t, web, dir+"/web.yaml:1: must be a list of endpoints")
	must(t, os.Remove(dir+"/more.json"))
	sink.AwaitFailure(t, x, `has no service "x" in the files that can be read: `+dir+"/web.yaml:1")

	write(t, dir+"/web.yaml", list("10.0.0.4:80"))
	sink.Await(t, web, "10.0.0.4:80")
	write(t, dir+"/twice.yml", "web: []\ndb: []\n")
	sink.AwaitFailure(t, web, `service "web" is in `+dir+"/twice.yml:1 and in "+dir+"/web.yaml:1: remove one")
	sink.Await(t, db, "none")
	must(t, os.Remove(dir+"/web.yaml"))
	sink.Await(t, web, "none")
}

func TestFolderIsBounded(t *testing.T) {
	dir := t.TempDir()
	sink := start(t, Config{Path: dir, MaxFiles: 2, MaxBytes: 200, MaxEndpoints: 3}, web)
	small := map[string]string{"x.yaml": "[]"}
	many, others := map[string]string{"x.yaml": "[]", "y.yaml": "[]"}, map[string]string{}
	for i := range maxOthers * 2 {
		others[fmt.Sprint("other", i)] = ""
	}
	for i, test := range []struct {
		files map[string]string
		want  string // "": nothing is wrong
	}{
		{small, ""},
		{map[string]string{"x.yaml": list("10.0.0.1:80") + list("10.0.0.2:80") + list("10.0.0.3:80")},
			dir + "/x.yaml:3: has more endpoints than maxEndpoints allows: raise it"},
		{small, ""},
		{map[string]string{"x.yaml": strings.Repeat("#", 199)},
			"x.yaml is larger than maxBytes, or than what other files leave of it: raise it"},
		{small, ""},
		{many, dir + " has more than 2 files: put several services into one, or raise maxFiles"},
		{small, ""},
		{others, dir + " has more than 2 files"},
		{small, ""},
	} {
		address := fmt.Sprintf("10.0.0.%d:80", i)
		write(t, dir+"/web.yaml", list(address))
		for name, text := range test.files {
			write(t, filepath.Join(dir, name), text)
		}
		if test.want == "" {
			sink.Await(t, web, address)
		} else {
			sink.AwaitFailure(t, web, test.want)
		}
		for name := range test.files {
			must(t, os.Remove(filepath.Join(dir, name)))
		}
	}
}

// lines is a log that counts.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestWithoutInotify checks that changes are polled, that this is said once, and
// that inotify is used once it is available.
func TestWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.yaml")
	write(t, path, list("10.0.0.1:80"))
	log := &lines{}
	source, err := New(Config{Path: path, Log: slog.New(slog.NewTextHandler(log, nil))})
	must(t, err)
	source.cfg.PollInterval = 5 * time.Millisecond
	var mu sync.Mutex
	attempts, available := 0, false
	source.newWatcher = func() (*fsnotify.Watcher, error) {
		mu.Lock()
		defer mu.Unlock()
		attempts++
		if !available {
			return nil, syscall.EMFILE
		}
		return fsnotify.NewWatcher()
	}
	sink := providertest.NewSink(web)
	sink.Start(t, source)
	sink.Await(t, web, "10.0.0.1:80")
	for _, address := range []string{"10.0.0.2:80", "10.0.0.33:80"} {
		replace(t, path, list(address))
		sink.Await(t, web, address)
	}
	must(t, os.Remove(path))
	sink.AwaitFailure(t, web, "no such file")
	mu.Lock()
	available = true
	mu.Unlock()
	write(t, path, list("10.0.0.1:80"))
	sink.Await(t, web, "10.0.0.1:80")
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "inotify is not available"); n != 1 || attempts < 2 {
		t.Errorf("said %d times in %d attempts:\n%s", n, attempts, log)
	}
}

// TestPollWithoutChangesReadsNothing checks that files are not read again at each
// poll.
func TestPollWithoutChangesReadsNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/web.yaml", list("10.0.0.1:80"))
	source, err := New(Config{Path: dir})
	must(t, err)
	source.cfg.PollInterval = time.Millisecond
	polls := make(chan struct{})
	source.newWatcher = func() (*fsnotify.Watcher, error) {
		select {
		case polls <- struct{}{}:
		case <-t.Context().Done():
		}
		return nil, syscall.EMFILE
	}
	sink := providertest.NewSink(web)
	sink.Start(t, source)
	for range 20 {
		<-polls
	}
	if n := sink.Reports(); n != 1 {
		t.Errorf("%d reports of one content", n)
	}
	sink.AwaitConfirmed(t, web, 10)
}

// TestFailedReadsAreRepeated checks that a poll reads again what the file system
// failed to give, even if it looks the same, and not what has a fault.
func TestFailedReadsAreRepeated(t *testing.T) {
	dir := t.TempDir()
	for name, create := range map[string]func(path string){
		"missing": func(string) {},
		"fault":   func(path string) { write(t, path, "x") },
		"folder": func(path string) {
			must(t, os.Mkdir(path, 0o700))
			must(t, os.Symlink("nowhere", path+"/web.yaml"))
		},
		"folder of a fault": func(path string) {
			must(t, os.Mkdir(path, 0o700))
			write(t, path+"/web.yaml", "x")
		},
	} {
		path := filepath.Join(dir, name)
		create(path)
		source, err := New(Config{Path: path})
		must(t, err)
		again := source.report(nil, providertest.NewSink()) == ""
		if want := !strings.Contains(name, "fault"); again != want {
			t.Errorf("%s: read again: %v, want %v", name, again, want)
		}
	}
}

// TestUnrelatedEventsAreIgnored checks which events make the source read.
func TestUnrelatedEventsAreIgnored(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/d", 0o700))
	write(t, dir+"/d/f.yaml", "[]")
	must(t, os.Symlink("d", dir+"/link"))
	for _, test := range []struct {
		path, event string
		want        bool
	}{
		{"link/f.yaml", "d/f.yaml", true},
		{"link/f.yaml", "link", true},
		{"link/f.yaml", "d", true},
		{"link/f.yaml", "d/other.yaml", false},
		{"link/f.yaml", "other", false},
		{"link", "d/other.yaml", true},
		{"link", "other", false},
		{"missing/f.yaml", "missing", true},
		{"missing/f.yaml", "other", false},
		{"d/f.yaml/x", "d/f.yaml", true},
		{"d/f.yaml/x", "d/g.yaml", false},
	} {
		w := &watch{trail: follow(filepath.Join(dir, test.path))}
		if got := w.concerns(fsnotify.Event{Name: filepath.Join(dir, test.event)}); got != test.want {
			t.Errorf("%s: event of %s: %v, want %v", test.path, test.event, got, test.want)
		}
	}
}

// TestBursts checks when a change is read: after the last one of a burst, and at
// the latest after maxSettle.
func TestBursts(t *testing.T) {
	for name, test := range map[string]struct {
		changes int // after the first, each settle/2
		related bool
		want    time.Duration
	}{
		"one change":        {0, true, settle},
		"a burst":           {10, true, 10*settle/2 + settle},
		"unrelated changes": {10, false, settle},
		"no end":            {1000, true, maxSettle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &watch{events: make(chan fsnotify.Event), trail: trail{names: map[string]bool{"/f": test.related}}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					for range test.changes {
						<-time.After(settle / 2)
						select {
						case w.events <- fsnotify.Event{Name: "/f"}:
						case <-ctx.Done():
							return
						}
					}
				}()
				begun := time.Now()
				if !w.settled(ctx) || time.Since(begun) != test.want {
					t.Errorf("read after %v, want %v", time.Since(begun), test.want)
				}
				cancel()
				if w.settled(ctx) {
					t.Error("reads after the end")
				}
			})
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := New(Config{PollInterval: time.Millisecond, MaxBytes: 1 << 31, MaxFiles: -1, MaxEndpoints: -1})
	want := `path is required: a file or a folder
pollInterval 1ms must be 1s to 1h
maxBytes 2147483648 must be 1 to 1073741824
maxFiles -1 must be 1 to 100000
maxEndpoints -1 must be 1 to 1000000`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, err := New(Config{Path: "relative"}); err != nil {
		t.Error(err)
	}
}
