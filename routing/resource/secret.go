package resource

import (
	"fmt"
	"io"
	"reflect"
)

// HiddenSecret replaces a secret wherever resources are shown.
const HiddenSecret = "(hidden)"

// Secret is a text that is never shown: printing, logging and marshalling it all
// yield HiddenSecret.
type Secret string

// String hides the text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return HiddenSecret
}

// GoString hides the text.
func (s Secret) GoString() string { return s.String() }

// Format hides the text from every verb, including numeric ones, whose error
// output would contain it.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText hides the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// HasSecrets reports whether resources of the kind may hold secrets.
func (k Kind) HasSecrets() bool {
	return k.Secrets || k.New != nil && HoldsSecret(reflect.TypeOf(k.New()))
}

// HoldsSecret reports whether values of a type may hold a Secret. It does not
// look behind interfaces.
func HoldsSecret(t reflect.Type) bool { return holdsSecret(t, map[reflect.Type]bool{}) }

func holdsSecret(t reflect.Type, seen map[reflect.Type]bool) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t == reflect.TypeFor[Secret]() {
		return true
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return false
	}
	seen[t] = true
	for i := range t.NumField() {
		if holdsSecret(t.Field(i).Type, seen) {
			return true
		}
	}
	return false
}

// HasHidden reports whether an object holds HiddenSecret in place of a secret,
// as the output of "get" does when it is applied again.
func HasHidden(o Object) bool { return o.Spec != nil && len(HiddenPaths(o.Spec)) > 0 }

// HiddenPaths lists the paths at which a spec holds HiddenSecret.
func HiddenPaths(spec Spec) (paths []string) {
	if c, ok := spec.(*Certificate); ok && c.ACME == nil {
		if c.Key == HiddenSecret {
			return []string{"spec.key"}
		}
		return nil
	}
	eachSecret(reflect.ValueOf(spec), []byte("spec"), func(path []byte, v reflect.Value, _ reflect.Value) {
		if v.String() == HiddenSecret {
			paths = append(paths, string(path))
		}
	})
	return paths
}

// eachSecret calls do with the path of every Secret in v, the Secret, and the
// struct that holds it.
func eachSecret(v reflect.Value, path []byte, do func(path []byte, v, in reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			eachSecret(v.Elem(), path, do)
		}
	case reflect.Slice:
		if !mayHoldSecret(v.Type().Elem()) {
			return
		}
		for i := range v.Len() {
			eachSecret(v.Index(i), []byte(Item(string(path), i)), do)
		}
	case reflect.Struct:
		if IsLeaf(v) {
			return
		}
		p := SchemaOf(v.Type())
		if p.List >= 0 {
			eachSecret(v.Field(p.List), path, do)
		}
		for _, f := range p.Fields {
			at := AppendStep(path[:len(path):len(path)], f.Name)
			if fv := v.Field(f.Index); fv.Type() == reflect.TypeFor[Secret]() {
				do(at, fv, v)
			} else {
				eachSecret(fv, at, do)
			}
		}
	}
}

func mayHoldSecret(t reflect.Type) bool {
	return t.Kind() == reflect.Interface || t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer
}

// SecretsUser is a spec whose secrets go to a place that other structs of it name. Hidden
// secrets are filled in only while that stays the same: otherwise a user who cannot read
// a secret could have it sent elsewhere.
type SecretsUser interface {
	// SecretsFor describes the place.
	SecretsFor() string
}

// samePlace reports whether the secrets of both specs go to the same place.
func samePlace(a, b Spec) bool {
	x, ok := a.(SecretsUser)
	y, same := b.(SecretsUser)
	return ok == same && (!ok || x.SecretsFor() == y.SecretsFor())
}

// FillHidden returns o with its hidden secrets filled in from stored. It reports
// a fault if the secret is not stored under the same key, or if the fields
// beside it differ from the stored ones, since the secret might then not belong
// to them.
func FillHidden(o, stored Object) (Object, Faults) {
	if !HasHidden(o) {
		return o, nil
	}
	if c, ok := o.Spec.(*Certificate); ok && c.ACME == nil {
		return fillCertificateKey(o, stored)
	}
	known := map[string][2]reflect.Value{}
	if stored.Spec != nil && stored.Key == o.Key {
		eachSecret(reflect.ValueOf(stored.Spec), []byte("spec"), func(path []byte, v, in reflect.Value) {
			known[string(path)] = [2]reflect.Value{v, in}
		})
	}
	// Filling in must not change the caller's spec.
	filled, faults := cloneSpec(o.Spec), Faults(nil)
	eachSecret(reflect.ValueOf(filled), []byte("spec"), func(path []byte, v, in reflect.Value) {
		if v.String() != HiddenSecret {
			return
		}
		old, ok := known[string(path)]
		switch {
		case !ok:
			faults = append(faults, o.Fault(string(path), "is hidden, and no value is stored yet: give the secret", nil))
		case !samePlace(o.Spec, stored.Spec):
			faults = append(faults, o.Fault(string(path), "is hidden, and where it is sent to differs from what is stored: give the secret", nil))
		case !equalExceptSecrets(in, old[1]):
			faults = append(faults, o.Fault(string(path), "is hidden, and the fields beside it differ from the stored ones: give the secret", nil))
		default:
			v.SetString(old[0].String())
		}
	})
	o.Spec = filled
	return o, faults
}

// equalExceptSecrets reports whether two structs are equal apart from their
// secrets.
func equalExceptSecrets(a, b reflect.Value) bool {
	if a.Type() != b.Type() {
		return false
	}
	for _, f := range SchemaOf(a.Type()).Fields {
		if v := a.Field(f.Index); v.Type() != reflect.TypeFor[Secret]() && !sameValue(v, b.Field(f.Index)) {
			return false
		}
	}
	return true
}

// cloneSpec copies a spec as deep as it may hold secrets.
func cloneSpec(spec Spec) Spec { return cloneDeep(reflect.ValueOf(spec)).Interface().(Spec) }

func cloneDeep(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		out := reflect.New(v.Type()).Elem()
		out.Set(cloneDeep(v.Elem()))
		return out
	case reflect.Pointer:
		if v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(cloneDeep(v.Elem()))
		return out
	case reflect.Slice:
		if v.IsNil() || !mayHoldSecret(v.Type().Elem()) {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(cloneDeep(v.Index(i)))
		}
		return out
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(cloneDeep(v.Field(i)))
			}
		}
		return out
	}
	return v
}

// fillCertificateKey fills in the key of a certificate.
func fillCertificateKey(o, stored Object) (Object, Faults) {
	c := *o.Spec.(*Certificate)
	old, ok := stored.Spec.(*Certificate)
	switch {
	case !ok || stored.Key != o.Key:
		return o, Faults{o.Fault("spec.key", "is hidden, and there is no such certificate yet: give the key", nil)}
	case old.Cert != c.Cert:
		return o, Faults{o.Fault("spec.key", "is hidden, and cert differs from the stored one: give the key that belongs to it", nil)}
	}
	c.Key = old.Key
	o.Spec = &c
	return o, nil
}
