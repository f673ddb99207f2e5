package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"penstock/node/api"
	"penstock/routing/formats/crd"
	"penstock/routing/gateway"
	"penstock/routing/kubeapi"
	"penstock/routing/resource"
)

// item is one change: an object's resource to put, or a resource to delete.
type item struct {
	object *object // nil: remove
	remove resource.Key
	why    string // of a refusal
}

func (i *item) key() resource.Key {
	if i.object != nil {
		return i.object.decoded.Key
	}
	return i.remove
}

// pass brings the resources in force in line with the objects, and then the
// status of the objects. It reports whether there is more to do.
func (s *session) pass(ctx context.Context) (again bool) {
	total := 0
	for _, list := range s.objects {
		total += len(list)
	}
	if total > MaxObjects {
		s.publish([]string{fmt.Sprintf("kubernetes: there are %d objects, and the maximum is %d: nothing is applied; "+
			"narrow them by --kubernetes-namespaces or --kubernetes-selector", total, MaxObjects)})
		return false
	}
	desired := s.desired()
	refused, err := s.applyAll(ctx, s.difference(desired))
	var pending []string
	if err != nil {
		s.update(func(st *State) { st.Failed++ })
		if ctx.Err() == nil {
			pending, again = []string{"kubernetes: cannot apply yet: " + err.Error()}, true
		}
	}
	for _, i := range refused {
		if i.object == nil {
			pending = append(pending, fmt.Sprintf("kubernetes: %v cannot be deleted yet: %s", i.remove, i.why))
		}
	}
	s.logTroubles()
	s.publish(pending)
	if err != nil {
		return again // the status of what is not decided does not change
	}
	return s.writeStatuses(ctx)
}

// desired returns the objects that count, by resource.
func (s *session) desired() map[resource.Key]*object {
	s.classes = map[string]bool{}
	for src, list := range s.objects {
		for _, o := range list {
			if src.kind == kindClass && specOf(o).ControllerName == s.cfg.Controller {
				s.classes[o.meta.Name] = true
			}
		}
	}
	desired := map[resource.Key]*object{}
	for _, list := range s.objects {
		for _, o := range list {
			o.refused = ""
			if !s.counts(o) || o.decoded.Name == "" {
				continue
			}
			key := o.decoded.Key
			other := desired[key]
			if other == nil {
				desired[key] = o
				continue
			}
			first, second := other, o
			if older(o, other) < 0 {
				first, second = o, other
			}
			desired[key] = first
			second.refused = fmt.Sprintf("%v: %v is called that here too, and is older: rename one of them", key, first)
		}
	}
	return desired
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

// counts reports whether an object is for this cluster of Penstock.
func (s *session) counts(o *object) bool {
	switch {
	case !o.source.isGateway():
		return true
	case o.source.kind == gateway.KindGateway:
		return s.classes[specOf(o).GatewayClassName]
	case o.source.kind == gateway.KindGrant:
		return true
	case o.source.kind == kindClass:
		return false
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
		if stored, ok := set.Get(key); ok && resource.Equal(o.decoded, stored) {
			continue
		}
		items = append(items, &item{object: o})
	}
	faulty := s.faulty()
	for _, o := range set.WithLabels("", map[string]string{resource.LabelAppliedBy: resource.AppliedByKubernetes}) {
		if desired[o.Key] == nil && !faulty[o.Key] && s.knows(&o) {
			items = append(items, &item{remove: o.Key})
		}
	}
	slices.SortFunc(items, func(a, b *item) int { return a.key().Compare(b.key()) })
	return items
}

// faulty returns the resources of objects with faults, whose last accepted version
// stays.
func (s *session) faulty() map[resource.Key]bool {
	out := map[resource.Key]bool{}
	for src, list := range s.objects {
		for _, o := range list {
			if o.fault == "" || !s.counts(o) {
				continue
			}
			name := o.meta.Name
			if src.group != kumaGroup {
				name = gateway.NameOf(o.meta.Namespace, name)
			}
			out[resource.Key{Kind: src.kind, Name: name}] = true
		}
	}
	return out
}

// knows reports whether all objects are known that a resource may come from.
func (s *session) knows(o *resource.Object) bool {
	switch {
	case gateway.IsKind(o.Kind):
		return s.complete(gateway.Group, kindClass) && s.complete(gateway.Group, gateway.KindGateway) && s.complete(gateway.Group, o.Kind)
	case o.Labels[resource.LabelFormat] == resource.FormatKumaKubernetes:
		return s.complete(kumaGroup, o.Kind)
	}
	return s.complete(crd.Group, o.Kind)
}

// applyAll applies the items in parts. What is refused because of others may be
// accepted after them, so it is tried again as long as that helps.
func (s *session) applyAll(ctx context.Context, items []*item) (refused []*item, err error) {
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
