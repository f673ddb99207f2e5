package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"penstock/routing/formats/crd"
	"penstock/routing/gateway"
	"penstock/routing/kubeapi"
	"penstock/routing/resource"
)

// Certificates come from Secrets of the type kubernetes.io/tls in two ways: a Certificate
// names one in spec.secretRef, or a listener of a Gateway in its certificateRefs, which
// makes a Certificate of the Secret's name. Only Secrets that are referred to are read,
// each by its own name, so that the right to read it may have its name. Their content
// is in the resources, whose keys nothing shows, and nowhere else.

// labelSecret is the label of Certificates that stand for a Secret; its value is the name.
const labelSecret = "penstock.io/secret"

const secretType = "kubernetes.io/tls"

// secretSource reads Secrets.
func secretSource() *source { return &source{version: "v1", kind: kindSecret, resource: "secrets"} }

// wantedSecret is a Secret that something refers to.
type wantedSecret struct {
	following *following
	gateway   bool // a Gateway does
}

// secretOf returns the Secret that a resource stands for.
func secretOf(o *resource.Object) kubeapi.Key {
	name := o.Labels[labelSecret]
	if name == "" || o.Kind != kindCertificate {
		return kubeapi.Key{}
	}
	return kubeapi.Key{Namespace: cmp.Or(strings.TrimSuffix(strings.TrimSuffix(o.Name, name), "."), "default"), Name: name}
}

// refersToSecret reports whether the Certificate takes its content from a Secret, or
// should with a fault.
func (o *object) refersToSecret() bool {
	var of struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if json.Unmarshal(o.text, &of) != nil || of.Spec[crd.FieldSecretRef] == nil {
		return false
	}
	var ref struct{ Name, Namespace string }
	d := json.NewDecoder(bytes.NewReader(of.Spec[crd.FieldSecretRef]))
	d.DisallowUnknownFields()
	switch err := d.Decode(&ref); {
	case err != nil || ref.Name == "" || strings.Contains(ref.Name+ref.Namespace, "/"):
		o.secretFault("want {name: NAME} or {namespace: NAMESPACE, name: NAME}")
	case len(of.Spec) > 1:
		o.secretFault("stands in place of all other fields")
	default:
		o.secret = &kubeapi.Key{Namespace: cmp.Or(ref.Namespace, o.meta.Namespace), Name: ref.Name}
	}
	return true
}

func (o *object) secretFault(format string, args ...any) {
	fault := resource.Fault{Path: o.resource().String() + " spec." + crd.FieldSecretRef, Message: fmt.Sprintf(format, args...)}
	o.decoded, o.fault = resource.Object{}, cut(fault.Error())
}

// keyPair is the content of a Secret.
type keyPair struct{ cert, key string }

// pairOf returns the content of a Secret, or what is wrong with it, without content.
func pairOf(text []byte) (pair keyPair, fault string) {
	var secret struct {
		Type string
		Data map[string][]byte
	}
	if json.Unmarshal(text, &secret) != nil {
		return pair, "it cannot be read"
	}
	if secret.Type != secretType {
		return pair, "its type is not " + secretType
	}
	pair = keyPair{string(secret.Data["tls.crt"]), string(secret.Data["tls.key"])}
	if _, err := resource.ParseCertificates(pair.cert); err != nil {
		return keyPair{}, "tls.crt " + err.Error()
	}
	if _, err := tls.X509KeyPair([]byte(pair.cert), []byte(pair.key)); err != nil {
		return keyPair{}, "tls.key has no key that belongs to the first certificate of tls.crt"
	}
	return pair, ""
}

// decodeSecret makes the Certificate of a Secret. Of the Secret itself nothing is kept.
func (o *object) decodeSecret() {
	pair, fault := pairOf(o.text)
	o.text = nil
	if o.fault = fault; fault != "" {
		return
	}
	o.decodePair(pair)
	if o.fault == "" {
		labels := maps.Clone(o.decoded.Labels)
		labels[labelSecret] = o.meta.Name
		o.decoded.Labels = labels
	}
}

// decodePair makes the Certificate of the object with the content of a Secret.
func (o *object) decodePair(pair keyPair) {
	meta := map[string]any{"name": o.meta.Name, "namespace": o.meta.Namespace}
	if o.source.kind != kindSecret && len(o.meta.Labels) > 0 {
		meta["labels"] = o.meta.Labels
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": crd.APIVersion, "kind": kindCertificate, "metadata": meta,
		"spec": map[string]any{"cert": pair.cert, "key": pair.key},
	})
	if err != nil {
		o.fault = "it cannot be read" // cannot happen: texts only
		return
	}
	o.decode(text)
}

// followSecrets follows the Secrets that are referred to, and no others. It reports
// whether new ones are followed, which must be known first.
func (s *session) followSecrets(ctx context.Context) (began bool) {
	wanted := s.wantedSecrets()
	for key, w := range s.secrets {
		if _, ok := wanted[key]; !ok {
			s.unfollow(w.following)
			delete(s.secrets, key)
		}
	}
	names := slices.SortedFunc(maps.Keys(wanted), func(a, b kubeapi.Key) int { return strings.Compare(a.String(), b.String()) })
	if len(names) > maxSecrets {
		s.unread = append(s.unread, fmt.Sprintf("kubernetes: %d Secrets are referred to, and the maximum is %d: the others are not read",
			len(names), maxSecrets))
	}
	for _, key := range names {
		w := s.secrets[key]
		if w == nil {
			if len(s.secrets) >= maxSecrets {
				continue
			}
			w = &wantedSecret{following: &following{source: s.secretSource, namespace: key.Namespace, name: key.Name}}
			s.secrets[key] = w
			s.follow(ctx, w.following)
			began = true
		}
		w.gateway = wanted[key]
	}
	return began
}

// wantedSecrets returns the Secrets that are referred to, and whether by a Gateway. It
// notes those that must not be.
func (s *session) wantedSecrets() map[kubeapi.Key]bool {
	wanted, grants := map[kubeapi.Key]bool{}, s.grants()
	s.unread = nil
	set, _ := s.cfg.Set()
	for src, list := range s.objects {
		for _, o := range list {
			switch {
			case o.secret != nil:
				if gateway.PermitsSecret(grants, crd.Group, kindCertificate, o.meta.Namespace, o.secret.Namespace, o.secret.Name) {
					if !wanted[*o.secret] {
						wanted[*o.secret] = false // no Gateway refers to it yet; resolveSecrets tells of those left out
					}
				}
			case src.kind == gateway.KindGateway && s.isOurObject(o):
				refs := secretRefs(&o.decoded)
				if stored, ok := set.Get(o.resource()); ok { // a new version may be refused
					refs = append(refs, secretRefs(&stored)...)
				}
				for _, key := range refs {
					switch {
					case !gateway.PermitsSecret(grants, gateway.Group, gateway.KindGateway, o.meta.Namespace, key.Namespace, key.Name):
						// its status says so
					case s.isForeign(key):
						s.unread = append(s.unread, fmt.Sprintf("kubernetes: Secret %v, which %v refers to, is not read: its name begins "+
							"like a namespace, where it would stand for another Secret: rename it", key, o))
					default:
						wanted[key] = true
					}
				}
			}
		}
	}
	slices.Sort(s.unread)
	s.unread = slices.Compact(s.unread)
	return wanted
}

func secretRefs(o *resource.Object) (list []kubeapi.Key) {
	g, ok := o.Spec.(*gateway.Gateway)
	if !ok {
		return nil
	}
	for _, ref := range g.SecretRefs() {
		if ref.Name != "" && !strings.Contains(ref.Namespace+ref.Name, "/") {
			list = append(list, kubeapi.Key{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	return list
}

// isForeign reports whether a Secret of the namespace default would have the resource
// name of one in another namespace that has objects.
func (s *session) isForeign(key kubeapi.Key) bool {
	first, _, dotted := strings.Cut(key.Name, ".")
	if !dotted || key.Namespace != "default" {
		return false
	}
	for _, list := range s.objects {
		for k := range list {
			if k.Namespace == first {
				return true
			}
		}
	}
	return false
}

// grants returns the ReferenceGrants.
func (s *session) grants() (list []*gateway.ReferenceGrant) {
	for src, objects := range s.objects {
		if src.kind != gateway.KindGrant {
			continue
		}
		for _, o := range objects {
			if g, ok := o.decoded.Spec.(*gateway.ReferenceGrant); ok {
				list = append(list, g)
			}
		}
	}
	return list
}

// resolveSecrets makes the resources of the Certificates that name a Secret.
func (s *session) resolveSecrets() {
	for _, list := range s.objects {
		for _, o := range list {
			if o.secret == nil {
				continue
			}
			secret := s.objects[s.secretSource][*o.secret]
			switch w := s.secrets[*o.secret]; {
			case w == nil && o.secret.Namespace != o.meta.Namespace:
				o.secretFault("no ReferenceGrant in namespace %s lets a Certificate of namespace %s refer to the Secret %s",
					o.secret.Namespace, o.meta.Namespace, o.secret.Name)
			case w == nil:
				o.secretFault("there are more than %d Secrets", maxSecrets)
			case secret == nil && w.following.err != nil:
				o.secretFault("the Secret %v cannot be read: %v", *o.secret, w.following.err)
			case secret == nil:
				o.secretFault("there is no Secret %v", *o.secret)
			case secret.fault != "":
				o.secretFault("the Secret %v cannot be used: %s", *o.secret, secret.fault)
			default:
				c := secret.decoded.Spec.(*resource.Certificate)
				o.decodePair(keyPair{c.Cert, string(c.Key)})
			}
		}
	}
}
