package cli

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"penstock/node"
	"penstock/routing/resource"
)

// The values of --resources-mode.
const (
	seedMode = "seed" // once, when the cluster is new
	syncMode = "sync" // at each start and SIGHUP
)

// readResources reads the files of --resources for the node. Faults keep a
// node from starting only if it is new: one that has a cluster serves what was
// agreed there, and its log says what is wrong with the files.
func (s *settings) readResources(stdin io.Reader, stderr io.Writer) error {
	sync := s.mode == syncMode
	switch {
	case s.mode != seedMode && s.mode != syncMode:
		return usagef("--resources-mode %s: want seed or sync", s.mode)
	case sync && len(s.resources) == 0:
		return usagef("--resources-mode sync: say with --resources which files")
	case len(s.resources) == 0:
		return nil
	case sync && slices.Contains(s.resources, "-"):
		return usagef("--resources -: standard input cannot be read again; give files with --resources-mode sync")
	}
	f := &node.ResourceFiles{Sync: sync}
	for _, p := range s.resources {
		if abs, err := filepath.Abs(p); err == nil && p != "-" {
			p = abs
		}
		f.Paths = append(f.Paths, p)
	}
	isNew := s.node.Dev || emptyFolder(s.node.DataDir)
	objects, err := readObjects(s.resources, stdin, stderr, sync, isNew)
	if err != nil && isNew {
		return err
	}
	f.Fault = err
	f.Read = func() ([]resource.Object, error) {
		if slices.Contains(s.resources, "-") {
			return nil, errors.New("--resources -: standard input cannot be read again")
		}
		return readObjects(s.resources, stdin, stderr, sync, false)
	}
	s.node.Resources, s.node.ResourceFiles = objects, f
	return nil
}

// readObjects reads and checks files. Those that are applied to a cluster which
// exists may refer to resources that are not in them: the cluster checks that.
func readObjects(paths []string, stdin io.Reader, stderr io.Writer, sync, isNew bool) ([]resource.Object, error) {
	l, err := load(paths, stdin, node.Kinds())
	if err != nil {
		return nil, err
	}
	printWarnings(stderr, l.warnings)
	faults := l.faults
	if isNew || !sync {
		more, _ := resource.ValidateSet(l.objects)
		faults = append(faults, more...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	if sync && len(l.objects) == 0 { // whoever wrote the files failed, most likely
		return nil, errors.New(strings.Join(paths, ", ") + ": holds no resource")
	}
	return l.objects, nil
}
