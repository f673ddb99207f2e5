package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"penstock/node"
	"penstock/node/admin"
	"penstock/node/files"
	"penstock/node/kinds"
	"penstock/routing/formats"
	"penstock/routing/resource"
)

// loaded is what a command was given with -f.
type loaded struct {
	objects []resource.Object
	byKey   map[string]*resource.Object // of objects, by "Kind/name"
	faults  resource.Faults
	empty   []string // files without a byte that says anything
	// warnings are of what documents of other formats have and lose.
	warnings resource.Faults
}

// load reads files, folders and "-" and reports every fault of each. The error
// is for what could not be read at all.
func load(paths []string, stdin io.Reader, known []resource.Kind) (*loaded, error) {
	l := &loaded{byKey: map[string]*resource.Object{}}
	for _, p := range paths {
		if p == "-" {
			data, err := readBounded(stdin, resource.MaxFileSize)
			if err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			l.add("-", ".", data, known)
			continue
		}
		names, err := expand(p)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			data, err := readFile(name, resource.MaxFileSize)
			if err != nil {
				return nil, err
			}
			l.add(name, filepath.Dir(name), data, known)
		}
	}
	for i := range l.objects {
		o := &l.objects[i]
		key := o.Key.String() //nolint:staticcheck // o.String() would not say that it is the key
		if first, twice := l.byKey[key]; twice {
			l.faults = append(l.faults, formats.DuplicateFault(first, o))
			continue
		}
		l.byKey[key] = o
	}
	return l, nil
}

// add decodes one file and reads the files that it names.
func (l *loaded) add(name, dir string, data []byte, known []resource.Kind) {
	if len(bytes.TrimSpace(data)) == 0 {
		l.empty = append(l.empty, name)
	}
	objects, faults, warnings := resource.DecodeReport(name, data, known, kinds.Formats())
	l.faults = append(l.faults, faults...)
	l.warnings = append(l.warnings, warnings...)
	for i := range objects {
		l.faults = append(l.faults, resource.LoadFiles(&objects[i], dir, readFile)...)
	}
	l.objects = append(l.objects, objects...)
}

// expand lists the resource files of a path: itself, or what a folder holds at
// any depth, sorted. Files and folders whose names begin with a dot are passed
// over: editors and Kubernetes (..data of a ConfigMap) keep copies in them.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	root := path + string(filepath.Separator) // a link to a folder is that folder
	var names []string
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || p == root:
			return err
		case strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			if to, err := os.Stat(p); err == nil && to.IsDir() {
				return fmt.Errorf("%s: is a link to a folder, which is not followed: name that folder as well, and keep the link elsewhere", p)
			}
		}
		if slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(p))) {
			names = append(names, p)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: holds no .yaml, .yml or .json file", path)
	}
	return names, err
}

// readFile reads at most limit bytes of a file and one more, which tells that
// there are too many.
func readFile(name string, limit int) ([]byte, error) {
	data, err := files.Read(name, limit)
	if errors.Is(err, files.ErrKind) {
		err = fmt.Errorf("%w; name a file, or - and pass the content on standard input", err)
	}
	return data, err
}

func readBounded(r io.Reader, limit int) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, int64(limit)+1))
}

// documents gives the objects in the form in which they travel.
func (l *loaded) documents() [][]byte {
	docs := make([][]byte, len(l.objects))
	for i, o := range l.objects {
		docs[i] = resource.EncodeWithSecrets(o)
	}
	return docs
}

// locate gives a fault that a node found the file and line of its resource.
func (l *loaded) locate(f admin.Fault) resource.Fault { return node.Locate(l.byKey[f.Key], f) }

// relocate rewrites a node's refusal so that each fault says where it stands.
func (l *loaded) relocate(err error) error {
	var refusal *admin.Error
	if !errors.As(err, &refusal) || len(refusal.Faults) == 0 {
		return err
	}
	faults := make(resource.Faults, len(refusal.Faults))
	for i, f := range refusal.Faults {
		faults[i] = l.locate(f)
	}
	return faults
}
