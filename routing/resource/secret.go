package resource

import (
	"fmt"
	"io"
	"reflect"
)

// HiddenSecret stands for a secret wherever resources are shown.
const HiddenSecret = "(hidden)"

// Secret is a text that is never shown: every way of printing, logging or
// marshalling it gives HiddenSecret.
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

// Format hides the text from every verb, those of numbers included, which
// would print it in their complaint.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText hides the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// HasSecrets tells whether resources of the kind may hold secrets.
func (k Kind) HasSecrets() bool {
	return k.New != nil && holdsSecret(reflect.TypeOf(k.New()).Elem(), map[reflect.Type]bool{})
}

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

// HasHidden tells whether an object holds the marker of a hidden secret, as
// it does when what "get" printed is applied again.
func HasHidden(o Object) bool {
	c, ok := o.Spec.(*Certificate)
	return ok && c.Key == HiddenSecret
}

// FillHidden gives o with its hidden secret filled in from what is stored
// under the same key. It refuses when there is none, or when the certificate
// is another one, which the stored key cannot be meant for.
func FillHidden(o, stored Object) (Object, Faults) {
	if !HasHidden(o) {
		return o, nil
	}
	c := *o.Spec.(*Certificate)
	old, ok := stored.Spec.(*Certificate)
	switch {
	case !ok || stored.Key != o.Key:
		return o, Faults{o.Fault("spec.key", "is hidden, and there is no such certificate yet: give the key", nil)}
	case old.Cert != c.Cert:
		return o, Faults{o.Fault("spec.key", "is hidden, and cert is not the one that is stored: give the key that belongs to it", nil)}
	}
	c.Key = old.Key
	o.Spec = &c
	return o, nil
}
