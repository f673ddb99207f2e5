package resource

// FileUser is a spec that may name files in place of their content.
type FileUser interface {
	// Files lists the files that are not read yet.
	Files() []FileRef
}

// FileRef is a file that a spec names.
type FileRef struct {
	Path string            // "spec.certFile"
	Name string            // as the user wrote it
	Set  func(text string) // stores the content in the spec
}

// PathUser is a spec that names files or folders which nodes read.
type PathUser interface {
	// Paths lists the paths, which a tool makes absolute where it reads the
	// resource's file. Empty ones are left out by the user.
	Paths() []*string
}

// Files lists the files of a listener.
func (l *Listener) Files() []FileRef {
	var files []FileRef
	if t := l.Originates(); t != nil {
		files = CAFile(originatePath+".ca", &t.CA)
	}
	if l.TLS != nil && l.TLS.ClientAuth != nil {
		files = append(files, CAFile("spec.tls.clientAuth.ca", &l.TLS.ClientAuth.CA)...)
	}
	return files
}

// Files lists the files of a service.
func (s *Service) Files() []FileRef {
	if s.TLS == nil {
		return nil
	}
	return CAFile("spec.tls.ca", &s.TLS.CA)
}

// CAFile lists the file that a bundle is to be read from, if ca is a file name;
// path begins with "spec".
func CAFile(path string, ca *string) []FileRef {
	if *ca == "" || IsPEM(*ca) {
		return nil
	}
	return []FileRef{{path, *ca, func(text string) { *ca = text }}}
}

// Files lists the files of a certificate.
func (c *Certificate) Files() []FileRef {
	var files []FileRef
	if c.Follow {
		return nil
	}
	if c.CertFile != "" {
		files = append(files, FileRef{"spec.certFile", c.CertFile, func(text string) { c.Cert, c.CertFile = text, "" }})
	}
	if c.KeyFile != "" {
		files = append(files, FileRef{"spec.keyFile", c.KeyFile, func(text string) { c.Key, c.KeyFile = Secret(text), "" }})
	}
	if c.ACME != nil {
		files = append(files, CAFile("spec.acme.ca", &c.ACME.CA)...)
	}
	return files
}
