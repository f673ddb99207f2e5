package resource

import (
	"crypto/tls"
	"errors"
)

// Follower is a spec that may name files which each node reads by itself, and again
// when they change. They are also the Paths of its PathUser.
type Follower interface {
	PathUser
	Spec
	// Followed lists the files; none: the spec needs no files.
	Followed() []FollowedFile
	// WithContent returns a copy that has the content of the files, in the order of
	// Followed, or what is wrong with it. The error never contains content.
	WithContent(content []string) (Spec, error)
}

// FollowedFile is a file on a node.
type FollowedFile struct {
	Path string // "spec.certFile"
	Name string // absolute
}

var (
	_ Follower = (*Certificate)(nil)
	_ Follower = (*Listener)(nil)
	_ Follower = (*Service)(nil)
)

// Paths lists the files of a certificate that nodes read.
func (c *Certificate) Paths() []*string {
	if !c.Follow {
		return nil
	}
	return []*string{&c.CertFile, &c.KeyFile}
}

// Followed implements Follower.
func (c *Certificate) Followed() []FollowedFile {
	if !c.Follow {
		return nil
	}
	return []FollowedFile{{"spec.certFile", c.CertFile}, {"spec.keyFile", c.KeyFile}}
}

// WithContent implements Follower.
func (c *Certificate) WithContent(content []string) (Spec, error) {
	if _, err := ParseCertificates(content[0]); err != nil {
		return nil, errors.New("certFile " + err.Error())
	}
	if _, err := tls.X509KeyPair([]byte(content[0]), []byte(content[1])); err != nil {
		return nil, errors.New("keyFile has no key that belongs to the first certificate of certFile")
	}
	made := *c
	made.Cert, made.Key = content[0], Secret(content[1])
	return &made, nil
}

// Paths lists the files of a listener that nodes read.
func (l *Listener) Paths() []*string {
	var paths []*string
	if t := l.Originates(); t != nil {
		paths = append(paths, &t.CAFile)
	}
	if l.TLS != nil && l.TLS.ClientAuth != nil {
		paths = append(paths, &l.TLS.ClientAuth.CAFile)
	}
	return paths
}

// Followed implements Follower.
func (l *Listener) Followed() []FollowedFile {
	if t := l.Originates(); t != nil && t.CAFile != "" {
		return []FollowedFile{{originatePath + ".caFile", t.CAFile}}
	}
	if l.TLS == nil || l.TLS.ClientAuth == nil || l.TLS.ClientAuth.CAFile == "" {
		return nil
	}
	return []FollowedFile{{"spec.tls.clientAuth.caFile", l.TLS.ClientAuth.CAFile}}
}

// WithContent implements Follower.
func (l *Listener) WithContent(content []string) (Spec, error) {
	if err := CheckBundle(content[0]); err != nil {
		return nil, err
	}
	if t := l.Originates(); t != nil {
		settings := *t
		settings.CA = content[0]
		return l.withOriginate(&settings), nil
	}
	made, settings, auth := *l, *l.TLS, *l.TLS.ClientAuth
	auth.CA = content[0]
	settings.ClientAuth, made.TLS = &auth, &settings
	return &made, nil
}

// Paths lists the files of a service that nodes read.
func (s *Service) Paths() []*string {
	var paths []*string
	if s.TLS != nil {
		paths = append(paths, &s.TLS.CAFile)
	}
	for i := range s.MySQL.Credentials {
		paths = append(paths, &s.MySQL.Credentials[i].PasswordFile)
	}
	return paths
}

// Followed implements Follower.
func (s *Service) Followed() []FollowedFile {
	var list []FollowedFile
	if s.TLS != nil && s.TLS.CAFile != "" {
		list = append(list, FollowedFile{"spec.tls.caFile", s.TLS.CAFile})
	}
	for i := range s.MySQL.Credentials {
		list = append(list, FollowedFile{Item("spec.mysql.credentials", i) + ".passwordFile", s.MySQL.Credentials[i].PasswordFile})
	}
	return list
}

// WithContent implements Follower.
func (s *Service) WithContent(content []string) (Spec, error) {
	made := *s
	if s.TLS != nil && s.TLS.CAFile != "" {
		if err := CheckBundle(content[0]); err != nil {
			return nil, err
		}
		settings := *s.TLS
		settings.CA = content[0]
		made.TLS, content = &settings, content[1:]
	}
	var err error
	if made.MySQL, err = s.MySQL.withPasswords(content); err != nil {
		return nil, err
	}
	return &made, nil
}

// CheckBundle returns what is wrong with the content of a caFile, which it does not
// contain.
func CheckBundle(text string) error {
	if _, err := ParseCertificates(text); err != nil {
		return errors.New("caFile " + err.Error())
	}
	return nil
}
