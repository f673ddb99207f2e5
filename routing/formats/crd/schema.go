package crd

import (
	"encoding"
	"net/netip"
	"reflect"
	"strings"

	"penstock/routing/resource"
)

// Object is JSON.
type Object = map[string]any

// Definitions returns the CustomResourceDefinitions of the Kinds of kinds, each as
// JSON. Their schemas are made of the same types and tags by which resources are
// decoded: the API server refuses fields of a wrong type, unknown words and numbers
// out of range, and with strict validation, kubectl's default, unknown fields.
// Rules across fields are Penstock's, which tells of them in the status.
func Definitions(kinds []resource.Kind) []Object {
	var list []Object
	for _, k := range Kinds(kinds) {
		list = append(list, definition(k))
	}
	return list
}

func definition(k resource.Kind) Object {
	column := func(name, condition string) Object {
		return Object{"name": name, "type": "string", "jsonPath": `.status.conditions[?(@.type=="` + condition + `")].status`}
	}
	return Object{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   Object{"name": k.Plural + "." + Group},
		"spec": Object{
			"group": Group,
			"scope": "Namespaced",
			"names": Object{
				"kind": k.Name, "listKind": k.Name + "List", "plural": k.Plural, "singular": strings.ToLower(k.Name),
				"categories": []any{"penstock"},
			},
			"versions": []any{Object{
				"name": Version, "served": true, "storage": true,
				"subresources": Object{"status": Object{}},
				"additionalPrinterColumns": []any{
					column("Accepted", "Accepted"), column("Programmed", "Programmed"),
					Object{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
				},
				"schema": Object{"openAPIV3Schema": Object{
					"type":     "object",
					"required": []any{"spec"},
					"properties": Object{
						"apiVersion": Object{"type": "string"}, "kind": Object{"type": "string"}, "metadata": Object{"type": "object"},
						"spec":   specSchema(k),
						"status": statusSchema(),
					},
				}},
			}},
		},
	}
}

// shortForms are the kinds whose specs have short forms, which package codec
// expands before it decodes: their fields are not known to the schema.
var shortForms = map[string]bool{resource.KindPermission: true, resource.KindRateLimit: true, resource.KindTelemetry: true}

func specSchema(k resource.Kind) Object {
	if shortForms[k.Name] {
		return Object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
	s := schemaOf(reflect.TypeOf(k.New()).Elem(), nil)
	if _, ok := k.New().(*resource.Certificate); ok {
		text := Object{"type": "string"}
		s["properties"].(Object)[FieldSecretRef] = Object{
			"type": "object", "required": []any{"name"}, "properties": Object{"name": text, "namespace": text},
		}
	}
	return s
}

func statusSchema() Object {
	text := Object{"type": "string"}
	return Object{"type": "object", "properties": Object{"conditions": Object{
		"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"type"},
		"items": Object{
			"type":     "object",
			"required": []any{"type", "status", "lastTransitionTime", "reason", "message"},
			"properties": Object{
				"type": text, "reason": text, "message": text,
				"status":             Object{"type": "string", "enum": []any{"True", "False", "Unknown"}},
				"observedGeneration": Object{"type": "integer", "format": "int64", "minimum": 0},
				"lastTransitionTime": Object{"type": "string", "format": "date-time"},
			},
		},
	}}}
}

var unknown = Object{"x-kubernetes-preserve-unknown-fields": true}

// schemaOf returns the schema of a type, with the tags of the field f that has it;
// nil: of no field.
func schemaOf(t reflect.Type, f *resource.Field) Object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s := scalarSchema(t, f); s != nil {
		return s
	}
	switch t.Kind() {
	case reflect.Struct:
		s := resource.SchemaOf(t)
		if s.List >= 0 { // a list or a mapping, which a structural schema cannot tell
			return unknown
		}
		properties := Object{}
		for i := range s.Fields {
			field := &s.Fields[i]
			properties[field.Name] = schemaOf(t.Field(field.Index).Type, field)
		}
		return Object{"type": "object", "properties": properties}
	case reflect.Slice, reflect.Array:
		return Object{"type": "array", "items": schemaOf(t.Elem(), elementOf(f))}
	case reflect.Map:
		return Object{"type": "object", "additionalProperties": schemaOf(t.Elem(), nil)}
	}
	return unknown // what an interface has is decided by a word beside it
}

// elementOf returns the field for the elements of a list: its words are theirs.
func elementOf(f *resource.Field) *resource.Field {
	if f == nil || len(f.OneOf) == 0 {
		return nil
	}
	return &resource.Field{OneOf: f.OneOf}
}

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

// durationPattern is what resource.ParseDuration reads, more or less.
const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`

// scalarSchema returns the schema of a type that is written as one scalar, nil for
// others. A string that looks like a number needs quotes here.
func scalarSchema(t reflect.Type, f *resource.Field) Object {
	switch t {
	case reflect.TypeFor[resource.Duration]():
		return Object{"type": "string", "pattern": durationPattern}
	case reflect.TypeFor[resource.Size]():
		return Object{"x-kubernetes-int-or-string": true}
	case reflect.TypeFor[netip.Prefix]():
		return Object{"type": "string"}
	}
	if reflect.PointerTo(t).Implements(textType) {
		return unknown
	}
	switch t.Kind() {
	case reflect.String:
		if f != nil && len(f.OneOf) > 0 {
			words := make([]any, len(f.OneOf))
			for i, w := range f.OneOf {
				words[i] = w
			}
			return Object{"type": "string", "enum": words}
		}
		return Object{"type": "string"}
	case reflect.Bool:
		return Object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return Object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		s := Object{"type": "integer"}
		if f != nil && f.Bounded {
			s["minimum"], s["maximum"] = f.Min, f.Max
		}
		return s
	}
	return nil
}
