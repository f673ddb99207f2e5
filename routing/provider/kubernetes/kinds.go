package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"penstock/routing/kubeapi"
)

// codecs have the types that answers may have. The scheme of all of Kubernetes'
// types would double what client-go adds to the binary.
var codecs serializer.CodecFactory

func init() {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, discoveryv1.SchemeGroupVersion)
	codecs = serializer.NewCodecFactory(scheme)
}

// kind is one of the two kinds of objects.
type kind struct {
	resource string
	group    schema.GroupVersion
	selector string // beside Config.LabelSelector
	// list returns the objects of a list, and one returns one. They return false
	// for a value of another type.
	list func(from runtime.Object, cfg *Config) ([]object, bool, error)
	one  func(from runtime.Object, cfg *Config) (object, bool, error)
}

var services = &kind{
	resource: "services", group: corev1.SchemeGroupVersion,
	list: func(from runtime.Object, _ *Config) ([]object, bool, error) {
		list, ok := from.(*corev1.ServiceList)
		if !ok {
			return nil, false, nil
		}
		objects, err := convert(list.Items, newService)
		return objects, true, err
	},
	one: func(from runtime.Object, _ *Config) (object, bool, error) {
		s, ok := from.(*corev1.Service)
		if !ok {
			return object{}, false, nil
		}
		o, err := newService(s)
		return o, true, err
	},
}

var endpointSlices = &kind{
	resource: "endpointslices", group: discoveryv1.SchemeGroupVersion, selector: discoveryv1.LabelServiceName,
	list: func(from runtime.Object, cfg *Config) ([]object, bool, error) {
		list, ok := from.(*discoveryv1.EndpointSliceList)
		if !ok {
			return nil, false, nil
		}
		objects, err := convert(list.Items, func(s *discoveryv1.EndpointSlice) (object, error) { return newSlice(s, cfg.Family) })
		return objects, true, err
	},
	one: func(from runtime.Object, cfg *Config) (object, bool, error) {
		s, ok := from.(*discoveryv1.EndpointSlice)
		if !ok {
			return object{}, false, nil
		}
		o, err := newSlice(s, cfg.Family)
		return o, true, err
	},
}

var kinds = []*kind{services, endpointSlices}

func convert[T any](items []T, one func(*T) (object, error)) ([]object, error) {
	objects := make([]object, 0, len(items))
	for i := range items {
		o, err := one(&items[i])
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// connect returns a client. It reads files, and sends nothing yet.
func (s *Source) connect() (*kubeapi.Client, error) {
	cfg := &s.cfg
	var groups []kubeapi.Group
	for _, k := range kinds {
		groups = append(groups, kubeapi.Group{Version: k.group, Codecs: codecs, Protobuf: true})
	}
	return kubeapi.Connect(kubeapi.Config{
		Kubeconfig: cfg.Kubeconfig, Context: cfg.Context, AllowExec: cfg.AllowExec, Resolve: cfg.Resolve,
		Timeout: cfg.Timeout, MaxBytes: cfg.MaxBytes, MaxObjects: cfg.MaxObjects, Rate: cfg.Rate, FirstRetry: s.firstRetry,
		TooLarge: "narrow it by namespaces or a labelSelector, or raise maxBytes",
		TooMany: fmt.Sprintf("there are more than %d objects, endpoints and ports: narrow them by namespaces or a labelSelector, or raise maxObjects",
			cfg.MaxObjects),
		NoKind: "Kubernetes has since 1.21",
	}, groups...)
}

// following is a follower with what the goroutine of Source.Run knows of it.
type following struct {
	*kubeapi.Follower[object]
	kind   *kind
	scope  *scope
	synced bool  // there was a list
	err    error // of the last attempt
}

// update is what a follower tells the run.
type update struct {
	kubeapi.Update[object]
	of *following
}

// follow returns what follows a kind in a namespace, "" for all.
func (s *Source) follow(client *kubeapi.Client, k *kind, namespace string, updates chan<- update) *following {
	f := &following{kind: k}
	selector := s.cfg.LabelSelector
	if selector != "" && k.selector != "" {
		selector += ","
	}
	f.Follower = &kubeapi.Follower[object]{
		Client: client, Namespace: namespace,
		Kind: &kubeapi.Kind[object]{
			Resource: k.resource, Group: k.group, Selector: selector + k.selector,
			List: func(from runtime.Object) ([]object, bool, error) { return k.list(from, &s.cfg) },
			One:  func(from runtime.Object) (object, bool, error) { return k.one(from, &s.cfg) },
			Gone: func(o object) object { return object{key: o.key} },
			Key:  func(o *object) kubeapi.Key { return kubeapi.Key{Namespace: o.namespace, Name: o.name} },
			Size: (*object).size,
		},
		Send: func(ctx context.Context, u kubeapi.Update[object]) bool {
			select {
			case updates <- update{u, f}:
				return true
			case <-ctx.Done():
				return false
			}
		},
	}
	return f
}
