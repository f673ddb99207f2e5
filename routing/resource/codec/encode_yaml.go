package codec

import (
	"reflect"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
)

// YAML is written from the tree of the JSON, so that one encoder decides which
// fields are written, their order and their form.

// yamlObject returns the tree of an object, secrets hidden.
func yamlObject(o resource.Object) *yaml.Node { return yamlTree(jsonEncoder{}.encodeObject(o)) }

func specNode(s resource.Spec) *yaml.Node {
	return yamlTree(jsonEncoder{}.encodeValue(nil, reflect.ValueOf(s).Elem()))
}

// yamlTree parses the output of a jsonEncoder. This cannot fail: the output is
// JSON, and an object with more values than the parser accepts cannot have been
// decoded.
func yamlTree(text []byte) *yaml.Node {
	p := jsonParser{data: string(text)}
	n, err := p.parseValue(0)
	if err != nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: err.Error()}
	}
	return n
}
