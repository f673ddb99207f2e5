// Package follow reads the files that resources leave to the nodes: each node reads its
// own, and again when they change. What it reads goes to the data plane of this node
// alone; it is never stored in the cluster.
//
//	m := follow.New(follow.Config{Apply: dataplane.Apply, Log: log})
//	go m.Run(ctx)
//	m.Apply(set, changes)     // in force with the content of the files
//	m.Reread()                // those of resources, now rather than within Config.Interval
//
// Files that cannot be used change nothing: what was read last stays in force, and
// Problems says what is wrong. Without such content a certificate does not exist for the
// data plane, a listener that verifies clients admits none with a certificate, and a
// service trusts no endpoint.
package follow

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/files"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// DefaultInterval is how often files are checked.
const DefaultInterval = 5 * time.Second

// Config is the configuration of a Manager.
type Config struct {
	// Apply puts changes in force on this node. Required.
	Apply func(set *validate.Set, changes []resource.Change)
	// Log gets each fault once, and that it is gone. Required.
	Log *slog.Logger
	// DataDir is the node's data folder, whose files resources must not name; "": there
	// is none.
	DataDir string
	// Interval is the time between two checks of the files; 0: DefaultInterval.
	Interval time.Duration
}

// Manager follows files. Its methods are safe for concurrent use.
type Manager struct {
	cfg    Config
	reread chan struct{} // asks Run for a check; buffers one

	// applying is held while changes are put in force, in their order.
	applying sync.Mutex

	mu      sync.Mutex
	set     *validate.Set // of the last Apply
	entries map[resource.Key]*entry
	others  []*watched
}

// watched is a group of files with its fault.
type watched struct {
	name  string // "Certificate/a"
	check func(force bool) (changed bool, err error)
	found bool // the files were usable once

	failures int   // checks that failed in a row
	fault    error // to be told; nil: none. Guarded by Manager.mu.
}

// entry is a resource with followed files.
type entry struct {
	watched
	object  resource.Object // as the user wrote it
	names   []string        // the files
	next    []string        // what was read last; of the goroutine that checks
	content []string        // in force; nil: none
}

// New makes a Manager.
func New(cfg Config) *Manager {
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	return &Manager{cfg: cfg, reread: make(chan struct{}, 1), entries: map[resource.Key]*entry{}}
}

// Watch adds files that are no resource's: check reads them if they have changed, or in
// any case with force. It is called before Run.
func (m *Manager) Watch(name string, check func(force bool) (changed bool, err error)) {
	m.others = append(m.others, &watched{name: name, check: check, found: true})
}

// Apply puts changes of resources, which set already contains, in force, with the
// content of their files. It reads files that no resource of that name had before.
func (m *Manager) Apply(set *validate.Set, changes []resource.Change) {
	m.applying.Lock()
	defer m.applying.Unlock()
	out := changes
	fresh := map[resource.Key]*entry{}
	for i := range changes {
		ch := &changes[i]
		spec, ok := ch.Spec.(resource.Follower)
		if ch.Delete || !ok || len(spec.Followed()) == 0 {
			fresh[ch.Key] = nil
			continue
		}
		e := m.entry(ch.Object, spec)
		fresh[ch.Key] = e
		if &out[0] == &changes[0] {
			out = slices.Clone(changes)
		}
		out[i] = fill(ch.Object, e.content)
	}
	m.mu.Lock()
	m.set = set
	for key, e := range fresh {
		if e == nil {
			delete(m.entries, key)
			continue
		}
		m.entries[key] = e
	}
	m.mu.Unlock()
	m.cfg.Apply(set, out)
}

// entry returns the entry for an object: the one that there is with a new object, or,
// if it names other files, one that has read them. m.applying is held.
func (m *Manager) entry(o resource.Object, spec resource.Follower) *entry {
	var names []string
	for _, f := range spec.Followed() {
		names = append(names, f.Name)
	}
	m.mu.Lock()
	e := m.entries[o.Key]
	if e != nil && slices.Equal(e.names, names) {
		e.object = o
		m.mu.Unlock()
		return e
	}
	m.mu.Unlock()
	e = &entry{object: o, names: names}
	e.name = o.String()
	group := files.FollowNamed(names, m.cfg.DataDir, codec.MaxPEMFile, func(content [][]byte) error {
		texts := make([]string, len(content))
		for i := range content {
			texts[i] = string(content[i])
		}
		_, err := spec.WithContent(texts)
		if err == nil {
			e.next = texts
		}
		return err
	})
	e.check = group.Check
	_, err := e.check(false)
	m.note(&e.watched, false, err)
	e.content = e.next
	return e
}

// fill returns the change that puts an object with the content of its files in force.
func fill(o resource.Object, content []string) resource.Change {
	if content != nil {
		if spec, err := o.Spec.(resource.Follower).WithContent(content); err == nil {
			o.Spec = spec
			return resource.Put(o)
		}
	}
	if o.Kind == "Certificate" {
		return resource.Delete(o.Key)
	}
	return resource.Put(o) // without a CA: nobody is trusted
}

// Reread makes Run read the files of resources now, changed or not. It returns at once.
func (m *Manager) Reread() {
	select {
	case m.reread <- struct{}{}:
	default: // a check that has not begun yet covers this one
	}
}

// Run checks the files until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	ticker := time.NewTicker(m.cfg.Interval)
	defer ticker.Stop()
	for {
		force := false
		select {
		case <-ticker.C:
		case <-m.reread:
			force = true
		case <-ctx.Done():
			return
		}
		m.poll(force)
	}
}

// poll checks all files once, and puts what has changed in force. It reads without
// locks, since a file system may hang.
func (m *Manager) poll(force bool) {
	for _, w := range m.others {
		changed, err := w.check(false)
		m.note(w, false, err)
		if changed {
			m.cfg.Log.Info("read changed files", "of", w.name)
		}
	}
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.entries))
	m.mu.Unlock()
	var changed []*entry
	for _, e := range all {
		is, err := e.check(force)
		m.note(&e.watched, force, err)
		if is {
			changed = append(changed, e)
		}
	}
	if len(changed) > 0 {
		m.applyChanged(changed)
	}
}

// applyChanged puts other content of entries in force.
func (m *Manager) applyChanged(changed []*entry) {
	m.applying.Lock()
	defer m.applying.Unlock()
	var changes []resource.Change
	m.mu.Lock()
	set := m.set
	for _, e := range changed {
		if m.entries[e.object.Key] != e {
			continue // the resource has changed meanwhile, or is gone
		}
		e.content = e.next
		changes = append(changes, fill(e.object, e.content))
	}
	m.mu.Unlock()
	for i := range changes {
		m.cfg.Log.Info("read changed files", "of", changes[i].String())
	}
	if len(changes) > 0 {
		m.cfg.Apply(set, changes)
	}
}

// note records how a check ended, and logs what is new. The first failure of files
// that were usable is not told yet: they may be in the middle of a replacement.
func (m *Manager) note(w *watched, force bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		if w.fault != nil {
			m.cfg.Log.Info("the files can be used again", "of", w.name)
		}
		w.failures, w.fault, w.found = 0, nil, true
		return
	}
	w.failures++
	if w.failures == 1 && w.found && !force || w.fault != nil && w.fault.Error() == err.Error() {
		return
	}
	w.fault = err
	m.cfg.Log.Error("cannot use files; "+w.inForce(), "of", w.name, "error", err)
}

// inForce says what holds in spite of a fault.
func (w *watched) inForce() string {
	if w.found {
		return "what was read before stays in use"
	}
	return "nothing was read before"
}

// Fault is what is wrong with the files of a resource, or of a setting of the node.
type Fault struct {
	Name string // "Certificate/a", "--http-cert"
	Err  error  // nil: nothing
	Kept bool   // what was read before stays in use
}

// State returns all followed files, sorted by name.
func (m *Manager) State() []Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Fault, 0, len(m.others)+len(m.entries))
	for _, w := range m.others {
		all = append(all, Fault{w.name, w.fault, w.found})
	}
	for _, e := range m.entries {
		all = append(all, Fault{e.name, e.fault, e.found})
	}
	slices.SortFunc(all, func(a, b Fault) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Problems describes the files that cannot be used on this node, which has that name.
func (m *Manager) Problems(node string) (list []string) {
	for _, f := range m.State() {
		if f.Err != nil {
			w := watched{found: f.Kept}
			list = append(list, fmt.Sprintf("node %s: %s: cannot use its files; %s: %v", node, f.Name, w.inForce(), f.Err))
		}
	}
	return list
}
