package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"penstock/routing/provider"
)

// maxOthers is how many times as many entries as MaxFiles a folder may have, with
// those that are ignored.
const maxOthers = 10

// content is what the path has.
type content struct {
	path     string
	services map[string]service
	every    *service // answers every query: the path is a file with a list
	// broken has the faults of a folder's files, by their names without extension;
	// first is the first of them.
	broken map[string]error
	first  error
	unread bool // isUnread holds for one of them
}

// service is the list of a service.
type service struct {
	name      string // "" for a list without a name
	where     string // file:line
	endpoints []provider.Endpoint
	err       error // it is listed twice
}

// answer answers a query.
func (c *content) answer(q provider.Query) ([]provider.Endpoint, error) {
	if q.Port != "" {
		return nil, fmt.Errorf("port %.40q: the addresses in %s have ports: leave port out", q.Port, c.path)
	}
	found, ok := c.services[q.Service]
	switch {
	case c.every != nil:
		found = *c.every
	case c.broken[q.Service] != nil:
		return nil, c.broken[q.Service]
	case !ok && c.first != nil:
		return nil, fmt.Errorf("%s has no service %q in the files that can be read: %w", c.path, q.Service, c.first)
	case !ok:
		return nil, fmt.Errorf("%s has no service %q: list its endpoints there, or [] if it has none", c.path, q.Service)
	case found.err != nil:
		return nil, found.err
	}
	return slices.Clone(found.endpoints), nil // the sink keeps it
}

// read reads the file or folder.
func (s *Source) read() (*content, error) {
	c := &content{path: s.cfg.Path, services: map[string]service{}, broken: map[string]error{}}
	limits := limits{bytes: s.cfg.MaxBytes, endpoints: s.cfg.MaxEndpoints}
	info, err := os.Stat(s.cfg.Path)
	if err != nil {
		return nil, explain(err)
	}
	if !info.IsDir() {
		list, err := s.readFile(s.cfg.Path, &limits)
		if err != nil {
			return nil, err
		}
		c.add(list)
		if len(list) == 1 && list[0].name == "" {
			c.every = &list[0]
		}
		return c, nil
	}
	names, err := s.list()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		base := strings.TrimSuffix(name, filepath.Ext(name))
		list, err := s.readFile(filepath.Join(s.cfg.Path, name), &limits)
		switch {
		case limits.exceeded != nil:
			return nil, limits.exceeded
		case err != nil:
			c.broken[base] = err
			c.unread = c.unread || isUnread(err)
			if c.first == nil {
				c.first = err
			}
			continue
		case len(list) == 1 && list[0].name == "":
			list[0].name = base
		}
		c.add(list)
	}
	return c, nil
}

// add adds the services of a file.
func (c *content) add(list []service) {
	for _, s := range list {
		if old, twice := c.services[s.name]; twice {
			s.err = fmt.Errorf("service %q is in %s and in %s: remove one", s.name, old.where, s.where)
		}
		c.services[s.name] = s
	}
}

// list returns the names of the folder's files, sorted.
func (s *Source) list() ([]string, error) {
	dir, err := os.Open(s.cfg.Path)
	if err != nil {
		return nil, explain(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxOthers*s.cfg.MaxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, explain(err)
	}
	all := len(names)
	names = slices.DeleteFunc(names, func(name string) bool {
		ext := filepath.Ext(name)
		return strings.HasPrefix(name, ".") || ext != ".yaml" && ext != ".yml" && ext != ".json"
	})
	if len(names) > s.cfg.MaxFiles || all > maxOthers*s.cfg.MaxFiles {
		return nil, fmt.Errorf("%s has more than %d files: put several services into one, or raise maxFiles", s.cfg.Path, s.cfg.MaxFiles)
	}
	slices.Sort(names)
	return names, nil
}

// limits are what may still be read.
type limits struct {
	bytes     int64
	endpoints int
	exceeded  error // says which limit is
}

// readFile reads one file.
func (s *Source) readFile(path string, limits *limits) ([]service, error) {
	real, err := s.cfg.Resolve(path)
	if err != nil {
		return nil, explain(err)
	}
	// A pipe would make the source wait for its writer.
	f, err := os.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, explain(err)
	}
	defer f.Close()
	before, err := f.Stat()
	switch {
	case err != nil:
		return nil, explain(err)
	case !before.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file: write a file there", path)
	case before.Size() > limits.bytes:
		return nil, limits.tooLarge(path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limits.bytes+1))
	if err != nil {
		return nil, explain(err)
	}
	if int64(len(data)) > limits.bytes {
		return nil, limits.tooLarge(path)
	}
	after, err := f.Stat()
	if err != nil {
		return nil, explain(err)
	}
	if after.Size() != int64(len(data)) || !after.ModTime().Equal(before.ModTime()) {
		return nil, fmt.Errorf("%s changed while it was read: write to another file and rename that", path)
	}
	limits.bytes -= int64(len(data))
	return decode(path, data, limits)
}

func (l *limits) tooLarge(path string) error {
	l.exceeded = fmt.Errorf("%s is larger than maxBytes, or than what other files leave of it: raise it", path)
	return l.exceeded
}

// explain says what to do about an error of the file system.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: write the file, it will be read then", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: let the user that runs this process read it", err)
	}
	return err
}

// isUnread reports whether an error is the file system's, which may be over
// without a change of the file.
func isUnread(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed)
}

// stamp describes the state of the files: it changes when they do.
func (s *Source) stamp() string {
	text := stampOf(s.cfg.Path)
	if info, err := os.Stat(s.cfg.Path); err != nil || !info.IsDir() {
		return text
	}
	names, err := s.list()
	if err != nil {
		return text + err.Error()
	}
	var b strings.Builder
	b.WriteString(text)
	for _, name := range names {
		b.WriteString(stampOf(filepath.Join(s.cfg.Path, name)))
	}
	return b.String()
}

func stampOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error() + "\n"
	}
	inode := uint64(0)
	if system, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = system.Ino
	}
	return fmt.Sprintf("%s %d %d %d %s\n", path, info.Size(), info.ModTime().UnixNano(), inode, info.Mode())
}
