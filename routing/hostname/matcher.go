package hostname

import (
	"iter"
	"strings"

	"penstock/routing/hamt"
)

// Matcher maps patterns to values. It is immutable; creating the next version
// with Edit costs time proportional to the change. The zero value matches
// nothing.
//
// Precedence: the exact name, then the wildcard with the most labels, then
// shorter wildcards. "*.example.com" spans one or more labels and never
// matches "example.com" itself.
type Matcher[V any] struct {
	exact hamt.Map[V]
	wild  hamt.Map[V] // by the part after "*."
	// depths has a bit for each number of labels that suffixes in wild have, so
	// that a lookup tries only those numbers.
	depths [2]uint64
}

// maxLabels is the maximum number of labels in a name of 253 bytes.
const maxLabels = (maxName + 1) / 2

// Match is the pattern that matched a name, and its value.
type Match[V any] struct {
	Value V
	// Suffix is the exact name or, with Wildcard, the part after "*.".
	Suffix   string
	Wildcard bool
}

// Pattern returns the pattern in the form of ParsePattern.
func (m Match[V]) Pattern() string {
	if m.Wildcard {
		return "*." + m.Suffix
	}
	return m.Suffix
}

// Len returns the number of patterns.
func (m *Matcher[V]) Len() int { return m.exact.Len() + m.wild.Len() }

// Match returns the best match of a name, which must be in normal form (see
// CheckSNI).
func (m *Matcher[V]) Match(name string) (Match[V], bool) {
	if v, ok := m.exact.Get(name); ok {
		return Match[V]{Value: v, Suffix: name}, true
	}
	if m.wild.Len() == 0 {
		return Match[V]{}, false
	}
	suffix := name
	for labels := strings.Count(name, "."); labels > 0; labels-- {
		suffix = suffix[strings.IndexByte(suffix, '.')+1:]
		if !m.mayHave(labels) {
			continue
		}
		if v, ok := m.wild.Get(suffix); ok {
			return Match[V]{v, suffix, true}, true
		}
	}
	return Match[V]{}, false
}

func (m *Matcher[V]) mayHave(labels int) bool {
	return labels <= maxLabels && m.depths[labels>>6]>>(labels&63)&1 != 0
}

// Get returns the value of a pattern.
func (m *Matcher[V]) Get(pattern string) (V, bool) {
	if suffix, wild := strings.CutPrefix(pattern, "*."); wild {
		return m.wild.Get(suffix)
	}
	return m.exact.Get(pattern)
}

// All iterates over patterns and values in no particular order.
func (m *Matcher[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for name, v := range m.exact.All() {
			if !yield(name, v) {
				return
			}
		}
		for suffix, v := range m.wild.All() {
			if !yield("*."+suffix, v) {
				return
			}
		}
	}
}

// Edit starts the next version. The matcher itself does not change.
func (m Matcher[V]) Edit() *Edit[V] {
	return &Edit[V]{exact: m.exact.Edit(), wild: m.wild.Edit(), depths: m.depths}
}

// Edit is a version of a Matcher under construction, for one goroutine.
type Edit[V any] struct {
	exact, wild *hamt.Edit[V]
	depths      [2]uint64
}

// Matcher returns the current version. The edit may continue afterwards.
func (e *Edit[V]) Matcher() Matcher[V] {
	if e.wild.Len() == 0 {
		e.depths = [2]uint64{}
	}
	return Matcher[V]{e.exact.Map(), e.wild.Map(), e.depths}
}

// Get returns the value of a pattern.
func (e *Edit[V]) Get(pattern string) (V, bool) {
	if suffix, wild := strings.CutPrefix(pattern, "*."); wild {
		return e.wild.Get(suffix)
	}
	return e.exact.Get(pattern)
}

// Set sets the value of a pattern. Only results of ParsePattern ever match.
func (e *Edit[V]) Set(pattern string, v V) {
	suffix, wild := strings.CutPrefix(pattern, "*.")
	if !wild {
		e.exact.Set(pattern, v)
		return
	}
	e.wild.Set(suffix, v)
	if labels := strings.Count(suffix, ".") + 1; labels <= maxLabels {
		e.depths[labels>>6] |= 1 << (labels & 63)
	}
}

// Delete removes a pattern. The bit in depths of a removed wildcard stays set,
// which costs a useless lookup and is otherwise harmless.
func (e *Edit[V]) Delete(pattern string) {
	if suffix, wild := strings.CutPrefix(pattern, "*."); wild {
		e.wild.Delete(suffix)
		return
	}
	e.exact.Delete(pattern)
}
