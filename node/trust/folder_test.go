package trust

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// same reports whether two identities are equal in all that is saved.
func same(a, b *Identity) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.nodeInfo() == b.nodeInfo() && a.key.Equal(b.key) && (a.leaf == nil) == (b.leaf == nil) &&
		(a.leaf == nil || a.leaf.Equal(b.leaf)) && slices.EqualFunc(a.Bundle(), b.Bundle(), bytes.Equal) && a.ring.Equal(b.ring)
}

func mustSave(t *testing.T, id *Identity, dir string) {
	t.Helper()
	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}
}

func TestIdentitySaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	if _, err := LoadIdentity(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no folder: %v, want os.ErrNotExist", err)
	}
	id := must(NewIdentity("edge-1"))(t)
	mustSave(t, id, dir)
	if got := must(LoadIdentity(dir))(t); !same(got, id) || got.Joined() || got.Instance == id.Instance {
		t.Errorf("before it joined: %#v; the instance %s must be new", got, got.Instance)
	}
	ca := newCA(t, "c1")
	id = must(id.Join("c1", issue(t, ca, id, time.Now()), ca.Bundle(), newRing(t)))(t)
	mustSave(t, id, dir)
	got := must(LoadIdentity(dir))(t)
	if !same(got, id) || !got.Joined() || len(got.Notes) != 0 {
		t.Errorf("after it joined: %v, notes %q", got, got.Notes)
	}
	mustAuthenticate(t, "from the disk", got, join(t, ca, "b", time.Now()))
	if digests := got.CADigests(); len(digests) != 1 || digests[0] != ca.Digest() {
		t.Errorf("digests %x, want one: %x", digests, ca.Digest())
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	ca := newCA(t, "c1")
	id := join(t, ca, "a", time.Now())
	mustSave(t, id, dir)
	if info := must(os.Stat(dir))(t); info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v, want 0700", info.Mode())
	}
	seen := 0
	for _, e := range must(os.ReadDir(dir))(t) {
		seen++
		if info := must(e.Info())(t); info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", e.Name(), info.Mode())
		}
	}
	if seen != 5 {
		t.Errorf("%d files, want 5", seen)
	}
	if err := os.Chmod(filepath.Join(dir, ringFile), 0o644); err != nil {
		t.Fatal(err)
	}
	got := must(LoadIdentity(dir))(t)
	if info := must(os.Stat(filepath.Join(dir, ringFile)))(t); info.Mode() != 0o600 ||
		len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "access to cluster.key (mode 0644)") {
		t.Errorf("an open file has mode %v then, and the notes are %q", info.Mode(), got.Notes)
	}
}

// changes returns the kinds of changes that Save makes: the identity in the
// folder and the new one.
func changes(t *testing.T) map[string][2]*Identity {
	t.Helper()
	now := time.Now()
	one := newCA(t, "c1")
	alone := must(NewIdentity("a"))(t)
	joined := must(alone.Join("c1", issue(t, one, alone, now), one.Bundle(), newRing(t)))(t)
	two := must(one.Next(now))(t)
	key := must(newKey())(t)
	r := must(CheckRequest(must(NewRequest(key, joined.NodeID, "a"))(t)))(t)
	leaf := must(two.Issue(r.Public, r.NodeID, r.Name, now))(t)
	third := two
	for range 2 {
		third = must(third.Next(now))(t)
	}
	full := must(joined.WithBundle(append(third.Bundle(), nil...)))(t)
	return map[string][2]*Identity{
		"a new node":              {nil, alone},
		"a new node of a cluster": {nil, joined},
		"joining":                 {alone, joined},
		"a new name":              {joined, must(joined.WithName("b"))(t)},
		"a new sealing key":       {joined, must(joined.WithKeyring(must(joined.ring.Rotate())(t)))(t)},
		"a CA more":               {joined, must(joined.WithBundle(two.Bundle()))(t)},
		"another certificate":     {joined, must(joined.Renewed(nil, issue(t, one, joined, now), one.Bundle()))(t)},
		"all at once":             {joined, must(joined.Renewed(key, leaf, two.Retire().Bundle()))(t)},
		"from the largest bundle": {full, must(joined.Renewed(key, leaf, two.Retire().Bundle()))(t)},
		"nothing":                 {joined, joined},
	}
}

func TestSaveSurvivesKillBetweenWrites(t *testing.T) {
	for name, c := range changes(t) {
		old, next := c[0], c[1]
		t.Run(name, func(t *testing.T) {
			for done := 0; ; done++ {
				dir := t.TempDir()
				if old != nil {
					mustSave(t, old, dir)
				}
				steps := must(next.planWrites(dir))(t)
				for _, s := range steps[:done] {
					if err := s.apply(dir); err != nil {
						t.Fatal(err)
					}
				}
				if done < len(steps) { // the write that the kill interrupted
					half := steps[done].data[:len(steps[done].data)/2]
					if err := os.WriteFile(filepath.Join(dir, steps[done].name+".tmp"), half, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				checkKilled(t, dir, done, len(steps), old, next)
				if done == len(steps) {
					return
				}
			}
		})
	}
}

// checkKilled checks a folder after some of the writes of a Save.
func checkKilled(t *testing.T, dir string, done, all int, old, next *Identity) {
	t.Helper()
	got, err := LoadIdentity(dir)
	switch {
	case err == nil && got.NodeID != next.NodeID:
		t.Errorf("after %d of %d writes it is another node", done, all)
	case err == nil && old.Joined() != next.Joined() && got.Joined() && !same(got, next):
		t.Errorf("after %d of %d writes it has half joined", done, all)
	case err != nil && (old != nil || !errors.Is(err, os.ErrNotExist)):
		t.Errorf("after %d of %d writes: %v", done, all, err)
	case done == 0 && old != nil && !same(got, old):
		t.Errorf("before any write the content changed")
	}
	mustSave(t, next, dir)
	if got := must(LoadIdentity(dir))(t); !same(got, next) {
		t.Errorf("saved again after %d of %d writes, the content differs", done, all)
	}
	if left := must(filepath.Glob(filepath.Join(dir, "*.tmp")))(t); done < all && len(left) > 1 {
		t.Errorf("left behind: %q", left)
	}
}

func TestForgetClearsFolder(t *testing.T) {
	for killed := range len(removalOrder) + 1 {
		dir := t.TempDir()
		mustSave(t, join(t, newCA(t, "c1"), "a", time.Now()), dir)
		gone := fileWrite{nodeFile, nodeInfo{Format: folderFormat}.marshal()}
		if err := gone.apply(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, keyFile+".tmp"), []byte("half a key"), 0o600); err != nil { // of an interrupted Save
			t.Fatal(err)
		}
		for _, name := range removalOrder[:killed] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if killed == 0 {
			if err := Forget(dir); err != nil {
				t.Fatal(err)
			}
			if left := must(os.ReadDir(dir))(t); len(left) != 0 {
				t.Errorf("Forget left %v", left)
			}
		}
		if _, err := LoadIdentity(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("killed after %d removals: %v, want os.ErrNotExist", killed, err)
		}
		id := join(t, newCA(t, "c2"), "b", time.Now())
		mustSave(t, id, dir)
		if got := must(LoadIdentity(dir))(t); !same(got, id) {
			t.Errorf("killed after %d removals: the next node does not come back", killed)
		}
	}
}

func TestSaveRejectsFolderOfAnotherNode(t *testing.T) {
	dir := t.TempDir()
	ca := newCA(t, "c1")
	id := join(t, ca, "a", time.Now())
	mustSave(t, id, dir)
	before := contents(t, dir)
	moved := *id
	moved.ClusterID = "c2"
	for name, other := range map[string]*Identity{
		"another node": join(t, ca, "b", time.Now()), "another cluster": &moved,
		"a node in no cluster": must(NewIdentity("c"))(t),
	} {
		if err := other.Save(dir); !errors.Is(err, ErrForeignFolder) {
			t.Errorf("%s: %v, want ErrForeignFolder", name, err)
		}
	}
	if after := contents(t, dir); after != before {
		t.Error("and something was written")
	}
	if _, err := id.Join("c2", id.leaf.Raw, id.Bundle(), id.ring); !errors.Is(err, ErrForeignFolder) {
		t.Errorf("a second cluster: %v, want ErrForeignFolder", err)
	}
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range must(os.ReadDir(dir))(t) {
		b.WriteString(e.Name() + string(must(os.ReadFile(filepath.Join(dir, e.Name())))(t)))
	}
	return b.String()
}

func TestDamagedFolderNamesTheFile(t *testing.T) {
	ca := newCA(t, "c1")
	id, other := join(t, ca, "a", time.Now()), join(t, ca, "b", time.Now())
	foreign := join(t, newCA(t, "c2"), "c", time.Now())
	key := must(marshalKey(other.key))(t)
	for _, test := range []struct {
		name, file string
		data       []byte // nil: removed
		want       error
		says       string
	}{
		{"no node.json", nodeFile, nil, ErrFolder, "node.json: it is missing although node.crt exists"},
		{"node.json cut", nodeFile, []byte(`{"format":1,"nodeId":"`), ErrFolder, "node.json: "},
		{"node.json empty", nodeFile, []byte{}, ErrFolder, "node.json: "},
		{"node.json without format", nodeFile, []byte(`{}`), ErrFormat, "node.json has format 0, this build supports 1"},
		{"from the future", nodeFile, []byte(`{"format":2,"nodeId":"aa"}`), ErrFormat, "node.json has format 2, this build supports 1"},
		{"a node ID that is none", nodeFile, []byte(`{"format":1,"nodeId":"../a"}`), ErrFolder, "node.json: "},
		{"another node's ID", nodeFile, []byte(`{"format":1,"nodeId":"aa","clusterId":"c1"}`), ErrFolder, "node.crt: "},
		{
			"another cluster's ID", nodeFile, []byte(`{"format":1,"nodeId":"` + id.NodeID + `","clusterId":"c2"}`),
			ErrFolder, "the CA belongs to cluster c1",
		},
		{"no key", keyFile, nil, ErrFolder, "node.key: the file is missing"},
		{"key cut", keyFile, key[:len(key)/2], ErrFolder, "node.key: "},
		{"key empty", keyFile, []byte{}, ErrFolder, "node.key: "},
		{"another key", keyFile, key, ErrFolder, "node.key: unusable certificate or key: it does not belong to node.crt"},
		{"no certificate", certFile, nil, ErrFolder, "node.crt: the file is missing"},
		{"certificate empty", certFile, []byte{}, ErrFolder, "node.crt: "},
		{"another node's certificate", certFile, pemOf(other.leaf.Raw), ErrFolder, "node.key: "},
		{"no CA", caFile, nil, ErrFolder, "ca.crt: the file is missing"},
		{"CA empty", caFile, []byte{}, ErrFolder, "ca.crt: "},
		{"another cluster's CA", caFile, pemOf(foreign.cas[0].Raw), ErrFolder, "the CA belongs to cluster c2"},
		{"a CA that is none", caFile, pemOf(other.leaf.Raw), ErrFolder, "ca.crt: "},
		{"no sealing key", ringFile, nil, ErrFolder, "cluster.key: the file is missing"},
		{"sealing key cut", ringFile, id.ring.Marshal()[:40], ErrFolder, "cluster.key: invalid keyring: it was truncated or modified"},
		{"too large", caFile, bytes.Repeat([]byte("\n"), maxFile+1), ErrFolder, "ca.crt: more than 65536 bytes"},
		{"garbage", caFile, []byte("garbage"), ErrFolder, "ca.crt: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			mustSave(t, id, dir)
			path := filepath.Join(dir, test.file)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if test.data != nil {
				if err := os.WriteFile(path, test.data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := LoadIdentity(dir)
			if !errors.Is(err, test.want) || errors.Is(err, fs.ErrNotExist) ||
				!strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v\nwant %v, saying %q, and not os.ErrNotExist", err, test.want, test.says)
			}
			if err := id.Save(dir); err == nil {
				t.Error("Save wrote over a damaged folder")
			}
		})
	}
}

func pemOf(ders ...[]byte) []byte {
	certs, err := parseCerts(ders)
	if err != nil {
		panic(err)
	}
	return marshalCerts(certs)
}

func TestNonRegularFileIsRejected(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, must(NewIdentity("a"))(t), dir)
	if err := os.Remove(filepath.Join(dir, keyFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, keyFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdentity(dir); !errors.Is(err, ErrFolder) || !strings.Contains(err.Error(), "node.key: is a folder") {
		t.Errorf("%v", err)
	}
}

func TestCopiedFolderFallsBehind(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	id := join(t, newCA(t, "c1"), "a", time.Now())
	mustSave(t, id, dir)
	start := func(dir string) Incarnation {
		t.Helper()
		return must(must(LoadIdentity(dir))(t).Start(dir))(t).Incarnation()
	}
	first := start(dir)
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	second := start(dir)
	if err := errors.Join(first.Follows(Incarnation{}), second.Follows(first), second.Follows(second)); err != nil {
		t.Errorf("its own starts: %v", err)
	}
	ofCopy := start(copied)
	if err := ofCopy.Follows(second); !errors.Is(err, ErrCopied) {
		t.Errorf("a copy that was started as often: %v, want ErrCopied", err)
	}
	if err := first.Follows(second); !errors.Is(err, ErrCopied) {
		t.Errorf("an older state: %v, want ErrCopied", err)
	}
	// The copy may be the one that continues; then the original counts as the
	// copy.
	later := start(copied)
	if err := errors.Join(later.Follows(second)); err != nil {
		t.Errorf("the one that was started more often: %v", err)
	}
	if err := second.Follows(later); !errors.Is(err, ErrCopied) {
		t.Errorf("the original behind its copy: %v, want ErrCopied", err)
	}
}

func TestFullOrReadOnlyDiskLosesNothing(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("as root, modes do not hold: a file in the way stands for the folder that cannot be written")
	}
	dir := t.TempDir()
	id := join(t, newCA(t, "c1"), "a", time.Now())
	mustSave(t, id, dir)
	block := filepath.Join(dir, ringFile+".tmp", "x") // a non-empty folder blocks the temporary file
	if err := os.MkdirAll(block, 0o700); err != nil {
		t.Fatal(err)
	}
	next := must(id.WithKeyring(newRing(t)))(t)
	if err := next.Save(dir); err == nil || !strings.Contains(err.Error(), ringFile) {
		t.Errorf("%v, want an error that names %s", err, ringFile)
	}
	if got := must(LoadIdentity(dir))(t); !same(got, id) {
		t.Error("a Save that failed changed the identity")
	}
}

func TestNodeFileIsReadable(t *testing.T) {
	dir := t.TempDir()
	id := must(NewIdentity("edge-1"))(t)
	mustSave(t, id, dir)
	var got map[string]any
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(dir, nodeFile)))(t), &got); err != nil {
		t.Fatal(err)
	}
	if got["nodeId"] != id.NodeID || got["name"] != "edge-1" || got["format"] != 1.0 || len(id.NodeID) != 16 {
		t.Errorf("%v", got)
	}
}
