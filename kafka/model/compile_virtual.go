package model

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"

	"penstock/kafka/filter"
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// makeVirtual makes a virtual cluster's next version. It returns the state of one
// that is gone.
func (c *compiler) makeVirtual(name string, spec *VirtualCluster) (removed *VirtualState) {
	state, known := c.states.Get(name)
	old, served := c.virtual.Get(name)
	if served {
		c.replaced = append(c.replaced, old)
		c.virtual.Delete(name)
	}
	if spec == nil {
		if !known {
			return nil
		}
		c.updateUsers(name, state.desired, nil)
		c.states.Delete(name)
		state.current.Store(nil)
		return state
	}
	if !known {
		state = &VirtualState{name: name}
		c.states.Set(name, state)
	}
	c.updateUsers(name, state.desired, spec)
	state.desired = spec
	v := &Virtual{state: state, raw: spec}
	if served && old.raw == spec {
		v.spec = old.spec
	} else {
		v.spec = spec.WithDefaults()
	}
	if err := c.build(v, old); err != nil {
		c.removeBindings(v)
		c.omit(KindVirtual, name, err)
		return nil
	}
	c.virtual.Set(name, v)
	// From here on filters that ask for addresses get the new ones.
	state.last.Store(v)
	state.current.Store(v)
	return nil
}

// updateUsers notes which resources a virtual cluster names.
func (c *compiler) updateUsers(name string, before, after *VirtualCluster) {
	for _, k := range before.dependencies() {
		c.users.Delete(k, name)
	}
	for _, k := range after.dependencies() {
		c.users.Set(k, name, struct{}{})
	}
}

// dependencies lists what a change of makes it another.
func (c *VirtualCluster) dependencies() []string {
	if c == nil {
		return nil
	}
	needs := []string{userOf(KindPhysical, c.PhysicalClusterRef)}
	for i := range c.Brokers.List {
		needs = append(needs, userOf(kindListener, c.Brokers.List[i].EndpointRef))
	}
	if d := c.Brokers.Discover; d != nil {
		needs = append(needs, userOf(discoveryUse, c.PhysicalClusterRef))
		if d.EndpointRef != "" {
			needs = append(needs, userOf(kindListener, d.EndpointRef))
		}
	}
	return needs
}

// build makes all of a version. On an error what it has put into the table is
// among its places.
func (c *compiler) build(v, old *Virtual) error {
	physical, ok := c.physical.Get(v.raw.PhysicalClusterRef)
	if !ok {
		return fmt.Errorf("PhysicalCluster %s does not exist", v.raw.PhysicalClusterRef)
	}
	v.physical = physical
	var err error
	switch d := v.raw.Brokers.Discover; {
	case d == nil:
		err = c.buildList(v)
	case d.byName():
		err = c.buildNames(v, d)
	default:
		err = c.buildPorts(v, d)
	}
	if err != nil {
		return err
	}
	return c.buildChain(v, old)
}

func (c *compiler) buildList(v *Virtual) error {
	v.addresses.listed = make(map[address]hostPort, len(v.spec.Brokers.List))
	for i := range v.spec.Brokers.List {
		b := &v.spec.Brokers.List[i]
		physical, ok := v.physical.byName[b.PhysicalBrokerRef]
		if !ok {
			return fmt.Errorf("PhysicalCluster %s has no broker %s", v.physical.Name(), b.PhysicalBrokerRef)
		}
		broker := &Broker{name: b.Name, node: NoNode, listed: b, physical: physical, certificate: v.certificate()}
		if b.TLS != nil {
			broker.certificate = b.TLS.CertificateRef
		}
		v.brokers = append(v.brokers, broker)
		l, ok := c.listeners.Get(b.EndpointRef)
		if !ok {
			return fmt.Errorf("kafka Listener %s does not exist", b.EndpointRef)
		}
		name := ""
		if l.spec.TLS != nil {
			pattern, err := hostname.ParsePattern(b.SNIMatchAddress)
			if err != nil {
				return fmt.Errorf("server name %q: %w", b.SNIMatchAddress, err)
			}
			name = pattern
		}
		if err := c.bind(v, b.EndpointRef, name, broker); err != nil {
			return err
		}
		if at, ok := reachableAddress(b.advertised(l.spec), c.cfg.Bind); ok {
			host, port, _ := resource.SplitAddress(physical.advertised())
			v.addresses.listed[addressKey(host, port)] = at
		}
	}
	return nil
}

func (c *compiler) buildNames(v *Virtual, d *Discover) error {
	l, ok := c.listeners.Get(d.EndpointRef)
	switch {
	case !ok:
		return fmt.Errorf("kafka Listener %s does not exist", d.EndpointRef)
	case l.spec.TLS == nil:
		return fmt.Errorf("kafka Listener %s has no TLS", d.EndpointRef)
	}
	pattern, err := hostname.ParseNumbered(d.SNIPattern)
	if err != nil {
		return fmt.Errorf("pattern %q: %w", d.SNIPattern, err)
	}
	bootstrap, err := hostname.ParseName(d.Bootstrap)
	if err != nil {
		return fmt.Errorf("server name %q: %w", d.Bootstrap, err)
	}
	port := d.AdvertisePort
	if port == 0 {
		port = portOf(l.spec.Address)
	}
	v.addresses = addresses{pattern: &pattern, port: int32(port)}
	v.brokers = []*Broker{{name: bootstrapName, node: NoNode, certificate: v.certificate()}}
	if err := c.bind(v, d.EndpointRef, bootstrap, v.brokers[0]); err != nil {
		return err
	}
	return c.bind(v, d.EndpointRef, pattern.String(), nil)
}

// bind makes a name of a listener lead to a broker.
func (c *compiler) bind(v *Virtual, listener, name string, b *Broker) error {
	e := c.edit(listener)
	if e == nil {
		return fmt.Errorf("kafka Listener %s does not exist", listener)
	}
	if err := e.put(name, &entry{v, b}); err != nil {
		return fmt.Errorf("%s at %s: %w", nameOr(name, "any connection"), listener, err)
	}
	v.bindings = append(v.bindings, binding{listener: listener, name: name})
	return nil
}

func nameOr(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}

func (c *compiler) buildPorts(v *Virtual, d *Discover) error {
	host := d.Address
	if host == "" {
		host = c.cfg.Bind
	}
	v.addresses = addresses{host: d.Advertise, ports: d.BrokerPorts, first: int32(d.FirstNodeID)}
	if d.Advertise == "" && !resource.AnyHost(host) {
		v.addresses.host = host
	}
	v.brokers = []*Broker{{name: bootstrapName, node: NoNode, certificate: v.certificate()}}
	c.openPort(v, host, d.BootstrapPort, v.brokers[0])
	for i := range d.BrokerPorts.Len() {
		c.openPort(v, host, int(d.BrokerPorts.First)+i, v.node(int32(d.FirstNodeID)+int32(i)))
	}
	return nil
}

func (c *compiler) openPort(v *Virtual, host string, n int, b *Broker) {
	name := PortName(v.Name(), n)
	c.ports.Set(name, &port{Port{name, joinHostPort(host, n), v.spec.TLS != nil, v.Name()}, entry{v, b}})
	v.bindings = append(v.bindings, binding{port: name})
}

// PortName is the name of the listener that a virtual cluster has at a port of
// its own.
func PortName(cluster string, port int) string {
	return "virtualcluster/" + cluster + ":" + strconv.Itoa(port)
}

func joinHostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// filterSpec is one filter of a chain to be made.
type filterSpec struct {
	typ               *filter.Type
	config            any
	physical, implied bool
}

// chainSpecs lists the filters of a chain in the order in which requests see
// them: those that are implied, the virtual cluster's, the physical cluster's.
func (c *compiler) chainSpecs(v *Virtual) ([]filterSpec, error) {
	var named []filterSpec
	has := map[string]bool{}
	add := func(filters []Filter, physical bool) error {
		for i := range filters {
			t := c.types.find(filters[i].Type)
			if t == nil {
				return fmt.Errorf("unknown filter %s", filters[i].Type)
			}
			has[t.Name] = true
			named = append(named, filterSpec{t, filters[i].Config, physical, false})
		}
		return nil
	}
	if err := add(v.raw.Filters, false); err != nil {
		return nil, err
	}
	if err := add(v.physical.raw.Filters, true); err != nil {
		return nil, err
	}
	var all []filterSpec
	for _, name := range c.cfg.Defaults {
		if t := c.types.find(name); t != nil && !has[t.Name] {
			all = append(all, filterSpec{t, nil, false, true})
		}
	}
	return append(all, named...), nil
}

// buildChain makes the filters of a version, or takes those of the one before
// that are the same.
func (c *compiler) buildChain(v, old *Virtual) error {
	all, err := c.chainSpecs(v)
	if err != nil {
		return err
	}
	// Held by the table, and the filters by the version.
	v.refs.Store(1)
	used := map[*sharedFilter]bool{}
	for _, w := range all {
		s := sameFilter(old, v, w, used)
		if s == nil {
			if s, err = c.provision(v, w); err != nil {
				v.Release()
				return fmt.Errorf("filter %s: %w", w.typ.Name, err)
			}
		}
		used[s] = true
		s.refs.Add(1)
		v.chain = append(v.chain, s)
	}
	if old != nil && slices.Equal(old.chain, v.chain) {
		v.compiled = old.compiled
		return nil
	}
	if v.compiled, err = filter.NewChain(v.Filters()); err != nil {
		v.Release()
	}
	return err
}

// sameFilter finds a filter of the older version that is what is wanted.
func sameFilter(old, v *Virtual, w filterSpec, used map[*sharedFilter]bool) *sharedFilter {
	if old == nil {
		return nil
	}
	for _, s := range old.chain {
		if !used[s] && s.Type == w.typ.Name && s.Physical == w.physical && s.Implied == w.implied &&
			s.physical == v.physical.state && s.hide == v.hides() && resource.Same(s.config, w.config) {
			return s
		}
	}
	return nil
}

func (c *compiler) provision(v *Virtual, w filterSpec) (*sharedFilter, error) {
	config := w.typ.Config()
	if w.config != nil {
		reflect.ValueOf(config).Elem().Set(reflect.ValueOf(w.config).Elem())
	}
	resource.FillDefaults(config)
	f, err := config.Provision(filter.Env{
		VirtualCluster: v.Name(), PhysicalCluster: v.physical.Name(), Address: v.state.Address,
		HideUnmapped: v.hides(), Log: c.cfg.Log.With("virtual_cluster", v.Name(), "filter", w.typ.Name),
	})
	if err != nil {
		return nil, err
	}
	return &sharedFilter{
		Link:   Link{Type: w.typ.Name, Config: config, Filter: f, Physical: w.physical, Implied: w.implied},
		config: w.config, physical: v.physical.state, hide: v.hides(),
	}, nil
}
