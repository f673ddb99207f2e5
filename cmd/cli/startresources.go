package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"penstock/node"
	"penstock/node/kinds"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// The values of --resources-mode.
const (
	seedMode = "seed" // once, when the cluster is new
	syncMode = "sync" // at each start and SIGHUP
	// followMode is syncMode, and also when the files change.
	followMode = "follow"
)

// readResources reads the files of --resources for the node. Faults stop only a
// new node from starting: a node that has a cluster serves the replicated
// configuration, and logs the faults.
func (s *settings) readResources(stdin io.Reader, stderr io.Writer) error {
	sync := s.mode == syncMode || s.mode == followMode
	switch {
	case s.mode != seedMode && !sync:
		return usagef("--resources-mode %s: want seed, sync or follow", s.mode)
	case sync && len(s.resources) == 0:
		return usagef("--resources-mode %s: needs --resources", s.mode)
	case len(s.resources) == 0:
		return nil
	case sync && slices.Contains(s.resources, "-"):
		return usagef("--resources -: standard input cannot be read again; use files with --resources-mode %s", s.mode)
	}
	f := &node.ResourceFiles{Sync: sync}
	for _, p := range s.resources {
		if abs, err := filepath.Abs(p); err == nil && p != "-" {
			p = abs
		}
		f.Paths = append(f.Paths, p)
	}
	if s.mode == followMode {
		f.Changed = changes(f.Paths)
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

// readObjects reads and validates files. Files for an existing cluster may
// refer to resources that are not in them; the cluster checks those references.
func readObjects(paths []string, stdin io.Reader, stderr io.Writer, sync, isNew bool) ([]resource.Object, error) {
	read := func() (*loaded, error) { return load(paths, stdin, kinds.All()) }
	var l *loaded
	var err error
	if sync {
		l, err = readConsistent(paths, read)
	} else {
		l, err = read()
	}
	if err != nil {
		return nil, err
	}
	if sync && len(l.empty) > 0 { // a sync would delete the file's resources
		return nil, errors.New(strings.Join(l.empty, ", ") + ": is empty; remove it, or put a comment in it if that is intended")
	}
	printWarnings(stderr, l.warnings)
	faults := l.faults
	if isNew || !sync {
		more, _ := validate.Objects(l.objects)
		faults = append(faults, more...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	if sync && len(l.objects) == 0 { // most likely the program that wrote the files failed
		return nil, errors.New(strings.Join(paths, ", ") + ": contains no resources")
	}
	return l.objects, nil
}

// changes returns a function that reports whether files have changed since the last call.
func changes(paths []string) func() bool {
	last := fingerprints(paths)
	return func() bool {
		before := last
		last = fingerprints(paths)
		return !slices.Equal(before, last)
	}
}

// maxConsistentReads bounds the attempts to read files that keep changing.
const maxConsistentReads = 5

// readConsistent reads a consistent set of files: in a mixture of old and new
// ones, a resource that moved between files would be missing.
func readConsistent[T any](paths []string, read func() (T, error)) (out T, err error) {
	before := fingerprints(paths)
	for range maxConsistentReads {
		out, err = read()
		after := fingerprints(paths)
		if slices.Equal(before, after) {
			return out, err
		}
		before = after
	}
	var none T
	return none, errors.New(strings.Join(paths, ", ") + ": kept changing while being read; write files elsewhere and rename them " +
		"into place")
}

// fingerprints returns a fingerprint of each file that changes when it is
// replaced or written to.
func fingerprints(paths []string) (all []string) {
	for _, path := range paths {
		names, err := expand(path)
		if err != nil {
			all = append(all, err.Error())
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				all = append(all, err.Error())
				continue
			}
			fingerprint := fmt.Sprint(name, " ", info.Size(), " ", info.ModTime().UnixNano())
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				fingerprint += fmt.Sprint(" ", stat.Dev, " ", stat.Ino)
			}
			all = append(all, fingerprint)
		}
	}
	return all
}
