package formats

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/kuma"
	"penstock/routing/formats/smi"
	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Own is the name of Penstock's own format.
const Own = "penstock"

// exports are the other formats that resources can be written in.
var exports = map[string]func(resource.Object) (*yaml.Node, error){
	"gateway": gateway.Export,
	"kuma":    kuma.Export,
	"smi":     smi.Export,
}

// Names returns the formats that Encode supports, Penstock's own first.
func Names() []string {
	names := []string{Own}
	for name := range exports {
		names = append(names, name)
	}
	slices.Sort(names[1:])
	return names
}

// Encode returns a resource in one of the formats of Names, as YAML with secrets
// hidden. A format may lack kinds.
func Encode(format string, o resource.Object) ([]byte, error) {
	if format == Own {
		return codec.EncodeYAML(o), nil
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
	// No error is possible: the tree is well-formed, and the buffer accepts it.
	_ = e.Encode(root)
	_ = e.Close()
	return out.Bytes(), nil
}
