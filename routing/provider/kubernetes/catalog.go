package kubernetes

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock/routing/provider"
)

// Tags of an endpoint, beside provider.ZoneTag.
const (
	NodeTag = "node" // the name of the Node that the pod runs on
	PodTag  = "pod"  // the name of the Pod
)

// maxText bounds each name in an object, in bytes. Kubernetes' own bound is 253.
const maxText = 512

// key names an object.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

func keyOf(m *metav1.ObjectMeta) key { return key{m.Namespace, m.Name} }

// object is what is kept of a Service or an EndpointSlice. Both are nil for one
// that is gone, or of no use.
type object struct {
	key
	service *service
	slice   *slice
}

// size is what the object counts towards Config.MaxObjects.
func (o *object) size() int {
	switch {
	case o.service != nil:
		return 1 + len(o.service.ports)
	case o.slice != nil:
		return 1 + len(o.slice.ports) + len(o.slice.endpoints)
	}
	return 0
}

// service is what is kept of a Service.
type service struct {
	ports []port // those of TCP
	// portless is true if the Service has no ports at all, as a headless one may.
	portless bool
	external string // the host name that a Service of type ExternalName stands for
}

// slice is what is kept of an EndpointSlice.
type slice struct {
	service   key
	ports     []port // those of TCP; number 0: any port
	endpoints []endpoint
	// built has the endpoints as they were reported, by port, so that a change of
	// one slice of a service costs little for the others.
	built map[int32][]provider.Endpoint
}

type port struct {
	name   string
	number int32
}

// endpoint is what is kept of an endpoint. Few zones and nodes occur many times.
type endpoint struct {
	host       string
	pod        string
	zone, node unique.Handle[string]
	state      provider.State
}

// newService returns what is kept of a Service.
func newService(s *corev1.Service) (object, error) {
	o := object{key: keyOf(&s.ObjectMeta), service: &service{portless: len(s.Spec.Ports) == 0}}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		o.service.external = s.Spec.ExternalName
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Protocol == corev1.ProtocolTCP || p.Protocol == "" {
			o.service.ports = append(o.service.ports, port{p.Name, p.Port})
			if len(p.Name) > maxText {
				return o, tooLong(o.key)
			}
		}
	}
	if len(s.Namespace) > maxText || len(s.Name) > maxText || len(o.service.external) > maxText {
		return o, tooLong(o.key)
	}
	return o, nil
}

// newSlice returns what is kept of an EndpointSlice.
func newSlice(s *discoveryv1.EndpointSlice, family Family) (object, error) {
	o := object{key: keyOf(&s.ObjectMeta)}
	name := s.Labels[discoveryv1.LabelServiceName]
	if len(s.Namespace) > maxText || len(s.Name) > maxText || len(name) > maxText {
		return o, tooLong(o.key)
	}
	kind := string(s.AddressType)
	if name == "" || family != BothFamilies && kind != string(family) && s.AddressType != discoveryv1.AddressTypeFQDN {
		return o, nil
	}
	o.slice = &slice{service: key{s.Namespace, name}, endpoints: make([]endpoint, 0, len(s.Endpoints))}
	for i := range s.Ports {
		p := &s.Ports[i]
		if value(p.Protocol) != corev1.ProtocolTCP && value(p.Protocol) != "" {
			continue
		}
		if len(value(p.Name)) > maxText {
			return o, tooLong(o.key)
		}
		o.slice.ports = append(o.slice.ports, port{value(p.Name), value(p.Port)})
	}
	for i := range s.Endpoints {
		from := &s.Endpoints[i]
		if len(from.Addresses) == 0 {
			continue
		}
		// Kubernetes gives no meaning to further addresses.
		e := endpoint{host: from.Addresses[0], state: stateOf(&from.Conditions)}
		if from.TargetRef != nil && from.TargetRef.Kind == "Pod" {
			e.pod = from.TargetRef.Name
		}
		zone, node := value(from.Zone), value(from.NodeName)
		if len(e.host) > maxText || len(e.pod) > maxText || len(zone) > maxText || len(node) > maxText {
			return o, tooLong(o.key)
		}
		e.zone, e.node = unique.Make(zone), unique.Make(node)
		o.slice.endpoints = append(o.slice.endpoints, e)
	}
	return o, nil
}

func tooLong(k key) error {
	return fmt.Errorf("%.80q in namespace %.80q has a name or an address of more than %d bytes", k.name, k.namespace, maxText)
}

// value returns what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// stateOf returns the state of an endpoint. One that terminates gets no new
// connections whether it still serves or not, and even where its Service
// publishes endpoints that are not ready.
func stateOf(c *discoveryv1.EndpointConditions) provider.State {
	switch {
	case value(c.Terminating):
		return provider.Terminating
	case c.Ready == nil || *c.Ready:
		return provider.Ready
	default:
		return provider.NotReady
	}
}

// catalog is what is known of the objects of a namespace, or of all.
type catalog struct {
	services map[key]*service
	slices   map[key]*slice
	of       map[key]map[key]*slice // the slices of each service
}

func newCatalog() catalog {
	return catalog{services: map[key]*service{}, slices: map[key]*slice{}, of: map[key]map[key]*slice{}}
}

// replace replaces all objects of a kind.
func (c *catalog) replace(k *kind, objects []object) {
	if k == services {
		c.services = make(map[key]*service, len(objects))
	} else {
		c.slices, c.of = make(map[key]*slice, len(objects)), map[key]map[key]*slice{}
	}
	touched := map[key]bool{}
	for _, o := range objects {
		c.put(k, o, touched)
	}
}

// put adds, replaces or removes an object, and adds to touched the services that
// it is about.
func (c *catalog) put(k *kind, o object, touched map[key]bool) {
	if k == services {
		touched[o.key] = true
		if o.service == nil {
			delete(c.services, o.key)
		} else {
			c.services[o.key] = o.service
		}
		return
	}
	if old := c.slices[o.key]; old != nil {
		touched[old.service] = true
		delete(c.slices, o.key)
		if delete(c.of[old.service], o.key); len(c.of[old.service]) == 0 {
			delete(c.of, old.service)
		}
	}
	if o.slice != nil {
		name := o.slice.service
		touched[name] = true
		c.slices[o.key] = o.slice
		if c.of[name] == nil {
			c.of[name] = map[key]*slice{}
		}
		c.of[name][o.key] = o.slice
	}
}

// endpoints returns the endpoints of a service; none if there is no such
// service.
func (c *catalog) endpoints(name key, portName string) ([]provider.Endpoint, error) {
	svc := c.services[name]
	if svc == nil {
		return nil, nil
	}
	if svc.external != "" {
		return nil, fmt.Errorf("service %q has the type ExternalName and stands for %.80q: use a provider of the type dns for that",
			name.String(), svc.external)
	}
	wanted, err := svc.port(portName)
	if err != nil {
		return nil, fmt.Errorf("service %q %w", name.String(), err)
	}
	of := c.of[name]
	names := make([]key, 0, len(of))
	total := 0
	for k, s := range of {
		names = append(names, k)
		total += len(s.endpoints)
	}
	slices.SortFunc(names, func(a, b key) int { return strings.Compare(a.name, b.name) })
	list := make([]provider.Endpoint, 0, total)
	for _, k := range names {
		if number := of[k].number(svc, wanted); number != 0 {
			list = append(list, of[k].build(number)...)
		}
	}
	return list, nil
}

// port returns the port that a query means.
func (s *service) port(name string) (port, error) {
	number, err := strconv.ParseUint(name, 10, 16)
	isNumber := err == nil && number > 0
	switch {
	case s.portless && isNumber:
		return port{number: int32(number)}, nil
	case s.portless:
		return port{}, errors.New("has no ports: give the number of the port that its endpoints listen on")
	case len(s.ports) == 0:
		return port{}, errors.New("has no TCP port")
	case name == "" && len(s.ports) == 1:
		return s.ports[0], nil
	case name == "":
		return port{}, fmt.Errorf("has several ports: give one of %s", s.describePorts())
	}
	for _, p := range s.ports {
		if p.name == name || isNumber && p.number == int32(number) {
			return p, nil
		}
	}
	return port{}, fmt.Errorf("has no TCP port %.80q: give one of %s", name, s.describePorts())
}

func (s *service) describePorts() string {
	const most = 10
	var list []string
	for _, p := range s.ports[:min(len(s.ports), most)] {
		if p.name == "" {
			list = append(list, strconv.Itoa(int(p.number)))
		} else {
			list = append(list, fmt.Sprintf("%.80q (%d)", p.name, p.number))
		}
	}
	if len(s.ports) > most {
		list = append(list, "...")
	}
	return strings.Join(list, ", ")
}

// number returns the port that the slice's endpoints listen on; 0: they don't.
func (s *slice) number(svc *service, wanted port) int32 {
	if svc.portless {
		return wanted.number
	}
	for _, p := range s.ports {
		if p.name == wanted.name {
			if p.number == 0 {
				return wanted.number
			}
			return p.number
		}
	}
	return 0
}

// build returns the slice's endpoints as they are reported.
func (s *slice) build(number int32) []provider.Endpoint {
	if list, ok := s.built[number]; ok {
		return list
	}
	list := make([]provider.Endpoint, len(s.endpoints))
	text := strconv.Itoa(int(number))
	for i := range s.endpoints {
		e := &s.endpoints[i]
		list[i] = provider.Endpoint{Address: net.JoinHostPort(e.host, text), Weight: 1, State: e.state, Tags: e.tags()}
	}
	if s.built == nil {
		s.built = map[int32][]provider.Endpoint{}
	}
	s.built[number] = list
	return list
}

func (e *endpoint) tags() map[string]string {
	var tags map[string]string
	for _, t := range [...][2]string{{provider.ZoneTag, e.zone.Value()}, {NodeTag, e.node.Value()}, {PodTag, e.pod}} {
		if t[1] != "" {
			if tags == nil {
				tags = make(map[string]string, 3)
			}
			tags[t[0]] = t[1]
		}
	}
	return tags
}
