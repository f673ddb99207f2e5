package resource

import (
	"reflect"
	"strconv"

	yaml "go.yaml.in/yaml/v3"
)

// yamlObject makes the tree of an object, secrets hidden.
func yamlObject(o Object) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, textNode("kind"), textNode(o.Kind), textNode("name"), textNode(o.Name))
	if o.Version != 0 {
		n.Content = append(n.Content, textNode("version"), plainNode("!!int", strconv.FormatUint(o.Version, 10)))
	}
	if len(o.Labels) > 0 {
		n.Content = append(n.Content, textNode("labels"), yamlValue(reflect.ValueOf(o.Labels)))
	}
	n.Content = append(n.Content, textNode("spec"), specNode(o.Spec))
	return n
}

func specNode(s Spec) *yaml.Node { return yamlValue(reflect.ValueOf(s).Elem()) }

func textNode(s string) *yaml.Node { return plainNode("!!str", s) }

func plainNode(tag, s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: s}
}

// yamlValue gives the node of a value that is there.
func yamlValue(v reflect.Value) *yaml.Node {
	if text, ok := leafText(v); ok {
		return textNode(text)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return yamlValue(v.Elem())
	case reflect.Struct:
		if list, ok := listForm(v); ok {
			return yamlValue(list)
		}
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range planOf(v.Type()).fields {
			if fv := v.Field(f.index); !isEmpty(fv) {
				n.Content = append(n.Content, textNode(f.name), yamlValue(fv))
			}
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Content: make([]*yaml.Node, v.Len())}
		for i := range v.Len() {
			n.Content[i] = yamlValue(v.Index(i))
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, k := range sortedKeys(v) {
			n.Content = append(n.Content, textNode(k.String()), yamlValue(v.MapIndex(k)))
		}
		return n
	case reflect.Bool:
		return plainNode("!!bool", strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return plainNode("!!int", strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return plainNode("!!int", strconv.FormatUint(v.Uint(), 10))
	case reflect.Float32, reflect.Float64:
		return plainNode("!!float", floatText(v.Float(), v.Type().Bits()))
	}
	if secret, ok := v.Interface().(Secret); ok {
		return textNode(secret.String())
	}
	return textNode(v.String())
}
