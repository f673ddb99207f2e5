package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"penstock/routing/gateway"
	"penstock/routing/provider"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

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

// holdKey says which writes wait: all of them, those to a kind in a namespace, or those to
// one object.
type holdKey struct {
	source          *source
	namespace, name string
}

// hold keeps writes from being tried again too soon.
type hold struct {
	until    time.Time
	failures int
	text     string // why
}

// held reports whether writes of the status of an object wait.
func (s *session) held(o *object) bool {
	for _, key := range []holdKey{{}, {o.source, o.meta.Namespace, ""}, {o.source, o.meta.Namespace, o.meta.Name}} {
		if h := s.holds[key]; h != nil && time.Now().Before(h.until) {
			return true
		}
	}
	return false
}

// writeStatuses writes the status of the objects whose status is different, and
// reports whether some are left. An error ends the session.
func (s *session) writeStatuses(ctx context.Context) (left bool, err error) {
	set, _ := s.cfg.Set()
	statusOf := s.cfg.Status(set)
	written := 0
	for src, list := range s.objects {
		if !src.status {
			continue
		}
		for _, o := range list {
			if s.held(o) {
				continue
			}
			patch := s.patch(o, set, statusOf)
			if patch == nil {
				continue
			}
			if written++; written > maxStatus {
				return true, nil
			}
			if !s.cfg.Leads() || s.stopped(ctx) {
				return false, nil
			}
			if err := s.writeStatus(ctx, o, patch); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

func (s *session) stopped(ctx context.Context) bool { return ctx.Err() != nil }

// writeStatus writes one status. After a conflict the watch brings what changed, and with
// it another pass.
func (s *session) writeStatus(ctx context.Context, o *object, patch []byte) error {
	answer := new(raw)
	err := s.client.Patch(ctx, o.source.path(o, "status"), patch, answer)
	key, pause := holdKey{}, time.Duration(0)
	switch {
	case err == nil:
		s.update(func(st *State) { st.StatusWritten++ })
		o.meta.ResourceVersion, o.status = answer.ResourceVersion, answer.status
		delete(s.holds, holdKey{})
		delete(s.holds, holdKey{o.source, o.meta.Namespace, ""})
		delete(s.holds, holdKey{o.source, o.meta.Namespace, o.meta.Name})
		return nil
	case apierrors.IsConflict(err):
		s.update(func(st *State) { st.StatusConflicts++ })
		return nil //nolint:nilerr // the watch brings the object
	case apierrors.IsNotFound(err), s.stopped(ctx):
		return nil //nolint:nilerr // it was deleted
	case apierrors.IsUnauthorized(err):
		return s.client.Explain("patch "+o.source.name()+"/status", err)
	case apierrors.IsForbidden(err):
		key, pause = holdKey{o.source, o.meta.Namespace, ""}, s.cfg.Rediscover
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		key, pause = holdKey{o.source, o.meta.Namespace, o.meta.Name}, s.cfg.Rediscover
	}
	s.update(func(st *State) { st.StatusFailed++ })
	h := s.holds[key]
	if h == nil {
		h = &hold{}
		s.holds[key] = h
	}
	if pause == 0 {
		pause = provider.Backoff(h.failures)
	}
	text := s.client.Explain("patch "+o.source.name()+"/status of "+o.key().String(), err).Error()
	if apierrors.IsForbidden(err) {
		text = s.client.Explain("patch "+o.source.name()+"/status", fmt.Errorf("403 Forbidden: allow the verb patch on it in namespace %s; "+
			"the server says: %w", o.meta.Namespace, err)).Error()
	}
	if h.text == "" {
		s.cfg.Log.Warn("cannot write a status to Kubernetes", "object", o.String(), "error", text)
	}
	h.until, h.text = time.Now().Add(pause), text
	h.failures++
	return nil
}

// keepHolds forgets the holds that are over, unless statuses are left that may renew them,
// and has a pass made when the next one ends.
func (s *session) keepHolds(left bool) {
	now := time.Now()
	for key, h := range s.holds {
		switch {
		case h.until.After(now):
			if s.due.IsZero() || h.until.Before(s.due) {
				s.due = h.until
			}
		case !left:
			delete(s.holds, key)
		}
	}
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
	if !o.counts {
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
	if len(before) == 0 && !o.counts {
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
