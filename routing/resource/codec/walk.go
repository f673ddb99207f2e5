package codec

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
)

// inField calls do with the path extended by a field.
func (d *decoder) inField(name string, do func()) {
	at := len(d.path)
	d.path = resource.AppendStep(d.path, name)
	do()
	d.path = d.path[:at]
}

// inItem calls do with the path extended by a list index.
func (d *decoder) inItem(i int, do func()) {
	at := len(d.path)
	d.path = append(strconv.AppendInt(append(d.path, '['), int64(i), 10), ']')
	do()
	d.path = d.path[:at]
}

// nodeType describes a node in a fault.
func nodeType(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "null"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	}
	return "a string"
}

// decodeValue decodes n into v, which is field f of a struct if f is not nil.
func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, f *resource.Field) {
	if d.lines != nil && (f != nil || n.Kind != yaml.ScalarNode) {
		d.lines[string(d.path)] = d.offset + n.Line
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		d.failAt(n, "has no value: set one or leave it out", nil)
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if resource.IsLeaf(v) {
		d.decodeScalar(n, v)
	} else {
		switch v.Kind() {
		case reflect.Struct:
			d.decodeStruct(n, v)
		case reflect.Slice:
			d.decodeSlice(n, v)
		case reflect.Map:
			d.decodeMap(n, v)
		case reflect.Interface:
			v.Set(reflect.ValueOf(d.decodeAny(n)))
		}
	}
	if f != nil && f.Default != "" && v.IsZero() && !f.Pointer && !d.failed[string(d.path)] {
		d.failAt(n, "must not be empty or 0: leave it out for the default, "+f.Default, nil)
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value) {
	p := resource.SchemaOf(v.Type())
	switch {
	case n.Kind == yaml.MappingNode:
	case p.List < 0:
		d.failAt(n, "must be a mapping, not "+nodeType(n), nil)
		return
	case n.Kind != yaml.SequenceNode:
		d.failAt(n, "must be a list or a mapping, not "+nodeType(n), nil)
		return
	default:
		d.decodeSlice(n, v.Field(p.List))
		return
	}
	seen := make([]bool, len(p.Fields))
	var unknown map[string]bool
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at, ok := p.ByName[key.Value]
		if !ok || key.Kind != yaml.ScalarNode {
			if unknown[key.Value] {
				continue
			}
			if unknown == nil {
				unknown = map[string]bool{}
			}
			unknown[key.Value] = true
			d.unknownField(n, key, v.Type(), p)
			continue
		}
		f := &p.Fields[at]
		d.inField(f.Name, func() {
			if seen[at] {
				d.failAt(key, "duplicate key", nil)
				return
			}
			if f.Variant != "" {
				d.decodeVariant(n, n.Content[i+1], v.Field(f.Index), f)
				return
			}
			d.decodeValue(n.Content[i+1], v.Field(f.Index), f)
		})
		seen[at] = true
	}
}

// VariantSpec is a spec with fields whose type a word beside them selects.
type VariantSpec interface {
	// Variant returns an empty value for the word, a pointer to a struct; nil for
	// an unknown word, which Validate reports.
	Variant(word string) any
}

// decodeVariant decodes a field whose type is selected by a word in the same
// mapping.
func (d *decoder) decodeVariant(parent, n *yaml.Node, v reflect.Value, f *resource.Field) {
	varied, ok := d.spec.(VariantSpec)
	word := childOf(parent, f.Variant)
	if !ok || word == nil || word.Kind != yaml.ScalarNode {
		return // reported for the word itself
	}
	made := varied.Variant(word.Value)
	if made == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.decodeValue(n, reflect.ValueOf(made).Elem(), f)
		return
	}
	v.Set(reflect.ValueOf(made))
	d.decodeValue(n, reflect.ValueOf(made).Elem(), f)
}

// childOf returns the value of a key in a mapping, or nil.
func childOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// unknownField reports a field that the struct does not have. It leaves out the
// value, which may be a secret under a misspelt name. The fault hides no other
// fault beside or around it, except that the field it was meant for is missing.
func (d *decoder) unknownField(parent, key *yaml.Node, t reflect.Type, p *resource.Schema) {
	if key.Kind != yaml.ScalarNode {
		d.failAt(key, "a key must be a string, not "+nodeType(key), nil)
		return
	}
	if d.full() {
		return
	}
	meant := resource.Nearest(key.Value, p.Names)
	suggestion := suggestionFor(t.Name(), key.Value)
	switch {
	case suggestion != "":
		meant, suggestion = "", ": "+suggestion
	case meant != "":
		suggestion = ", did you mean " + meant + "?"
	default:
		suggestion = "; known fields are " + strings.Join(p.Names, ", ")
	}
	d.inField(key.Value, func() {
		d.failAt(key, "unknown field"+suggestion, nil)
		delete(d.failed, string(d.path))
	})
	if meant != "" && childOf(parent, meant) == nil {
		d.inField(meant, func() { d.failed[string(d.path)] = true })
	}
}

func (d *decoder) decodeSlice(n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.failAt(n, "must be a list, not "+nodeType(n), nil)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	if texts, ok := v.Addr().Interface().(*[]string); ok {
		for i, c := range n.Content { // fast path for lists of 100,000 names
			if c.Kind == yaml.ScalarNode && c.Tag != "!!null" {
				(*texts)[i] = c.Value
			} else {
				d.inItem(i, func() { d.decodeValue(c, v.Index(i), nil) })
			}
		}
		return
	}
	for i, c := range n.Content {
		d.inItem(i, func() { d.decodeValue(c, v.Index(i), nil) })
	}
}

func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.failAt(n, "must be a mapping, not "+nodeType(n), nil)
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Content)/2))
	d.eachPair(n, func(key string, value *yaml.Node) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.decodeValue(value, item, nil)
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), item)
	})
}

// eachPair calls each with every pair of a mapping with free keys. Keys are
// strings as written, like all strings.
func (d *decoder) eachPair(n *yaml.Node, each func(key string, value *yaml.Node)) {
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!null" || key.Tag == "!!merge" {
			d.failAt(key, "a key must be a string, not "+nodeType(key), nil)
			continue
		}
		d.inField(key.Value, func() {
			if seen[key.Value] {
				d.failAt(key, "duplicate key", nil)
				return
			}
			each(key.Value, n.Content[i+1])
		})
		seen[key.Value] = true
	}
}

// decodeAny decodes free-form content, such as the configuration of filters:
// maps, lists, strings, integers, floats and booleans.
func (d *decoder) decodeAny(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		d.eachPair(n, func(key string, value *yaml.Node) { m[key] = d.decodeAny(value) })
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			d.inItem(i, func() { list[i] = d.decodeAny(c) })
		}
		return list
	}
	switch n.Tag {
	case "!!null":
		d.failAt(n, "has no value: set one or leave it out", nil)
	case "!!bool":
		return isTrue(n.Value)
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil && resource.WholeNumber(n.Value) {
			return i
		}
		d.failAt(n, "must be a decimal number of 64 bits, or a quoted string", n.Value)
	case "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return f
		}
		d.failAt(n, "must be a decimal number, or a quoted string", n.Value)
	}
	return n.Value
}

// decodeScalar decodes one scalar. A string field accepts numbers and booleans
// exactly as written: nothing is lost (1.10 stays "1.10"), and "minVersion:
// 1.2" and "tags: {version: 1}" work. Nothing is converted the other way: a
// quoted "5" is not a number, and yes is not a boolean.
func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		d.failAt(n, "must be "+typeName(v)+", not "+nodeType(n), nil)
		return
	}
	shown := any(n.Value)
	if v.Type() == reflect.TypeFor[resource.Secret]() {
		shown = nil
	}
	if p, ok := v.Addr().Interface().(*netip.Prefix); ok {
		prefix, message := parsePrefix(n.Value)
		if *p = prefix; message != "" {
			d.failAt(n, message, shown)
		}
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(n.Value)); err != nil {
			d.failAt(n, err.Error(), shown)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.Value)
		return
	case reflect.Bool:
		if n.Tag == "!!bool" {
			v.SetBool(isTrue(n.Value))
			return
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if i, err := strconv.ParseInt(n.Value, 10, v.Type().Bits()); n.Tag == "!!int" && err == nil && resource.WholeNumber(n.Value) {
			v.SetInt(i)
			return
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if i, err := strconv.ParseUint(n.Value, 10, v.Type().Bits()); n.Tag == "!!int" && err == nil && resource.WholeNumber(n.Value) {
			v.SetUint(i)
			return
		}
	case reflect.Float32, reflect.Float64:
		if f, err := strconv.ParseFloat(n.Value, v.Type().Bits()); (n.Tag == "!!float" || n.Tag == "!!int") && err == nil {
			v.SetFloat(f)
			return
		}
	}
	message := "must be " + typeName(v)
	if n.Tag == "!!str" && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		message += ", without quotes"
	} else if n.Tag == "!!int" && v.Kind() != reflect.Bool {
		message += " in plain decimal, within its bounds"
	}
	d.failAt(n, message, shown)
}

func isTrue(s string) bool { return strings.EqualFold(s, "true") }

func typeName(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int64:
		switch v.Type() {
		case reflect.TypeFor[resource.Duration]():
			return "a duration"
		case reflect.TypeFor[resource.Size]():
			return "a size"
		}
		return "a whole number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[netip.Prefix]() {
			return "a network like 10.0.0.0/8"
		}
	}
	return "a string"
}

// parsePrefix parses a network; a plain address is a network of one.
func parsePrefix(s string) (netip.Prefix, string) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), ""
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, "must be a network like 10.0.0.0/8 or 2001:db8::/32, or an address"
	case p.Addr().Is4In6():
		return netip.Prefix{}, "must be written as an IPv4 network"
	case p != p.Masked():
		return netip.Prefix{}, fmt.Sprintf("has bits beyond its length, did you mean %s?", p.Masked())
	}
	return p, ""
}

// locate returns the node at a path, or its nearest ancestor that exists.
func locate(spec *yaml.Node, path string) *yaml.Node {
	at, rest := spec, strings.TrimPrefix(path, "spec")
	for rest != "" {
		var step string
		step, rest = cutStep(rest)
		next := (*yaml.Node)(nil)
		switch at.Kind {
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(at.Content) {
				next = at.Content[i]
			}
		case yaml.MappingNode:
			next = childOf(at, step)
		}
		if next == nil {
			return at
		}
		at = next
	}
	return at
}

// cutStep cuts the first step, ".name", "[3]" or ["a.b"], off a path.
func cutStep(path string) (step, rest string) {
	if strings.HasPrefix(path, `["`) {
		if q, err := strconv.QuotedPrefix(path[1:]); err == nil {
			step, _ = strconv.Unquote(q)
			return step, strings.TrimPrefix(path[1+len(q):], "]")
		}
	}
	path = path[1:]
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	return strings.TrimSuffix(path[:end], "]"), path[end:]
}
