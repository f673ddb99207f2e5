package codec

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// MaxPEMFile bounds a file that a resource names, in bytes.
const MaxPEMFile = 1 << 20

// LoadFiles reads the files that an object names into it and validates it again.
// Relative names start at baseDir, the folder of the object's own file, and so do
// the paths of a resource.PathUser, which become absolute. readFile
// returns at most limit+1 bytes; the extra byte shows that the file is too
// large.
func LoadFiles(o *resource.Object, baseDir string, readFile func(name string, limit int) ([]byte, error)) resource.Faults {
	if user, ok := o.Spec.(resource.PathUser); ok {
		makeAbsolute(user, baseDir)
	}
	user, ok := o.Spec.(resource.FileUser)
	if !ok {
		return nil
	}
	files := user.Files()
	if len(files) == 0 {
		return nil
	}
	var faults resource.Faults
	sources := map[string]string{} // path of the content -> file
	for _, f := range files {
		name := f.Name
		if !filepath.IsAbs(name) {
			name = filepath.Join(baseDir, name)
		}
		data, err := readFile(name, MaxPEMFile)
		switch {
		case err != nil:
			faults = append(faults, o.Fault(f.Path, "cannot be read: "+reason(err), name))
		case len(data) > MaxPEMFile:
			faults = append(faults, o.Fault(f.Path, fmt.Sprintf("is larger than %d KiB", MaxPEMFile>>10), name))
		case len(data) == 0:
			faults = append(faults, o.Fault(f.Path, "is empty", name))
		case !resource.IsPEM(string(data)):
			faults = append(faults, o.Fault(f.Path, "contains no PEM", name))
		default:
			f.Set(string(data))
			sources[contentPath(f.Path)] = name
		}
	}
	if len(faults) > 0 {
		return faults
	}
	validate.Spec(o.Spec, func(path, message string, value any) {
		path = "spec." + path
		if name, ok := sources[path]; ok {
			value = name // the fault is in the file
		}
		faults = append(faults, o.Fault(path, message, value))
	})
	return faults
}

// makeAbsolute makes relative paths start at baseDir.
func makeAbsolute(user resource.PathUser, baseDir string) {
	for _, path := range user.Paths() {
		if *path == "" || filepath.IsAbs(*path) {
			continue
		}
		if abs, err := filepath.Abs(filepath.Join(baseDir, *path)); err == nil {
			*path = abs
		}
	}
}

// contentPath returns where a file's content is stored: in "spec.cert" for
// "spec.certFile".
func contentPath(path string) string {
	switch path {
	case "spec.certFile":
		return "spec.cert"
	case "spec.keyFile":
		return "spec.key"
	}
	return path
}

// reason returns the system's message without the path, which the fault has already.
func reason(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}
