// Package manifests renders the Helm chart of deploy without Helm, so that there is one
// description of a cluster on Kubernetes. Of Helm's templates it has what the chart uses:
//
//	objects, err := manifests.Render(manifests.Release{Name: "penstock", Namespace: "default"}, values)
//
// Values are those of the chart, and are checked by its schema.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"

	yaml "go.yaml.in/yaml/v3"

	"penstock/deploy"
)

// Release says what Helm calls a release: what the objects are named after, and where
// they go.
type Release struct{ Name, Namespace string }

// Object is a Kubernetes object.
type Object map[string]any

// ErrValues means that values do not fit the chart.
var ErrValues = errors.New("values")

const root = "helm/penstock"

// order is the order in which objects are created, and so printed.
var order = []string{
	"NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "Secret", "ConfigMap", "Role", "RoleBinding", "Service", "StatefulSet",
	"ServiceMonitor",
}

// Render returns the objects of the chart, with values in place of its defaults. The
// error lists every fault in the values.
func Render(release Release, values map[string]any) ([]Object, error) {
	merged, err := withDefaults(values)
	if err != nil {
		return nil, err
	}
	var chart struct {
		AppVersion string `yaml:"appVersion"`
	}
	if err := read("Chart.yaml", &chart); err != nil {
		return nil, err
	}
	data := map[string]any{
		"Values": merged, "Chart": map[string]any{"AppVersion": chart.AppVersion},
		"Release": map[string]any{"Name": release.Name, "Namespace": release.Namespace, "IsInstall": true},
	}
	files, err := fs.Glob(deploy.Chart, root+"/templates/*")
	if err != nil {
		return nil, err
	}
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(functions(all))
	for _, file := range files {
		text, err := fs.ReadFile(deploy.Chart, file)
		if err == nil {
			_, err = all.New(path.Base(file)).Parse(string(text))
		}
		if err != nil {
			return nil, err
		}
	}
	var objects []Object
	for _, file := range files {
		if path.Ext(file) != ".yaml" {
			continue
		}
		var out bytes.Buffer
		if err := all.ExecuteTemplate(&out, path.Base(file), data); err != nil {
			var fault *failure
			if errors.As(err, &fault) {
				return nil, fmt.Errorf("%w: %s", ErrValues, fault.text)
			}
			return nil, err
		}
		of, err := decode(&out)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(file), err)
		}
		objects = append(objects, of...)
	}
	slices.SortStableFunc(objects, func(a, b Object) int {
		return slices.Index(order, fmt.Sprint(a["kind"])) - slices.Index(order, fmt.Sprint(b["kind"]))
	})
	return objects, nil
}

// decode reads the documents of a template's output.
func decode(r io.Reader) (objects []Object, err error) {
	for d := yaml.NewDecoder(r); ; {
		var o Object
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(o) > 0:
			objects = append(objects, o)
		}
	}
}

func read(name string, into any) error {
	text, err := fs.ReadFile(deploy.Chart, root+"/"+name)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

// withDefaults returns the chart's values with those that are given in their place.
func withDefaults(values map[string]any) (map[string]any, error) {
	var defaults, schema map[string]any
	if err := errors.Join(read("values.yaml", &defaults), read("values.schema.json", &schema)); err != nil {
		return nil, err
	}
	merged := merge(defaults, values)
	if faults := check(schema, merged, ""); len(faults) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrValues, strings.Join(faults, "; "))
	}
	return merged, nil
}

// merge lays values over defaults as Helm does: map by map, and null removes a default.
func merge(defaults, values map[string]any) map[string]any {
	out := maps.Clone(defaults)
	for key, value := range values {
		below, isMap := value.(map[string]any)
		old, wasMap := out[key].(map[string]any)
		switch {
		case value == nil:
			delete(out, key)
		case isMap && wasMap:
			out[key] = merge(old, below)
		default:
			out[key] = value
		}
	}
	return out
}
