package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"penstock/node/api"
	"penstock/routing/gateway"
	"penstock/routing/kubeapi"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// item is one change: an object's resource to put, or a resource to delete.
type item struct {
	object *object // nil: remove
	remove resource.Key
	stored resource.Object // what is to be removed
	why    string          // of a refusal
}

func (i *item) key() resource.Key {
	if i.object != nil {
		return i.object.decoded.Key
	}
	return i.remove
}

// pass brings the resources in force in line with the objects, and then the
// status of the objects. It reports whether there is more to do. An error ends the
// session.
func (s *session) pass(ctx context.Context) (again bool, err error) {
	s.due = time.Time{}
	s.findClasses()
	if s.followSecrets(ctx) {
		return true, nil // what they say comes first
	}
	s.resolveSecrets()
	desired, total := s.desired()
	if total > MaxObjects {
		s.publish([]string{fmt.Sprintf("kubernetes: there are %d objects, and the maximum is %d: nothing is applied; "+
			"narrow them by --kubernetes-namespaces or --kubernetes-selector", total, MaxObjects)})
		return false, nil
	}
	items, pending, wait := s.confirm(ctx, s.difference(desired))
	refused, failed := s.applyAll(ctx, items)
	if failed != nil {
		s.update(func(st *State) { st.Failed++ })
		if ctx.Err() == nil {
			pending = append(pending, "kubernetes: cannot apply yet: "+failed.Error())
			s.later()
		}
	}
	for _, i := range refused {
		if i.object == nil {
			pending = append(pending, fmt.Sprintf("kubernetes: %v cannot be deleted yet: %s", i.remove, i.why))
		}
	}
	s.logTroubles()
	if failed != nil {
		s.publish(pending)
		return false, nil //nolint:nilerr // it is in status; what is not decided keeps its status
	}
	if s.due.IsZero() {
		s.failures = 0
	}
	left, err := s.writeStatuses(ctx)
	s.keepHolds(left)
	s.publish(pending)
	return wait || left, err
}

// later has the pass made again after a pause.
func (s *session) later() {
	s.due = time.Now().Add(provider.Backoff(s.failures))
	s.failures++
}

func (s *session) findClasses() {
	s.classes = map[string]bool{}
	for src, list := range s.objects {
		if src.kind != kindClass {
			continue
		}
		for _, o := range list {
			if o.counts = specOf(o).ControllerName == s.cfg.Controller; o.counts {
				s.classes[o.meta.Name] = true
			}
		}
	}
}

// desired returns the objects that count, by resource, and how many objects count. One
// with a fault keeps its name: its last accepted version stays.
func (s *session) desired() (desired map[resource.Key]*object, total int) {
	desired = map[resource.Key]*object{}
	for _, list := range s.objects {
		for _, o := range list {
			if o.source.kind != kindClass {
				o.counts = s.isOurObject(o)
			}
			if !o.counts {
				o.refused = ""
				continue
			}
			total++
			if o.source.kind == kindClass || o.source.kind == kindHTTPRoute {
				continue
			}
			key := o.resource()
			first, second := o, desired[key]
			if second != nil && older(second, first) < 0 {
				first, second = second, first
			}
			desired[key] = first
			if second != nil && second.source.kind != kindSecret {
				second.refused = fmt.Sprintf("%v: %v is called that here too, and is older: rename one of them", key, first)
			}
		}
	}
	return desired, total
}

// spec is what the mode itself reads of a spec of the Gateway API.
type spec struct {
	ControllerName   string          `json:"controllerName"`
	ParametersRef    json.RawMessage `json:"parametersRef"`
	GatewayClassName string          `json:"gatewayClassName"`
	ParentRefs       []parentRef     `json:"parentRefs"`
}

type parentRef struct {
	Group     *string `json:"group"`
	Kind      *string `json:"kind"`
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
}

func specOf(o *object) (out spec) {
	var of struct {
		Spec *spec `json:"spec"`
	}
	of.Spec = &out
	_ = json.Unmarshal(o.text, &of) // of another form: it is none of ours
	return out
}

// isOurObject reports whether an object is for this cluster of Penstock.
func (s *session) isOurObject(o *object) bool {
	switch {
	case o.source.kind == kindSecret:
		w := s.secrets[o.key()]
		return w != nil && w.gateway
	case !o.source.isGateway():
		return true
	case o.source.kind == gateway.KindGateway:
		return s.classes[specOf(o).GatewayClassName]
	case o.source.kind == gateway.KindGrant:
		return true
	}
	return slices.ContainsFunc(specOf(o).ParentRefs, func(p parentRef) bool { return s.isOurs(o, p) })
}

// isOurs reports whether a parentRef is one of our Gateways.
func (s *session) isOurs(route *object, p parentRef) bool {
	if p.Group != nil && *p.Group != gateway.Group || p.Kind != nil && *p.Kind != gateway.KindGateway {
		return false
	}
	key := kubeapi.Key{Namespace: p.Namespace, Name: p.Name}
	if key.Namespace == "" {
		key.Namespace = route.meta.Namespace
	}
	for src, list := range s.objects {
		if g := list[key]; src.kind == gateway.KindGateway && g != nil {
			return s.classes[specOf(g).GatewayClassName]
		}
	}
	return false
}

// difference returns what to change in the resources in force.
func (s *session) difference(desired map[resource.Key]*object) (items []*item) {
	set, _ := s.cfg.Set()
	for key, o := range desired {
		stored, ok := set.Get(key)
		switch {
		case o.decoded.Name == "": // a fault
		case ok && resource.Equal(o.decoded, stored):
			o.refused = ""
		default:
			items = append(items, &item{object: o})
		}
	}
	for _, o := range set.WithLabels("", map[string]string{resource.LabelAppliedBy: resource.AppliedByKubernetes}) {
		if desired[o.Key] == nil && s.knows(&o) {
			items = append(items, &item{remove: o.Key, stored: o})
		}
	}
	slices.SortFunc(items, func(a, b *item) int { return a.key().Compare(b.key()) })
	return items
}

// confirm returns the items without the removals that must not be made yet, and why these
// must not. A removal waits for a second pass, so that a kind that the API server is about
// to drop shows as such. It reports whether to make a pass for that.
func (s *session) confirm(ctx context.Context, items []*item) (sure []*item, pending []string, again bool) {
	missing, asked := map[string]bool{}, map[string]*served{}
	var failed error // the API server does not answer, so nothing can go
	for _, i := range items {
		if i.object != nil {
			sure = append(sure, i)
			continue
		}
		name := i.remove.String()
		missing[name] = true
		switch {
		case !s.missing[name]:
			again = true
			continue
		case failed != nil:
			continue
		}
		switch err := s.removable(ctx, &i.stored, asked); {
		case err == nil:
			sure = append(sure, i)
		case errors.Is(err, errTerminating):
			pending = append(pending, err.Error())
		default:
			failed = err
			pending = append(pending, fmt.Sprintf("kubernetes: %v cannot be deleted yet: %v", i.remove, err))
			s.later()
		}
	}
	s.missing = missing
	return sure, pending, again
}

var errTerminating = errors.New("kubernetes: the definition of a kind is being deleted, and with it its objects; their resources stay")

// applyAll applies the items in parts. What is refused because of others may be
// accepted after them, so it is tried again as long as that helps.
func (s *session) applyAll(ctx context.Context, items []*item) (refused []*item, err error) {
	all := items
	for len(items) > 0 {
		refused = nil
		for part := range slices.Chunk(items, maxItems) {
			some, err := s.apply(ctx, part)
			if err != nil {
				return nil, err
			}
			refused = append(refused, some...)
		}
		if len(refused) == len(items) || len(refused) == 0 {
			break
		}
		items = refused
	}
	for _, i := range all {
		if i.object != nil {
			i.object.refused = ""
		}
	}
	for _, i := range refused {
		if i.object != nil {
			i.object.refused = i.why
		}
	}
	return refused, nil
}

// apply applies items together, without those that are refused. The error is not
// about the items.
func (s *session) apply(ctx context.Context, items []*item) (refused []*item, err error) {
	for len(items) > 0 {
		var put []resource.Object
		var remove []resource.Key
		for _, i := range items {
			if i.object != nil {
				put = append(put, i.object.decoded)
			} else {
				remove = append(remove, i.remove)
			}
		}
		if !s.cfg.Leads() {
			return nil, errNotLeader
		}
		err := s.cfg.Apply(ctx, put, remove)
		if err == nil {
			s.update(func(st *State) { st.Applied++ })
			return refused, nil
		}
		var refusal *api.Error
		if !errors.As(err, &refusal) || refusal.Code != api.Invalid && refusal.Code != api.Refused {
			return nil, err
		}
		good, bad := split(items, refusal)
		switch {
		case len(bad) > 0:
			refused, items = append(refused, bad...), good
		case len(items) == 1:
			items[0].why = cut(refusalText(refusal, nil))
			return append(refused, items[0]), nil
		default: // it is about something else: halves find whose it is
			half := len(items) / 2
			for _, part := range [][]*item{items[:half], items[half:]} {
				some, err := s.apply(ctx, part)
				if err != nil {
					return nil, err
				}
				refused = append(refused, some...)
			}
			return refused, nil
		}
	}
	return refused, nil
}

var errNotLeader = errors.New("this node leads no more")

// split returns the items without a fault and those with one.
func split(items []*item, refusal *api.Error) (good, bad []*item) {
	for _, i := range items {
		if text := refusalText(refusal, i); text != "" {
			i.why = cut(text)
			bad = append(bad, i)
		} else {
			good = append(good, i)
		}
	}
	return good, bad
}

// refusalText returns the faults of an item as penstock check tells them; nil: all.
func refusalText(refusal *api.Error, of *item) (text string) {
	for _, f := range refusal.Faults {
		if of != nil && f.Key != of.key().String() {
			continue
		}
		fault := resource.Fault{Path: f.Key + " " + f.Path, Message: f.Message, Value: f.Value}
		if f.Path == "" {
			fault.Path = f.Key
		}
		if of != nil && of.object != nil {
			fault.Path = of.object.decoded.Fault(f.Path, "", nil).Path
		}
		if text != "" {
			text += "\n"
		}
		text += fault.Error()
	}
	if text == "" && of == nil {
		text = refusal.Message
	}
	return text
}

// logTroubles logs each trouble of an object once.
func (s *session) logTroubles() {
	for _, list := range s.objects {
		for _, o := range list {
			if !o.counts {
				continue
			}
			switch text := o.trouble(); text {
			case o.logged:
			case "":
				s.cfg.Log.Info("an object of Kubernetes is accepted now", "object", o.String())
			default:
				s.cfg.Log.Warn("an object of Kubernetes is not accepted; its last accepted version stays", "object", o.String(), "fault", text)
			}
			o.logged = o.trouble()
		}
	}
}
