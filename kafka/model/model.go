// Package model has Kafka's resources, PhysicalCluster and VirtualCluster:
// their types, their validation, and the compiled Table, in which a listener
// and a server name lead to exactly one virtual broker.
//
//	kinds := append(resource.RoutingKinds(), model.Kinds(types)...)
//	objects, faults := codec.DecodeForeign("kafka.yaml", data, kinds, model.Foreign())
//	m := model.New(model.Config{Bind: "127.0.0.1", Types: types})
//	applied, err := m.Apply(changes)
//	route, reason := m.Table().Resolve("edge", "broker-1.t1.example.com", true)
//
// It opens no socket. Discovery tells a PhysicalState which brokers there are,
// and Applied lists the ports to listen at.
//
// The comments of fields are the users' manual, as in package resource; tests
// compare them with the tags of the fields and with docs/resources.md.
package model

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"penstock/kafka/filter"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// The kinds of this package, and those of others that it speaks of.
const (
	KindPhysical = "PhysicalCluster"
	KindVirtual  = "VirtualCluster"

	kindListener    = "Listener"
	kindCertificate = "Certificate"
)

// Kinds returns the kinds of this package, for a build with these types of
// filters.
func Kinds(types []filter.Type) []resource.Kind {
	known := newTypes(types)
	secrets := slices.ContainsFunc(types, func(t filter.Type) bool { return resource.HoldsSecret(reflect.TypeOf(t.Config())) })
	return []resource.Kind{
		{Name: KindPhysical, Plural: "physicalclusters", New: func() resource.Spec { return &PhysicalCluster{types: known} }, Secrets: secrets},
		{Name: KindVirtual, Plural: "virtualclusters", New: func() resource.Spec { return &VirtualCluster{types: known} }, Secrets: secrets},
	}
}

// maxFilters bounds the filters of one cluster: those of both and the implied
// ones fit into one chain.
const maxFilters = (filter.MaxFilters - 4) / 2

// filterTypes finds types of filters by name.
type filterTypes struct {
	byName map[string]*filter.Type
	names  []string // without the aliases
}

func newTypes(types []filter.Type) *filterTypes {
	known := &filterTypes{byName: map[string]*filter.Type{}}
	for i := range types {
		t := &types[i]
		known.names = append(known.names, t.Name)
		known.byName[t.Name] = t
		for _, alias := range t.Aliases {
			known.byName[alias] = t
		}
	}
	return known
}

func (k *filterTypes) find(name string) *filter.Type {
	if k == nil {
		return nil
	}
	return k.byName[name]
}

// variant returns an empty configuration of a type, for codec.VariantSpec.
func (k *filterTypes) variant(name string) any {
	if t := k.find(name); t != nil {
		return t.Config()
	}
	return nil
}

// validate reports what is wrong with a chain of filters.
func (k *filterTypes) validate(path string, filters []Filter, fault func(path, message string, value any)) {
	if len(filters) > maxFilters {
		fault(path, fmt.Sprintf("has too many filters: the limit is %d", maxFilters), len(filters))
	}
	for i := range filters {
		f, at := &filters[i], resource.Item(path, i)
		t := k.find(f.Type)
		switch {
		case f.Type == "":
			fault(at+".type", "is required: "+strings.Join(k.known(), ", "), nil)
			continue
		case t == nil:
			hint := resource.DidYouMean(f.Type, k.known())
			fault(at+".type", "unknown filter"+hint+"; known filters are "+strings.Join(k.known(), ", "), f.Type)
			continue
		}
		config, _ := f.Config.(filter.Config)
		if config == nil {
			config = t.Config() // what is left out must do
		}
		report := func(path, message string, value any) {
			inner := at + ".config"
			if path != "" && path[0] != '[' {
				inner += "."
			}
			fault(inner+path, message, value)
		}
		validate.Fields(config, report)
		config.Validate(report)
	}
}

func (k *filterTypes) known() []string {
	if k == nil {
		return nil
	}
	return k.names
}

// Filter is one filter of a chain.
type Filter struct {
	// Type says what it is, such as ApiVersions, BrokerAddress or
	// MultiTenant. Required.
	Type string `yaml:"type"`
	// Config is what the type wants to know; the guide of filters tells its
	// fields. May be left out where all of them may.
	Config any `yaml:"config" variant:"type"`
}
