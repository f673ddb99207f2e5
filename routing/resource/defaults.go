package resource

import (
	"reflect"
	"strconv"
	"sync"
)

// WithDefaults returns a copy of a listener with all defaults filled in.
// Pointers to structs stay nil where left out means none. Lists and maps are
// shared.
func (l *Listener) WithDefaults() *Listener {
	out := *l
	if l.Protocol == "tls" && l.TLS == nil {
		out.TLS = &ListenerTLS{}
	}
	fill(reflect.ValueOf(&out).Elem())
	return &out
}

// WithDefaults returns a copy of a service with all defaults filled in: no
// pointer to a number or duration is nil. Pointers to structs stay nil where
// left out means none.
func (s *Service) WithDefaults() *Service {
	out := *s
	fill(reflect.ValueOf(&out).Elem())
	out.Connect.attemptsGiven = s.Connect.Attempts != 0
	if idle := *out.IdleTimeout; s.HalfClosedTimeout == nil && idle > 0 {
		out.HalfClosedTimeout = new(min(*out.HalfClosedTimeout, idle))
	}
	return &out
}

// StatusOK reports whether an http check accepts the status.
func (h *HealthCheck) StatusOK(status int) bool {
	if len(h.Status) == 0 {
		return status >= 200 && status <= 399
	}
	for _, s := range h.Status {
		if s == status {
			return true
		}
	}
	return false
}

// PortOf returns the port to check of an endpoint with these tags; 0: the endpoint's own.
func (h *HealthCheck) PortOf(tags map[string]string) uint16 { return portOf(h.PortTag, h.Port, tags) }

// portOf returns the port that a tag has; without such a tag, the given one.
func portOf(tag string, port int, tags map[string]string) uint16 {
	if tag != "" {
		if n, err := strconv.ParseUint(tags[tag], 10, 16); err == nil && n > 0 {
			return uint16(n)
		}
	}
	return uint16(port)
}

// WithDefaults returns a copy of a route with all defaults filled in.
// BackendRefs that are left out become the destination itself.
func (r *MeshTCPRoute) WithDefaults() *MeshTCPRoute {
	out := *r
	if r.TargetRef == nil {
		out.TargetRef = &TargetRef{Kind: "Mesh"}
	}
	out.To = make([]RouteTo, len(r.To))
	for i, to := range r.To {
		rule := RouteRule{}
		if len(to.Rules) > 0 {
			rule = to.Rules[0]
		}
		if len(rule.Default.BackendRefs) == 0 {
			rule.Default.BackendRefs = []BackendRef{{Kind: "MeshService", Name: to.TargetRef.Name}}
		}
		out.To[i] = RouteTo{TargetRef: to.TargetRef, Rules: []RouteRule{rule}}
	}
	fill(reflect.ValueOf(&out).Elem())
	return &out
}

// FillDefaults fills in all defaults of a spec of another package. It copies
// what it changes behind pointers and in lists of structs, so spec may be a
// shallow copy.
func FillDefaults(spec any) { fill(reflect.ValueOf(spec).Elem()) }

// fill sets fields of a struct that are left out to the defaults of their tags.
func fill(v reflect.Value) {
	p := SchemaOf(v.Type())
	if p.List >= 0 {
		fillList(v.Field(p.List))
	}
	for _, f := range p.Fields {
		fv := v.Field(f.Index)
		switch {
		case f.Default != "" && fv.IsZero():
			setDefault(fv, f.Default)
		case !f.Nested || fv.IsZero() && fv.Kind() != reflect.Struct:
		case fv.Kind() == reflect.Struct:
			fill(fv)
		case fv.Kind() == reflect.Pointer:
			inner := reflect.New(fv.Type().Elem())
			inner.Elem().Set(fv.Elem())
			fill(inner.Elem())
			fv.Set(inner)
		case fv.Kind() == reflect.Slice:
			fillList(fv)
		}
	}
}

func fillList(v reflect.Value) {
	if v.Len() == 0 || v.Type().Elem().Kind() != reflect.Struct || !hasDefaults(v.Type().Elem()) {
		return
	}
	list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	reflect.Copy(list, v)
	for i := range list.Len() {
		fill(list.Index(i))
	}
	v.Set(list)
}

// withDefaults caches hasDefaults, a pure function of the type.
var withDefaults sync.Map

// hasDefaults reports whether a struct type has defaults for fill to set.
func hasDefaults(t reflect.Type) bool {
	if has, ok := withDefaults.Load(t); ok {
		return has.(bool)
	}
	has := findDefaults(t)
	withDefaults.Store(t, has)
	return has
}

func findDefaults(t reflect.Type) bool {
	for _, f := range SchemaOf(t).Fields {
		inner := t.Field(f.Index).Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if f.Default != "" || f.Nested && inner.Kind() == reflect.Struct && hasDefaults(inner) {
			return true
		}
	}
	return false
}

func setDefault(v reflect.Value, def string) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(def)
	case reflect.Bool:
		b, _ := strconv.ParseBool(def)
		v.SetBool(b)
	default:
		v.SetInt(number(def))
	}
}
