package model

import (
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

var (
	_ resource.Follower   = (*PhysicalCluster)(nil)
	_ resource.Follower   = (*VirtualCluster)(nil)
	_ resource.BundleUser = (*PhysicalCluster)(nil)
	_ resource.BundleUser = (*VirtualCluster)(nil)
)

// Paths lists the files that nodes read.
func (p *PhysicalCluster) Paths() (paths []*string) {
	if p.TLS != nil {
		paths = append(paths, &p.TLS.CAFile)
	}
	for i := range p.Brokers {
		if t := p.Brokers[i].TLS; t != nil {
			paths = append(paths, &t.CAFile)
		}
	}
	return paths
}

// Followed implements resource.Follower.
func (p *PhysicalCluster) Followed() (files []resource.FollowedFile) {
	p.eachFile(func(path string, t *PhysicalTLS) {
		files = append(files, resource.FollowedFile{Path: path + ".caFile", Name: t.CAFile})
	})
	return files
}

// eachFile calls f for each TLS that names a file, in the order of Followed.
func (p *PhysicalCluster) eachFile(f func(path string, t *PhysicalTLS)) {
	if p.TLS != nil && p.TLS.CAFile != "" {
		f("spec.tls", p.TLS)
	}
	for i := range p.Brokers {
		if t := p.Brokers[i].TLS; t != nil && t.CAFile != "" {
			f(resource.Item("spec.brokers", i)+".tls", t)
		}
	}
}

// WithContent implements resource.Follower.
func (p *PhysicalCluster) WithContent(content []string) (resource.Spec, error) {
	for _, text := range content {
		if err := resource.CheckBundle(text); err != nil {
			return nil, err
		}
	}
	made := p.withOwnTLS()
	made.eachFile(func(_ string, t *PhysicalTLS) { t.CA, content = content[0], content[1:] })
	return made, nil
}

// withOwnTLS returns a copy that shares no TLS settings.
func (p *PhysicalCluster) withOwnTLS() *PhysicalCluster {
	made := *p
	made.TLS = p.TLS.clone()
	made.Brokers = append([]PhysicalBroker(nil), p.Brokers...)
	for i := range made.Brokers {
		made.Brokers[i].TLS = made.Brokers[i].TLS.clone()
	}
	return &made
}

func (t *PhysicalTLS) clone() *PhysicalTLS {
	if t == nil {
		return nil
	}
	made := *t
	return &made
}

// BundleRef implements resource.BundleUser. A broker's own TLS has none.
func (p *PhysicalCluster) BundleRef() (name, path string) {
	if p.TLS == nil {
		return "", ""
	}
	return p.TLS.CARef, "spec.tls.caRef"
}

// WithBundle implements resource.BundleUser.
func (p *PhysicalCluster) WithBundle(b *resource.CertificateBundle) resource.Spec {
	made := p.withOwnTLS()
	made.TLS.CA = ""
	if b != nil {
		made.TLS.CA = b.PEM
	}
	return made
}

// validateCA reports the faults of what verifies brokers.
func (t *PhysicalTLS) validateCA(path string, fault func(path, message string, value any)) {
	validate.CheckCA(path, t.CA, t.CAFile, t.CARef, fault)
	if t.InsecureSkipVerify && (t.CAFile != "" || t.CARef != "") {
		fault(path+".insecureSkipVerify", "accepts any certificate, so caFile and caRef would have no effect: leave one out", true)
	}
}

// Paths lists the files that nodes read.
func (c *VirtualCluster) Paths() []*string {
	if c.TLS == nil || c.TLS.ClientAuth == nil {
		return nil
	}
	return []*string{&c.TLS.ClientAuth.CAFile}
}

// Followed implements resource.Follower.
func (c *VirtualCluster) Followed() []resource.FollowedFile {
	if c.TLS == nil || c.TLS.ClientAuth == nil || c.TLS.ClientAuth.CAFile == "" {
		return nil
	}
	return []resource.FollowedFile{{Path: "spec.tls.clientAuth.caFile", Name: c.TLS.ClientAuth.CAFile}}
}

// WithContent implements resource.Follower.
func (c *VirtualCluster) WithContent(content []string) (resource.Spec, error) {
	if err := resource.CheckBundle(content[0]); err != nil {
		return nil, err
	}
	auth := *c.TLS.ClientAuth
	auth.CA = content[0]
	return c.withClientAuth(&auth), nil
}

func (c *VirtualCluster) withClientAuth(a *resource.ClientAuth) *VirtualCluster {
	made, settings := *c, *c.TLS
	settings.ClientAuth, made.TLS = a, &settings
	return &made
}

// BundleRef implements resource.BundleUser.
func (c *VirtualCluster) BundleRef() (name, path string) {
	if c.TLS == nil || c.TLS.ClientAuth == nil {
		return "", ""
	}
	return c.TLS.ClientAuth.CARef, "spec.tls.clientAuth.caRef"
}

// WithBundle implements resource.BundleUser.
func (c *VirtualCluster) WithBundle(b *resource.CertificateBundle) resource.Spec {
	return c.withClientAuth(c.TLS.ClientAuth.WithBundle(b))
}
