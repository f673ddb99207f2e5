// Package file reads endpoints from a YAML or JSON file, or from a folder of
// them, and follows their changes. A file is a list of endpoints, or a map from
// the names of services to such lists:
//
//   - {address: "10.0.0.1:80", weight: 2, tags: {version: v1}}
//
//     web: [{address: "10.0.0.1:80"}]
//     db: []
//
// A single file that is a list answers every query; in a folder, a list answers
// the query that is named like its file without the extension.
//
//	source, err := file.New(file.Config{Path: "/etc/penstock/endpoints.yaml"})
//	runner := provider.NewRunner(provider.Config{Source: source, ...})
//
// A file that is missing, cannot be read or has a fault fails its queries, whose
// last answers stay; so does a service that is no longer listed anywhere. The
// empty list is how a file says that a service has no endpoints.
//
// inotify reports changes, those of symlinks on the way included (a ConfigMap is
// replaced by renaming one). What it does not report, as on network file
// systems, is seen at the next poll.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"penstock/routing/provider"
)

// Defaults of Config.
const (
	DefaultPollInterval = 10 * time.Second
	DefaultMaxBytes     = 16 << 20
	DefaultMaxFiles     = 1000
	DefaultMaxEndpoints = 100_000
)

const (
	// A change is read once nothing changed for settle, as writers take several
	// steps, but at the latest after maxSettle.
	settle    = 20 * time.Millisecond
	maxSettle = time.Second
)

// Config configures New.
type Config struct {
	// Path is a file, or a folder whose files *.yaml, *.yml and *.json are read;
	// folders in it and names that begin with a dot are ignored. It need not exist
	// yet.
	Path string
	// PollInterval is how often Path is looked at for changes that inotify does not
	// report. 1s to 1h, default 10s.
	PollInterval time.Duration
	// MaxBytes bounds the size of the file, or of all files of the folder together,
	// in bytes. 1 to 1 GiB, default 16 MiB.
	MaxBytes int64
	// MaxFiles bounds the files of a folder. 1 to 100,000, default 1000.
	MaxFiles int
	// MaxEndpoints bounds the endpoints of all services together. 1 to 1,000,000,
	// default 100,000.
	MaxEndpoints int
	// Resolve returns a path without symbolic links before it is read, or why it must
	// not be; nil: everything may.
	Resolve func(path string) (string, error)
	// Log gets a line when changes are polled, because inotify is not available;
	// nil: none.
	Log *slog.Logger
}

// Source is a provider.Source. Create it with New.
type Source struct {
	cfg        Config
	newWatcher func() (*fsnotify.Watcher, error)
}

// New returns a source, or an error that lists all faults of the configuration.
func New(cfg Config) (*Source, error) {
	cfg.PollInterval = cmp.Or(cfg.PollInterval, DefaultPollInterval)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	cfg.MaxFiles = cmp.Or(cfg.MaxFiles, DefaultMaxFiles)
	cfg.MaxEndpoints = cmp.Or(cfg.MaxEndpoints, DefaultMaxEndpoints)
	if cfg.Resolve == nil {
		cfg.Resolve = func(path string) (string, error) { return path, nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var faults []error
	within := func(field string, value any, limits string, ok bool) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s %v must be %s", field, value, limits))
		}
	}
	if cfg.Path == "" {
		faults = append(faults, errors.New("path is required: a file or a folder"))
	}
	within("pollInterval", cfg.PollInterval, "1s to 1h", cfg.PollInterval >= time.Second && cfg.PollInterval <= time.Hour)
	within("maxBytes", cfg.MaxBytes, "1 to 1073741824", cfg.MaxBytes > 0 && cfg.MaxBytes <= 1<<30)
	within("maxFiles", cfg.MaxFiles, "1 to 100000", cfg.MaxFiles > 0 && cfg.MaxFiles <= 100_000)
	within("maxEndpoints", cfg.MaxEndpoints, "1 to 1000000", cfg.MaxEndpoints > 0 && cfg.MaxEndpoints <= 1_000_000)
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("path %s: %w", cfg.Path, err)
	}
	cfg.Path = path
	return &Source{cfg, fsnotify.NewWatcher}, nil
}

// Run implements provider.Source.
func (s *Source) Run(ctx context.Context, sink provider.Sink) error {
	w := newWatch(s)
	defer w.close()
	poll := time.NewTicker(s.cfg.PollInterval)
	defer poll.Stop()
	for {
		w.update() // before the read: later changes are reported
		queries, replaced := sink.Wanted()
		last := s.report(queries, sink)
		for changed := false; !changed; {
			select {
			case <-replaced:
				changed = true
			case event := <-w.events:
				changed = w.concerns(event) && w.settled(ctx)
			case err := <-w.failures:
				changed = err != nil // events may be lost
			case <-poll.C:
				changed = last == "" || s.stamp() != last
				w.update()
				for _, q := range queries {
					sink.Confirm(q) // what has changed is reported next
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// report reads the files and answers the queries. It returns the stamp of what
// it read, "" if the same may read otherwise the next time.
func (s *Source) report(queries []provider.Query, sink provider.Sink) (stamp string) {
	stamp = s.stamp() // before the read: what changes meanwhile is read again
	found, err := s.read()
	if err != nil {
		sink.FailedAll(err)
	} else {
		for _, q := range queries {
			endpoints, err := found.answer(q)
			if err != nil {
				sink.Failed(q, err)
				continue
			}
			sink.Report(q, endpoints)
		}
	}
	if isUnread(err) || err == nil && found.unread {
		return ""
	}
	return stamp
}
