package resource

import (
	"reflect"

	yaml "go.yaml.in/yaml/v3"
)

// YAML is written from the tree of the JSON: what is left out, in which order
// fields come and how a value is written is decided in one place.

// yamlObject makes the tree of an object, secrets hidden.
func yamlObject(o Object) *yaml.Node { return yamlTree(jsonEncoder{}.object(o)) }

func specNode(s Spec) *yaml.Node {
	return yamlTree(jsonEncoder{}.value(nil, reflect.ValueOf(s).Elem()))
}

// yamlTree reads what a jsonEncoder wrote. It is JSON, and what has more values
// than the parser takes could not be restored either: there is no such object.
func yamlTree(text []byte) *yaml.Node {
	p := jsonParser{data: string(text)}
	n, err := p.value(0)
	if err != nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: err.Error()}
	}
	return n
}
