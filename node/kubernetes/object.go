package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"penstock/node/kinds"
	"penstock/routing/formats/crd"
	"penstock/routing/gateway"
	"penstock/routing/kubeapi"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

const kindClass = "GatewayClass"

// source is a kind of objects that the mode reads.
type source struct {
	group    string
	versions []string // known ones, the preferred first
	kind     string
	status   bool // it has a status that is written back
	cluster  bool // its objects have no namespace

	// What the API server has.
	version, resource string
}

// name is how messages and metrics call it: "services.penstock.io".
func (s *source) name() string { return s.resource + "." + s.group }

func (s *source) isGateway() bool { return s.group == gateway.Group }

// path returns the path of an object's subresource, or of the object with "".
func (s *source) path(o *object, subresource string) string {
	at := "/apis/" + s.group + "/" + s.version
	if !s.cluster {
		at += "/namespaces/" + o.meta.Namespace
	}
	at += "/" + s.resource + "/" + o.meta.Name
	if subresource != "" {
		at += "/" + subresource
	}
	return at
}

// sources lists the groups, kinds and versions that the mode reads.
func sources() []*source {
	var list []*source
	for _, k := range crd.Kinds(kinds.All()) {
		list = append(list, &source{group: crd.Group, versions: []string{crd.Version}, kind: k.Name, status: true})
	}
	list = append(list,
		&source{group: kumaGroup, versions: []string{"v1alpha1"}, kind: "MeshTCPRoute"},
		&source{group: gateway.Group, versions: []string{"v1", "v1beta1"}, kind: kindClass, status: true, cluster: true},
	)
	for _, k := range []string{gateway.KindGateway, gateway.KindTCPRoute, gateway.KindTLSRoute, gateway.KindGrant} {
		list = append(list, &source{group: gateway.Group, versions: gateway.Versions(k), kind: k, status: k != gateway.KindGrant})
	}
	// Penstock has no HTTPRoute; the status of those for its Gateways says so.
	return append(list, &source{group: gateway.Group, versions: []string{"v1", "v1beta1"}, kind: kindHTTPRoute, status: true})
}

const (
	kumaGroup     = "kuma.io"
	kindHTTPRoute = "HTTPRoute"
	// kindCertificate is Penstock's.
	kindCertificate = "Certificate"
	kindSecret      = "Secret"
)

// object is what is kept of an object of the API server.
type object struct {
	source *source
	meta   metav1.ObjectMeta // without managed fields
	text   []byte            // JSON of the object, without its status and managed fields
	status json.RawMessage   // nil: none
	gone   bool

	decoded resource.Object
	secret  *kubeapi.Key // a Secret that the Certificate takes its content from
	counts  bool         // it is for this cluster, as the last pass found
	// fault is why it cannot be a resource, as penstock check tells it; "": none.
	fault string
	// refused is why the last pass that came to an end could not apply it; "": it was
	// applied, or is the same.
	refused string
	logged  string // the last fault or refusal in the log
}

func (o *object) key() kubeapi.Key {
	return kubeapi.Key{Namespace: o.meta.Namespace, Name: o.meta.Name}
}

// String names the object: "Service shop/web".
func (o *object) String() string {
	if o.meta.Namespace == "" {
		return o.source.kind + " " + o.meta.Name
	}
	return o.source.kind + " " + o.key().String()
}

// trouble is why the object has no effect in its last form; "": it has.
func (o *object) trouble() string {
	if o.fault != "" {
		return o.fault
	}
	return o.refused
}

// size counts towards kubeapi.Config.MaxObjects, in KiB.
func (o *object) size() int {
	if o.gone {
		return 0
	}
	return 1 + (len(o.text)+len(o.status))>>10
}

// raw is an object as it comes from the API server.
type raw struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	text   []byte
	status json.RawMessage
}

// rawList is a list of them.
type rawList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []raw `json:"items"`
}

// UnmarshalJSON keeps the text of the object.
func (r *raw) UnmarshalJSON(text []byte) error {
	var head struct {
		metav1.TypeMeta
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	r.TypeMeta, r.ObjectMeta = head.TypeMeta, head.Metadata
	r.ManagedFields, r.Annotations = nil, nil
	fields, meta := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	if err := json.Unmarshal(fields["metadata"], &meta); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	r.status = fields["status"]
	delete(fields, "status")
	delete(meta, "managedFields")
	delete(meta, "annotations")
	delete(meta, "deletionTimestamp")
	delete(meta, "deletionGracePeriodSeconds")
	var err error
	if fields["metadata"], err = json.Marshal(meta); err != nil {
		return err
	}
	r.text, err = json.Marshal(fields)
	return err
}

// DeepCopyObject implements runtime.Object. Nobody changes the texts.
func (r *raw) DeepCopyObject() runtime.Object {
	c := *r
	c.ObjectMeta = *r.ObjectMeta.DeepCopy() //nolint:staticcheck // of the embedded type
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *rawList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]raw(nil), l.Items...)
	return &c
}

// codecsOf returns codecs for the kinds of some sources.
func codecsOf(list []*source) serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, s := range list {
		gv := schema.GroupVersion{Group: s.group, Version: s.version}
		scheme.AddKnownTypeWithName(gv.WithKind(s.kind), &raw{})
		scheme.AddKnownTypeWithName(gv.WithKind(s.kind+"List"), &rawList{})
		metav1.AddToGroupVersion(scheme, gv)
	}
	return serializer.NewCodecFactory(scheme)
}

// kindOf returns how a follower reads a source.
func (s *source) kindOf(selector string) *kubeapi.Kind[*object] {
	if s.isGateway() {
		selector = "" // the class selects
	}
	return &kubeapi.Kind[*object]{
		Resource: s.resource, Group: schema.GroupVersion{Group: s.group, Version: s.version}, Selector: selector,
		List: func(from runtime.Object) ([]*object, bool, error) {
			list, ok := from.(*rawList)
			if !ok {
				return nil, false, nil
			}
			objects := make([]*object, len(list.Items))
			for i := range list.Items {
				objects[i] = s.newObject(&list.Items[i])
			}
			return objects, true, nil
		},
		One: func(from runtime.Object) (*object, bool, error) {
			r, ok := from.(*raw)
			if !ok {
				return nil, false, nil
			}
			return s.newObject(r), true, nil
		},
		Gone: func(o *object) *object { return &object{source: s, meta: o.meta, gone: true} },
		Key:  func(o **object) kubeapi.Key { return (*o).key() },
		Size: func(o **object) int { return (*o).size() },
	}
}

func (s *source) newObject(r *raw) *object {
	o := &object{source: s, meta: r.ObjectMeta, text: r.text, status: r.status}
	if r.DeletionTimestamp != nil { // it waits for others to let go of it
		return &object{source: s, meta: r.ObjectMeta, gone: true}
	}
	switch {
	case s.kind == kindSecret:
		o.decodeSecret()
	case s.kind == kindCertificate && o.refersToSecret():
	case s.kind != kindClass:
		o.decode(o.text)
	}
	return o
}

// resource returns the name of the object's resource, also of one with a fault.
func (o *object) resource() resource.Key {
	if o.decoded.Name != "" {
		return o.decoded.Key
	}
	name := o.meta.Name
	if o.source.group != kumaGroup {
		name = gateway.NameOf(o.meta.Namespace, name)
	}
	return resource.Key{Kind: o.source.kind, Name: name}
}

// decode makes the resource of the object from its text, or its fault.
func (o *object) decode(text []byte) {
	o.decoded, o.fault = resource.Object{}, ""
	objects, faults := codec.DecodeForeign("", text, kinds.All(), kinds.Formats())
	for i := range objects {
		faults = append(faults, filesOf(&objects[i])...)
	}
	switch {
	case len(faults) > 0:
		o.fault = textOf(faults)
	case len(objects) != 1:
		o.fault = fmt.Sprintf("%v: stands for %d resources", o, len(objects))
	default:
		o.decoded = objects[0]
		o.decoded.Lines, o.decoded.Line = nil, 0
		labels := maps.Clone(o.decoded.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[resource.LabelAppliedBy] = resource.AppliedByKubernetes
		o.decoded.Labels = labels
	}
}

// filesOf reports the files that a resource names for penstock apply to read.
func filesOf(o *resource.Object) (faults resource.Faults) {
	user, ok := o.Spec.(resource.FileUser)
	if !ok {
		return nil
	}
	for _, f := range user.Files() {
		faults = append(faults, o.Fault(f.Path,
			"names a file, which only penstock apply reads: give its content, or let the nodes read it where the kind can", f.Name))
	}
	return faults
}

// maxMessage bounds the message of a condition, in bytes. Kubernetes' own bound is
// 32 KiB.
const maxMessage = 4 << 10

// textOf returns faults as a message.
func textOf[F error](faults []F) string {
	lines := make([]string, len(faults))
	for i := range faults {
		lines[i] = faults[i].Error()
	}
	return cut(strings.Join(lines, "\n"))
}

func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
}

// older orders objects: of two for one resource the older one counts, and a Certificate
// before the Secret of its name.
func older(a, b *object) int {
	if isSecret := a.source.kind == kindSecret; isSecret != (b.source.kind == kindSecret) {
		if isSecret {
			return 1
		}
		return -1
	}
	if c := a.created().Compare(b.created()); c != 0 {
		return c
	}
	return strings.Compare(string(a.meta.UID), string(b.meta.UID))
}

func (o *object) created() time.Time { return o.meta.CreationTimestamp.Time }
