package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// maxConflicts is how often a status is written again at once after a conflict.
const maxConflicts = 3

type condition = gateway.Condition

// The reasons of conditions that are not met.
const (
	reasonInvalid = "Invalid"
	reasonPending = "Pending"
)

func (o *object) condition(what, status, reason, message string) condition {
	return condition{
		Type: what, Status: status, ObservedGeneration: uint64(max(o.meta.Generation, 0)),
		LastTransitionTime: time.Now().UTC().Format(time.RFC3339), Reason: reason, Message: message,
	}
}

// writeStatuses writes the status of the objects whose status is different, and
// reports whether some are left.
func (s *session) writeStatuses(ctx context.Context) (left bool) {
	set, _ := s.cfg.Set()
	statusOf := s.cfg.Status(set)
	written := 0
	for src, list := range s.objects {
		if !src.status {
			continue
		}
		for _, o := range list {
			if s.noStatus[src] {
				break
			}
			patch := s.patch(o, set, statusOf)
			if patch == nil {
				continue
			}
			if written++; written > maxStatus {
				return true
			}
			if !s.cfg.Leads() || ctx.Err() != nil {
				return false
			}
			if s.writeStatus(ctx, o, func() []byte { return s.patch(o, set, statusOf) }) {
				left = true
			}
		}
	}
	return left
}

// writeStatus writes one status, which patch returns. It reports whether that has
// to be tried again.
func (s *session) writeStatus(ctx context.Context, o *object, patch func() []byte) (again bool) {
	for range maxConflicts {
		text := patch()
		if text == nil {
			return false
		}
		answer := new(raw)
		err := s.client.Patch(ctx, o.source.path(o, "status"), text, answer)
		switch {
		case err == nil:
			s.update(func(st *State) { st.StatusWritten++ })
			o.meta.ResourceVersion, o.status = answer.ResourceVersion, answer.status
			return false
		case apierrors.IsConflict(err):
			s.update(func(st *State) { st.StatusConflicts++ })
			if s.client.Get(ctx, o.source.path(o, ""), answer) != nil {
				return true
			}
			if answer.Generation != o.meta.Generation || answer.UID != o.meta.UID {
				return false // the watch brings the new object
			}
			o.meta.ResourceVersion, o.status = answer.ResourceVersion, answer.status
			continue
		case apierrors.IsNotFound(err):
			return false
		case apierrors.IsForbidden(err):
			s.noStatus[o.source] = true
		}
		s.update(func(st *State) { st.StatusFailed++ })
		if ctx.Err() == nil {
			s.cfg.Log.Warn("cannot write a status to Kubernetes", "object", o.String(),
				"error", s.client.Explain("patch "+o.source.name()+"/status", err))
		}
		return !s.noStatus[o.source]
	}
	return true
}

// patch returns the merge patch of an object's status; nil: it is as it should be.
func (s *session) patch(o *object, set *validate.Set, statusOf func(*resource.Object, time.Time) []byte) []byte {
	var status map[string]any
	switch {
	case o.source.kind == kindClass:
		status = s.classStatus(o)
	case !o.source.isGateway():
		status = map[string]any{"conditions": merge(o.status, s.ownConditions(o, set))}
	case o.source.kind == gateway.KindGateway:
		status = s.gatewayStatus(o, statusOf)
	default:
		status = s.routeStatus(o, statusOf)
	}
	if status == nil || contains(o.status, status) {
		return nil
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.meta.ResourceVersion}, "status": status})
	if err != nil {
		return nil // cannot happen: texts and numbers only
	}
	return text
}

// contains reports whether a status has these fields already.
func contains(have json.RawMessage, want map[string]any) bool {
	fields := map[string]any{}
	_ = json.Unmarshal(have, &fields) // none, or of another form
	for key, value := range want {
		text, _ := json.Marshal(value)
		var plain any
		_ = json.Unmarshal(text, &plain)
		want, _ := json.Marshal(plain)
		have, _ := json.Marshal(fields[key])
		if !bytes.Equal(want, have) {
			return false
		}
	}
	return true
}

// merge returns conditions with the transition times of those in a status whose
// state is the same, after those of others.
func merge(status json.RawMessage, conditions []condition) []condition {
	var have struct {
		Conditions []condition `json:"conditions"`
	}
	_ = json.Unmarshal(status, &have)
	return mergeInto(have.Conditions, conditions)
}

func mergeInto(have, conditions []condition) []condition {
	out := slices.Clone(conditions)
	var others []condition
	for _, old := range have {
		i := slices.IndexFunc(out, func(c condition) bool { return c.Type == old.Type })
		switch {
		case i < 0:
			others = append(others, old)
		case out[i].Status == old.Status:
			out[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	return append(others, out...)
}

// ownConditions are those of Penstock's kinds.
func (s *session) ownConditions(o *object, set *validate.Set) []condition {
	if why := o.trouble(); why != "" {
		return []condition{
			o.condition("Accepted", "False", reasonInvalid, why),
			o.condition("Programmed", "False", reasonInvalid, "this version has no effect; the last accepted one, if any, stays"),
		}
	}
	accepted := o.condition("Accepted", "True", "Accepted", "")
	stored, ok := set.Get(o.decoded.Key)
	switch {
	case !ok || !resource.Equal(stored, o.decoded):
		return []condition{accepted, o.condition("Programmed", "False", reasonPending, "it takes effect soon")}
	case s.cfg.Failed(o.decoded.Key) != "":
		return []condition{accepted, o.condition("Programmed", "False", "AddressNotUsable", cut(s.cfg.Failed(o.decoded.Key)))}
	}
	return []condition{accepted, o.condition("Programmed", "True", "Programmed", "")}
}

func (s *session) classStatus(o *object) map[string]any {
	if !s.classes[o.meta.Name] {
		return nil
	}
	c := o.condition("Accepted", "True", "Accepted", "")
	if len(specOf(o).ParametersRef) > 0 {
		c = o.condition("Accepted", "False", "InvalidParameters", "parametersRef is not supported: leave it out")
	}
	return map[string]any{"conditions": merge(o.status, []condition{c})}
}

func (o *object) observed() *resource.Object {
	c := o.decoded
	c.Version = uint64(max(o.meta.Generation, 0))
	return &c
}

func (s *session) gatewayStatus(o *object, statusOf func(*resource.Object, time.Time) []byte) map[string]any {
	if !s.counts(o) {
		return nil
	}
	if why := o.trouble(); why != "" {
		return map[string]any{"conditions": merge(o.status, []condition{
			o.condition("Accepted", "False", reasonInvalid, why),
			o.condition("Programmed", "False", reasonInvalid, "this version has no effect; the last accepted one, if any, stays"),
		})}
	}
	var now, have gateway.Status
	if json.Unmarshal(statusOf(o.observed(), time.Now()), &now) != nil {
		return nil
	}
	_ = json.Unmarshal(o.status, &have)
	for i := range now.Listeners {
		l := &now.Listeners[i]
		j := slices.IndexFunc(have.Listeners, func(h gateway.ListenerStatus) bool { return h.Name == l.Name })
		if j >= 0 {
			l.Conditions = mergeInto(have.Listeners[j].Conditions, l.Conditions)
		}
	}
	out := map[string]any{"conditions": merge(o.status, now.Conditions), "listeners": now.Listeners}
	now.Addresses = slices.DeleteFunc(now.Addresses, func(a gateway.StatusAddress) bool { return a.Value == "0.0.0.0" || a.Value == "::" })
	if len(now.Addresses) > 0 {
		out["addresses"] = now.Addresses
	}
	return out
}

// routeStatus has the parents of other controllers as they are, and ours.
func (s *session) routeStatus(o *object, statusOf func(*resource.Object, time.Time) []byte) map[string]any {
	var have struct {
		Parents []json.RawMessage `json:"parents"`
	}
	_ = json.Unmarshal(o.status, &have)
	parents, before := []any{}, map[string][]condition{}
	for _, text := range have.Parents {
		var p struct {
			ParentRef      json.RawMessage `json:"parentRef"`
			ControllerName string          `json:"controllerName"`
			Conditions     []condition     `json:"conditions"`
		}
		if json.Unmarshal(text, &p) != nil {
			return nil
		}
		if p.ControllerName != s.cfg.Controller {
			parents = append(parents, text)
		} else {
			before[normal(p.ParentRef)] = p.Conditions
		}
	}
	if len(before) == 0 && !s.counts(o) {
		return nil
	}
	for _, p := range s.ourParents(o, statusOf) {
		ref, _ := json.Marshal(p.ParentRef)
		p.ControllerName, p.Conditions = s.cfg.Controller, mergeInto(before[normal(ref)], p.Conditions)
		parents = append(parents, p)
	}
	return map[string]any{"parents": parents}
}

func normal(text []byte) string {
	var v any
	_ = json.Unmarshal(text, &v)
	out, _ := json.Marshal(v)
	return string(out)
}

// ourParents returns the status of a route at our Gateways.
func (s *session) ourParents(o *object, statusOf func(*resource.Object, time.Time) []byte) (out []gateway.ParentStatus) {
	var spec struct {
		Spec struct {
			ParentRefs []gateway.StatusParent `json:"parentRefs"`
		} `json:"spec"`
	}
	if json.Unmarshal(o.text, &spec) != nil {
		return nil
	}
	var now gateway.RouteStatus
	if o.trouble() == "" {
		_ = json.Unmarshal(statusOf(o.observed(), time.Now()), &now)
	}
	for i, ref := range specOf(o).ParentRefs {
		switch {
		case !s.isOurs(o, ref):
		case i < len(now.Parents):
			out = append(out, now.Parents[i])
		default:
			reason := "UnsupportedValue"
			if o.source.kind == kindHTTPRoute {
				reason = "NotAllowedByListeners"
			}
			at := spec.Spec.ParentRefs[i]
			at.Group, at.Kind = gateway.Group, gateway.KindGateway
			out = append(out, gateway.ParentStatus{ParentRef: at, Conditions: []condition{
				o.condition("Accepted", "False", reason, o.trouble()),
			}})
		}
	}
	return out
}
