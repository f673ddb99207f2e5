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
	"penstock/node/api"
	"penstock/node/files"
	"penstock/node/kinds"
	"penstock/routing/formats"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// loaded holds the resources read from the files of -f.
type loaded struct {
	objects []resource.Object
	byKey   map[string]*resource.Object // keyed by "Kind/name"; points into objects
	faults  resource.Faults
	empty   []string // files that hold only white space
	// warnings concern documents in foreign formats, for example fields that are
	// dropped.
	warnings resource.Faults
}

// load reads files, folders and "-" and collects every fault in them. It
// returns an error only if something cannot be read at all.
func load(paths []string, stdin io.Reader, known []resource.Kind) (*loaded, error) {
	l := &loaded{byKey: map[string]*resource.Object{}}
	for _, p := range paths {
		if p == "-" {
			data, err := readBounded(stdin, codec.MaxFileSize)
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
			data, err := readFile(name, codec.MaxFileSize)
			if err != nil {
				return nil, err
			}
			l.add(name, filepath.Dir(name), data, known)
		}
	}
	for i := range l.objects {
		o := &l.objects[i]
		key := o.Key.String() //nolint:staticcheck // names Key, not the outer type's method
		if first, twice := l.byKey[key]; twice {
			l.faults = append(l.faults, formats.DuplicateFault(first, o))
			continue
		}
		l.byKey[key] = o
	}
	return l, nil
}

// add decodes one file and reads the files that it refers to.
func (l *loaded) add(name, dir string, data []byte, known []resource.Kind) {
	if len(bytes.TrimSpace(data)) == 0 {
		l.empty = append(l.empty, name)
	}
	objects, faults, warnings := codec.DecodeReport(name, data, known, kinds.Formats())
	l.faults = append(l.faults, faults...)
	l.warnings = append(l.warnings, warnings...)
	for i := range objects {
		l.faults = append(l.faults, codec.LoadFiles(&objects[i], dir, readFile)...)
	}
	l.objects = append(l.objects, objects...)
}

// expand lists the resource files of a path: the file itself, or all files in a
// folder at any depth, sorted. It skips files and folders whose names begin
// with a dot: editors and Kubernetes (..data of a ConfigMap) keep copies in
// them.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	root := path + string(filepath.Separator) // the separator makes WalkDir follow a link to a folder
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
				return fmt.Errorf("%s: is a link to a folder, which is not followed; pass that folder too, and move the link "+
					"elsewhere", p)
			}
		}
		if slices.Contains([]string{".yaml", ".yml", ".json", ".toml"}, strings.ToLower(filepath.Ext(p))) {
			names = append(names, p)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: contains no .yaml, .yml, .json or .toml files", path)
	}
	return names, err
}

// readFile reads up to limit+1 bytes of a file, so that callers can detect a
// file that is too large.
func readFile(name string, limit int) ([]byte, error) {
	data, err := files.Read(name, limit)
	if errors.Is(err, files.ErrKind) {
		err = fmt.Errorf("%w; use a regular file, or - for standard input", err)
	}
	return data, err
}

func readBounded(r io.Reader, limit int) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, int64(limit)+1))
}

// documents encodes the objects for an ApplyRequest.
func (l *loaded) documents() [][]byte {
	docs := make([][]byte, len(l.objects))
	for i, o := range l.objects {
		docs[i] = codec.EncodeWithSecrets(o)
	}
	return docs
}

// locate adds the file and line of its resource to a fault that a node found.
func (l *loaded) locate(f api.Fault) resource.Fault { return node.Locate(l.byKey[f.Key], f) }

// relocate rewrites a node's refusal so that each fault carries its file and
// line.
func (l *loaded) relocate(err error) error {
	var refusal *api.Error
	if !errors.As(err, &refusal) || len(refusal.Faults) == 0 {
		return err
	}
	faults := make(resource.Faults, len(refusal.Faults))
	for i, f := range refusal.Faults {
		faults[i] = l.locate(f)
	}
	return faults
}
