package formats

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/gateway"
	"penstock/routing/formats/kuma"
	"penstock/routing/resource"
)

// Own is the name of Penstock's own format.
const Own = "penstock"

// exports are the other formats that resources are given back in.
var exports = map[string]func(resource.Object) (*yaml.Node, error){
	"gateway": gateway.Export,
	"kuma":    kuma.Export,
}

// Names are the formats that Encode knows, Penstock's own first.
func Names() []string {
	names := []string{Own}
	for name := range exports {
		names = append(names, name)
	}
	slices.Sort(names[1:])
	return names
}

// Encode gives a resource in a format of Names, as YAML with secrets hidden.
// Not every format has every kind.
func Encode(format string, o resource.Object) ([]byte, error) {
	if format == Own {
		return resource.EncodeYAML(o), nil
	}
	export, ok := exports[format]
	if !ok {
		return nil, fmt.Errorf("format %q: want one of %s", format, strings.Join(Names(), ", "))
	}
	root, err := export(o)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	// Neither the tree, which is well-formed, nor the buffer gives an error.
	_ = e.Encode(root)
	_ = e.Close()
	return out.Bytes(), nil
}
