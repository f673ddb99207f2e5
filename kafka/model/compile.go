package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"penstock/routing/hamt"
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// Applied is what a change has led to.
type Applied struct {
	Table *Table
	// Virtual and Physical name the clusters that are new, other than before,
	// or gone, each once, in order.
	Virtual, Physical []string
	// Opened are the ports to be listened at that were not before, or
	// otherwise; Closed names those that are no more.
	Opened []Port
	Closed []string
	// Removed are the virtual clusters that are gone; what they still carry is
	// to be drained.
	Removed []*VirtualState
}

// Apply puts changes in force, all at once, at the cost of what they touch.
// What cannot be compiled (validation lets none through) is left out, and the
// error names it: a virtual cluster then takes no new connections, and what it
// has goes on as it was.
func (m *Model) Apply(changes []resource.Change) (Applied, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := newCompiler(m)
	for i := range changes {
		c.change(&changes[i])
	}
	done := c.finish()
	m.table.Store(done.Table)
	// What new connections can no longer get is let go only now.
	for _, v := range c.replaced {
		v.Release()
	}
	return done, errors.Join(c.faults...)
}

// compiler makes the next table from one. It first takes all changes in, and
// then compiles again what they touch: physical clusters, listeners, and after
// them the virtual clusters that name these.
type compiler struct {
	cfg   *Config
	types *filterTypes
	old   *Table

	listeners *hamt.Edit[*listener]
	ports     *hamt.Edit[*port]
	virtual   *hamt.Edit[*Virtual]
	physical  *hamt.Edit[*Physical]
	states    *hamt.Edit[*VirtualState]
	users     *hamt.GroupsEdit[struct{}]

	dirtyListeners map[string]*resource.Listener // nil: it is gone
	dirtyPhysical  map[string]*PhysicalCluster   // nil: it is gone
	dirtyVirtual   map[string]*VirtualCluster    // nil: it is gone
	edits          map[string]*listenerEdit
	replaced       []*Virtual // versions that are out of the table
	faults         []error
}

func newCompiler(m *Model) *compiler {
	old := m.table.Load()
	return &compiler{
		cfg: &m.cfg, types: m.types, old: old,
		listeners: old.listeners.Edit(), ports: old.ports.Edit(), virtual: old.virtual.Edit(),
		physical: old.physical.Edit(), states: old.states.Edit(), users: old.users.Edit(),
		dirtyListeners: map[string]*resource.Listener{}, dirtyPhysical: map[string]*PhysicalCluster{},
		dirtyVirtual: map[string]*VirtualCluster{}, edits: map[string]*listenerEdit{},
	}
}

// change takes one change in. Kinds that do not concern Kafka pass.
func (c *compiler) change(ch *resource.Change) {
	spec := ch.Spec
	if ch.Delete {
		spec = nil
	}
	switch ch.Kind {
	case kindListener:
		l, _ := spec.(*resource.Listener)
		if l != nil && l.Protocol != "kafka" {
			l = nil
		}
		if _, known := c.listeners.Get(ch.Name); known || l != nil {
			c.dirtyListeners[ch.Name] = l
		}
	case KindPhysical:
		c.dirtyPhysical[ch.Name], _ = spec.(*PhysicalCluster)
	case KindVirtual:
		c.dirtyVirtual[ch.Name], _ = spec.(*VirtualCluster)
	}
}

// omit records that a resource is left out.
func (c *compiler) omit(kind, name string, err error) {
	c.faults = append(c.faults, fmt.Errorf("%s/%s is left out: %w", kind, name, err))
}

func (c *compiler) finish() Applied {
	done := Applied{Physical: slices.Sorted(maps.Keys(c.dirtyPhysical))}
	for _, name := range done.Physical {
		c.makePhysical(name, c.dirtyPhysical[name])
	}
	for name, spec := range c.dirtyListeners {
		c.makeListener(name, spec)
	}
	done.Virtual = slices.Sorted(maps.Keys(c.dirtyVirtual))
	// Names and ports go before others come: they may change hands.
	for _, name := range done.Virtual {
		if old, ok := c.virtual.Get(name); ok {
			c.removeBindings(old)
		}
	}
	for _, name := range done.Virtual {
		if state := c.makeVirtual(name, c.dirtyVirtual[name]); state != nil {
			done.Removed = append(done.Removed, state)
		}
	}
	for name, e := range c.edits {
		c.listeners.Set(name, e.listener())
	}
	c.comparePorts(&done)
	done.Table = &Table{
		listeners: c.listeners.Map(), ports: c.ports.Map(), virtual: c.virtual.Map(),
		physical: c.physical.Map(), states: c.states.Map(), users: c.users.Groups(),
	}
	return done
}

// comparePorts finds the ports that have changed.
func (c *compiler) comparePorts(done *Applied) {
	for _, name := range done.Virtual {
		var before, after []binding
		if v, ok := c.old.virtual.Get(name); ok {
			before = v.bindings
		}
		if v, ok := c.virtual.Get(name); ok {
			after = v.bindings
		}
		for _, at := range after {
			if at.port == "" {
				continue
			}
			p, _ := c.ports.Get(at.port)
			if old, ok := c.old.ports.Get(at.port); !ok || old.Port != p.Port {
				done.Opened = append(done.Opened, p.Port)
			}
		}
		for _, at := range before {
			if at.port == "" {
				continue
			}
			if _, ok := c.ports.Get(at.port); !ok {
				done.Closed = append(done.Closed, at.port)
			}
		}
	}
}

// markUsersDirty marks the virtual clusters that refer to a resource, to be
// compiled again.
func (c *compiler) markUsersDirty(kind, name string) {
	group := c.old.users.Group(userOf(kind, name))
	for user := range group.All() {
		if _, dirty := c.dirtyVirtual[user]; dirty {
			continue
		}
		if state, ok := c.states.Get(user); ok {
			c.dirtyVirtual[user] = state.desired
		}
	}
}

func (c *compiler) makePhysical(name string, spec *PhysicalCluster) {
	old, known := c.physical.Get(name)
	c.markUsersDirty(KindPhysical, name)
	if spec == nil {
		if known {
			c.physical.Delete(name)
			old.state.current.Store(nil)
		}
		return
	}
	next := &Physical{raw: spec, spec: spec.WithDefaults()}
	if known {
		next.state = old.state
	} else {
		next.state = &PhysicalState{name: name}
	}
	next.byName = make(map[string]*PhysicalBroker, len(spec.Brokers))
	for i := range next.spec.Brokers {
		next.byName[next.spec.Brokers[i].Name] = &next.spec.Brokers[i]
	}
	c.physical.Set(name, next)
	next.state.current.Store(next)
}

func (c *compiler) makeListener(name string, spec *resource.Listener) {
	old, known := c.listeners.Get(name)
	if spec == nil {
		c.listeners.Delete(name)
		c.markUsersDirty(kindListener, name)
		return
	}
	next := &listener{name: name, spec: spec}
	if known {
		next.plain, next.names, next.numbered = old.plain, old.names, old.numbered
	}
	c.listeners.Set(name, next)
	// Who names it need not know of its limits and timeouts.
	if !known || old.spec.Address != spec.Address || (old.spec.TLS == nil) != (spec.TLS == nil) {
		c.markUsersDirty(kindListener, name)
	}
}

// listenerEdit is the next version of a listener in the making.
type listenerEdit struct {
	next     *listener
	names    *hostname.Edit[*entry]
	numbered *hamt.Edit[*entry]
}

func (e *listenerEdit) listener() *listener {
	e.next.names, e.next.numbered = e.names.Matcher(), e.numbered.Map()
	return e.next
}

// edit begins the next version of a listener; nil: there is none.
func (c *compiler) edit(name string) *listenerEdit {
	if e, ok := c.edits[name]; ok {
		return e
	}
	l, ok := c.listeners.Get(name)
	if !ok {
		return nil
	}
	next := *l
	e := &listenerEdit{&next, l.names.Edit(), l.numbered.Edit()}
	c.edits[name] = e
	return e
}

var errInUse = errors.New("the name or endpoint is already in use")

// put takes an entry in; name "" is for listeners without TLS.
func (e *listenerEdit) put(name string, x *entry) error {
	old, taken := e.get(name)
	if taken && old.cluster.state != x.cluster.state {
		return fmt.Errorf("%w by %s", errInUse, old.cluster.Name())
	}
	if taken {
		return errInUse
	}
	e.set(name, x)
	return nil
}

func (e *listenerEdit) get(name string) (*entry, bool) {
	if name == "" {
		return e.next.plain, e.next.plain != nil
	}
	if _, err := hostname.ParseNumbered(name); err == nil {
		return e.numbered.Get(name)
	}
	return e.names.Get(name)
}

// set is put without looking; nil takes the name out.
func (e *listenerEdit) set(name string, x *entry) {
	if name == "" {
		e.next.plain = x
		return
	}
	_, err := hostname.ParseNumbered(name)
	switch {
	case err == nil && x == nil:
		e.numbered.Delete(name)
	case err == nil:
		e.numbered.Set(name, x)
	case x == nil:
		e.names.Delete(name)
	default:
		e.names.Set(name, x)
	}
}

// removeBindings removes a version from the table's listeners and ports.
func (c *compiler) removeBindings(v *Virtual) {
	for _, at := range v.bindings {
		if at.port != "" {
			c.ports.Delete(at.port)
			continue
		}
		if e := c.edit(at.listener); e != nil {
			if x, ok := e.get(at.name); ok && x.cluster == v {
				e.set(at.name, nil)
			}
		}
	}
}
