package validate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// checker collects the faults of changes, seen in the set that they lead to.
type checker struct {
	set               *Set
	before            *Set // without the changes
	faults            resource.Faults
	warnings          resource.Warnings
	coverageChecked   map[resource.Key]bool // listeners and Hosts that checkCoverage has checked
	pending           map[resource.Key]bool // changes that are not checked yet
	setChecked        map[resource.Key]bool // SetCheckers that checkInSet has checked
	loopsChecked      map[resource.Key]bool // services that checkServiceLoops has checked
	memo              map[any]any           // see View.Once
	hostsRefused      map[resource.Key]bool // listeners already reported as unable to have Hosts
	certificatesKnown map[resource.Key]bool // results of knowsCertificates
	// places has the paths of an object's names, for objects where they were needed.
	places map[resource.Key]map[string]string
	meshes []*member   // the first policy of each mesh; nil: not looked for yet
	splits *splitGraph // nil: not looked for yet
}

func newChecker() *checker {
	return &checker{
		coverageChecked: map[resource.Key]bool{}, pending: map[resource.Key]bool{},
		setChecked: map[resource.Key]bool{}, loopsChecked: map[resource.Key]bool{}, hostsRefused: map[resource.Key]bool{},
		certificatesKnown: map[resource.Key]bool{}, places: map[resource.Key]map[string]string{},
	}
}

func (c *checker) fault(o *resource.Object, path, message string, value any) {
	if len(c.faults) < resource.MaxFaults {
		c.faults = append(c.faults, o.Fault(path, message, value))
	}
}

func (c *checker) warn(o *resource.Object, path, message string, value any) {
	if len(c.warnings) < resource.MaxFaults {
		c.warnings = append(c.warnings, o.Fault(path, message, value))
	}
}

// check checks one change and the objects that it affects.
func (c *checker) check(change *resource.Change) {
	if change.Delete {
		c.checkDelete(&change.Object)
		return
	}
	m := c.set.member(change.Key)
	for _, r := range m.references() {
		switch {
		case c.set.member(r.Key) != nil:
		case r.Optional:
			c.warn(&m.Object, r.Path, "there is no such "+r.Kind+" yet", r.Name)
		default:
			c.fault(&m.Object, r.Path, "there is no such "+r.Kind, r.Name)
		}
	}
	if u, ok := m.Spec.(resource.BundleUser); ok {
		c.checkBundle(m, u)
	}
	switch spec := m.Spec.(type) {
	case *resource.Listener:
		c.checkListener(m, spec)
		c.checkOriginate(m, spec)
		c.checkListenerProtocol(m, spec)
		c.checkListenerLoops(m, spec)
	case *resource.Host:
		c.checkHost(m, spec)
	case *resource.Service:
		c.checkIdentities(m, spec)
		c.checkOriginators(m, spec)
		c.checkServiceProtocol(m, spec)
		c.checkServiceLoops(m, spec)
	case *resource.MeshTCPRoute:
		c.checkWeights(m, spec)
		c.checkMesh(m)
		c.checkSplit(m, spec)
	case *resource.MeshHTTPRoute:
		c.checkHTTPWeights(m, spec)
		c.checkMesh(m)
	case *resource.Certificate:
		if spec.ACME != nil {
			c.checkACME(m, spec.ACME)
		}
		c.set.eachUser(m.Key, func(user *member) {
			if u, ok := user.Spec.(resource.BundleUser); ok && !c.pending[user.Key] {
				c.checkBundle(user, u)
			}
			if l, ok := user.Spec.(*resource.Listener); ok {
				c.checkCoverage(user, l)
			}
		})
	case *resource.TrustBundle:
		c.checkTrustDomain(m, spec)
	case SetChecker:
		c.checkInSet(m, spec)
	}
	c.checkReferrers(m.Key)
}

func (c *checker) checkDelete(o *resource.Object) {
	var hard []resource.Ref
	for _, u := range c.set.Users(o.Key) {
		if u.Optional {
			user := c.set.member(u.Key)
			c.warn(&user.Object, u.Path, "there will be no such "+o.Kind, o.Name)
		} else {
			hard = append(hard, u)
		}
	}
	if len(hard) > 0 {
		c.fault(o, "", "is in use by "+formatUsers(hard), nil)
	}
}

func (c *checker) checkListener(m *member, l *resource.Listener) {
	c.set.eachAddressConflict(m.listens[0], func(rival *member) {
		if other, ok := rival.Spec.(*resource.Listener); rival.Key != m.Key && (!ok || !disjoint(l.Nodes, other.Nodes)) {
			c.fault(&m.Object, "spec.address", "overlaps with the address of "+rival.String(), l.Address)
		}
	})
	hosts := c.set.hasUser(m.Key, "Host")
	if hosts {
		c.checkHostsOf(m, l)
	}
	if l.Service == "" && len(l.Hosts) == 0 && !hosts && l.Protocol != "kafka" {
		c.warn(&m.Object, "spec", "has no service: every connection is closed", nil)
	}
	c.checkCoverage(m, l)
}

// disjoint reports whether no node can have both sets of tags.
func disjoint(a, b map[string]string) bool {
	for k, v := range a {
		if other, ok := b[k]; ok && other != v {
			return true
		}
	}
	return false
}

func (c *checker) checkWeights(m *member, r *resource.MeshTCPRoute) {
	for i := range r.To {
		for j := range r.To[i].Rules {
			rule := resource.Item(resource.Item("spec.to", i)+".rules", j)
			c.checkWeightSum(m, rule, r.To[i].Rules[j].Default.BackendRefs, "every connection is closed")
		}
	}
}

func (c *checker) checkHTTPWeights(m *member, r *resource.MeshHTTPRoute) {
	for i := range r.To {
		for j := range r.To[i].Rules {
			rule := resource.Item(resource.Item("spec.to", i)+".rules", j)
			c.checkWeightSum(m, rule, r.To[i].Rules[j].Default.BackendRefs, "every request is answered 503")
		}
	}
}

// checkWeightSum warns of a rule whose weights are all 0.
func (c *checker) checkWeightSum(m *member, rule string, refs []resource.BackendRef, so string) {
	sum := 0
	for _, b := range refs {
		sum += b.EffectiveWeight()
	}
	if len(refs) > 0 && sum == 0 {
		c.warn(&m.Object, rule+".default.backendRefs", "all weights are 0: "+so, nil)
	}
}

// checkCoverage warns of names of a listener and its Hosts that none of its
// certificates is valid for.
func (c *checker) checkCoverage(m *member, l *resource.Listener) {
	if l.TLS == nil || l.TLS.Mode != "terminate" || c.coverageChecked[m.Key] {
		return
	}
	c.coverageChecked[m.Key] = true
	for i := range l.Hosts {
		c.warnUncovered(m, m, resource.Item("spec.hosts", i)+".names", l.Hosts[i].Names)
	}
	c.set.eachUser(m.Key, func(user *member) {
		if h, ok := user.Spec.(*resource.Host); ok && !c.coverageChecked[user.Key] {
			c.coverageChecked[user.Key] = true
			c.warnUncovered(user, m, "spec.names", h.Names)
		}
	})
}

// warnUncovered warns of those of m's names that no certificate of the listener
// is valid for.
func (c *checker) warnUncovered(m, listener *member, path string, names []string) {
	for i, name := range names {
		canonical, err := hostname.ParsePattern(name)
		if err != nil || c.set.hasCertificateFor(listener.Key, canonical) || !c.knowsCertificates(listener) {
			continue
		}
		c.warn(&m.Object, resource.Item(path, i), "no certificate of the listener is valid for this name", name)
	}
}

// knowsCertificates reports whether all certificates of a listener have been
// read. A missing one is reported elsewhere.
func (c *checker) knowsCertificates(listener *member) bool {
	known, ok := c.certificatesKnown[listener.Key]
	if !ok {
		known = !slices.ContainsFunc(listener.Spec.(*resource.Listener).TLS.CertificateRefs, func(ref string) bool {
			cert := c.set.member(resource.Key{Kind: "Certificate", Name: ref})
			return cert == nil || !cert.Spec.(*resource.Certificate).NamesKnown()
		})
		c.certificatesKnown[listener.Key] = known
	}
	return known
}

// hasCertificateFor reports whether a certificate that the listener refers to
// is valid for a name in normal form.
func (s *Set) hasCertificateFor(listener resource.Key, name string) bool {
	by := func(name string) bool {
		certificates := s.certificateNames.Group(name)
		for cert := range certificates.All() {
			if _, ok := s.users.Get(treeKey(resource.Key{Kind: "Certificate", Name: cert}), treeKey(listener)); ok {
				return true
			}
		}
		return false
	}
	if by(name) {
		return true
	}
	_, parent, ok := strings.Cut(name, ".")
	return ok && by("*."+parent)
}

// Admit reports faults that matter only when objects are applied, not once they
// are stored: an expired certificate, a secret that is still hidden, and a file
// that was not read.
func Admit(objects []resource.Object, now time.Time) resource.Faults {
	c := &checker{}
	for i := range objects {
		o := &objects[i]
		if files, ok := o.Spec.(resource.FileUser); ok {
			for _, f := range files.Files() {
				c.fault(o, f.Path, "was not read: the client must send the content, not the file name", f.Name)
			}
		}
		if follower, ok := o.Spec.(resource.Follower); ok {
			for _, f := range follower.Followed() {
				if !filepath.IsAbs(f.Name) {
					c.fault(o, f.Path, "must be an absolute path: each node reads its own file", f.Name)
				}
			}
		}
		for _, path := range resource.HiddenPaths(o.Spec) {
			what := path[strings.LastIndexByte(path, '.')+1:]
			message := fmt.Sprintf("is hidden, and no stored value can replace it: give the %s instead of %s", what, resource.HiddenSecret)
			c.fault(o, path, message, nil)
		}
		if cert, ok := o.Spec.(*resource.Certificate); ok {
			if message := expired(cert, now); message != "" {
				c.fault(o, "spec.cert", message, nil)
			}
		}
	}
	return c.faults
}
