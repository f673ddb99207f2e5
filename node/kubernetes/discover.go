package kubernetes

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"penstock/routing/formats/crd"
	"penstock/routing/gateway"
	"penstock/routing/kubeapi"
	"penstock/routing/resource"
)

// served is what the API server says of a version of a group.
type served struct {
	Resources []struct {
		Name, Kind string
		Verbs      []string
	} `json:"resources"`
}

// find returns the resource of a kind, "" if there is none, and whether it has a status
// and whether objects may be created.
func (s *served) find(kind string) (resource string, status, writable bool) {
	for _, r := range s.Resources {
		switch {
		case r.Kind != kind:
		case resource == "": // subresources follow
			resource, writable = r.Name, slices.Contains(r.Verbs, "create")
		case r.Name == resource+"/status":
			status = true
		}
	}
	return resource, status, writable
}

// ask returns what the API server says of a version of a group; nil: it has none.
func ask(ctx context.Context, client *kubeapi.Client, group, version string) (*served, error) {
	path := "/apis/" + group + "/" + version
	l := new(served)
	switch err := client.Get(ctx, path, l); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, client.Explain("get "+path, err)
	}
	return l, nil
}

// discover returns the sources that the API server has.
func discover(ctx context.Context, client *kubeapi.Client) (found []*source, err error) {
	known := map[string]*served{} // nil: not served
	for _, s := range sources() {
		for _, version := range s.versions {
			path := s.group + "/" + version
			if _, asked := known[path]; !asked {
				if known[path], err = ask(ctx, client, s.group, version); err != nil {
					return nil, err
				}
			}
			if l := known[path]; l != nil && s.resource == "" {
				name, status, _ := l.find(s.kind)
				if name == "" {
					continue
				}
				s.version, s.resource = version, name
				s.status = s.status && status
				found = append(found, s)
			}
		}
	}
	return found, nil
}

// sameSources reports whether two answers of discover are the same.
func sameSources(a, b []*source) bool {
	return slices.EqualFunc(a, b, func(x, y *source) bool {
		return x.group == y.group && x.version == y.version && x.resource == y.resource && x.status == y.status
	})
}

// origins returns the kinds of objects that a resource depends on: it is deleted only
// if all of them are known.
func origins(o *resource.Object) (group string, kinds []string) {
	switch {
	case gateway.IsKind(o.Kind):
		return gateway.Group, []string{kindClass, gateway.KindGateway, o.Kind}
	case o.Labels[labelSecret] != "":
		return gateway.Group, []string{kindClass, gateway.KindGateway, gateway.KindGrant}
	case o.Labels[resource.LabelFormat] == resource.FormatKumaKubernetes:
		return kumaGroup, []string{o.Kind}
	}
	return crd.Group, []string{o.Kind}
}

// knows reports whether all objects are known that a resource may come from.
func (s *session) knows(o *resource.Object) bool {
	if w := s.secrets[secretOf(o)]; w != nil && !w.following.synced {
		return false
	}
	if o.Kind == kindCertificate && !s.complete(crd.Group, o.Kind) {
		return false
	}
	group, kinds := origins(o)
	return !slices.ContainsFunc(kinds, func(kind string) bool { return !s.complete(group, kind) })
}

// removable returns why a resource whose object is gone must stay; nil: it may go. When
// a CustomResourceDefinition is deleted, the API server deletes all objects first, which
// is not what whoever writes the objects asked for. Discovery shows that state: nothing
// can be created any more.
func (s *session) removable(ctx context.Context, o *resource.Object, asked map[string]*served) error {
	group, kinds := origins(o)
	for _, f := range s.following {
		if f.source.group != group || !slices.Contains(kinds, f.source.kind) {
			continue
		}
		l, ok := asked[group+"/"+f.source.version]
		if !ok {
			var err error
			if l, err = ask(ctx, s.client, group, f.source.version); err != nil {
				return err
			}
			asked[group+"/"+f.source.version] = l
		}
		if l != nil {
			if _, _, writable := l.find(f.source.kind); writable {
				continue
			}
		}
		return fmt.Errorf("%w: %s", errTerminating, f.source.name())
	}
	return nil
}
