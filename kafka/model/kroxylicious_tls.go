package model

import (
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
)

// openssl is how a Java key store becomes PEM.
const openssl = "convert it (openssl pkcs12 -in STORE -nodes -out FILE.pem; a JKS first with keytool -importkeystore " +
	"-deststoretype PKCS12) and write storeType: PEM"

// brokerTLS converts TLS towards brokers.
func (r *release) brokerTLS(n *yaml.Node, path, certificate string) *yaml.Node {
	tls := document.NewMapping(n)
	v := r.tlsFields(n, path, tls)
	if at := v["key"]; at != nil {
		r.key(at, path+".key", certificate, tls)
	}
	trust := v["trust"]
	if trust == nil {
		return tls.Node
	}
	t := r.fields(trust, path+".trust", "storeFile", "storeType", "storePassword", "trustOptions", "insecure")
	if at := t["insecure"]; at != nil && r.flag(at, path+".trust.insecure") {
		tls.Put(at, "insecureSkipVerify", at)
	}
	if at := t["trustOptions"]; at != nil {
		r.Fault(at, path+".trust.trustOptions", "works only for gateways, where it configures client certificates", nil)
	}
	if file := r.store(t, trust, path+".trust"); file != nil {
		tls.Put(file, "ca", file)
	}
	return tls.Node
}

// gatewayTLS converts TLS towards clients.
func (r *release) gatewayTLS(n *yaml.Node, path, certificate string) *yaml.Node {
	tls := document.NewMapping(n)
	v := r.tlsFields(n, path, tls)
	if at := v["key"]; at != nil {
		r.key(at, path+".key", certificate, tls)
	} else {
		r.Fault(n, path+".key", "is required: the key and certificate to present to clients", nil)
	}
	trust := v["trust"]
	if trust == nil {
		return tls.Node
	}
	t := r.fields(trust, path+".trust", "storeFile", "storeType", "storePassword", "trustOptions", "insecure")
	if at := t["insecure"]; at != nil {
		r.Fault(at, path+".trust.insecure", noCounterpart+"a client certificate is either verified or not requested; use "+
			"trustOptions: {clientAuth: NONE}", nil)
		return tls.Node
	}
	auth := document.NewMapping(trust)
	mode := "require"
	if at := t["trustOptions"]; at != nil {
		if asked := r.fields(at, path+".trust.trustOptions", "clientAuth")["clientAuth"]; asked != nil {
			modes := map[string]string{"REQUIRED": "require", "REQUESTED": "request", "NONE": "none"}
			if mode = modes[strings.ToUpper(asked.Value)]; mode == "" {
				r.Fault(asked, path+".trust.trustOptions.clientAuth", "must be REQUIRED, REQUESTED or NONE", asked.Value)
			}
		}
	}
	file := r.store(t, trust, path+".trust")
	if file == nil || mode == "" || mode == "none" {
		return tls.Node
	}
	auth.Put(trust, "mode", document.Text(trust, mode))
	auth.Put(file, "ca", file)
	tls.Put(trust, "clientAuth", auth.Node)
	return tls.Node
}

// tlsFields reads what both directions have, and sets minVersion.
func (r *release) tlsFields(n *yaml.Node, path string, tls document.Mapping) map[string]*yaml.Node {
	v := r.fields(n, path, "key", "trust", "cipherSuites", "protocols", "credentialSupplier")
	if at := v["cipherSuites"]; at != nil {
		r.Fault(at, path+".cipherSuites", noCounterpart+"only suites with forward secrecy and authenticated encryption are "+
			"offered; remove it to use these", nil)
	}
	if at := v["credentialSupplier"]; at != nil {
		r.Fault(at, path+".credentialSupplier", noCounterpart+"all connections use one certificate; use key", nil)
	}
	if at := v["protocols"]; at != nil {
		r.protocols(at, path+".protocols", tls)
	}
	return v
}

// protocols turns allowed and denied versions into the lowest one.
func (r *release) protocols(n *yaml.Node, path string, tls document.Mapping) {
	v := r.fields(n, path, "allowed", "denied")
	var allowed, denied []string
	words := func(list *yaml.Node, path string) (all []string) {
		r.each(list, path, func(item *yaml.Node, at string) {
			if word := r.text(item, n, at); word != "" {
				all = append(all, word)
			}
		})
		return all
	}
	allowed, denied = words(v["allowed"], path+".allowed"), words(v["denied"], path+".denied")
	has := func(version string) bool {
		return (v["allowed"] == nil || slices.Contains(allowed, version)) && !slices.Contains(denied, version)
	}
	switch two, three := has("TLSv1.2"), has("TLSv1.3"); {
	case two && three:
	case three:
		tls.Put(n, "minVersion", document.Text(n, "1.3"))
	case two:
		r.Fault(n, path, noCounterpart+"TLS 1.3 is always offered; allow TLSv1.3", nil)
	default:
		r.Fault(n, path, "allows neither TLSv1.2 nor TLSv1.3, and Penstock supports no others", nil)
	}
}

// store returns the PEM file of a key or trust store. Nil: there is none, or it
// was refused.
func (r *release) store(v map[string]*yaml.Node, parent *yaml.Node, path string) *yaml.Node {
	file, kind := v["storeFile"], v["storeType"]
	switch {
	case file == nil && (kind != nil || v["storePassword"] != nil):
		r.Fault(parent, path+".storeFile", "is required", nil)
	case file == nil:
	case kind == nil:
		r.Fault(file, path+".storeType", "is missing, so the store is a JKS, which is not supported: "+openssl, nil)
	case !strings.EqualFold(kind.Value, "PEM"):
		r.Fault(kind, path+".storeType", "is not supported: "+openssl, kind.Value)
	case v["storePassword"] != nil:
		r.Fault(v["storePassword"], path+".storePassword", "works only with key stores: a PEM file has no password; remove it", nil)
	default:
		return file
	}
	return nil
}

// key makes a Certificate, and refers to it in tls.
func (r *release) key(n *yaml.Node, path, name string, tls document.Mapping) {
	v := r.fields(n, path, "privateKeyFile", "certificateFile", "keyPassword", "storeFile", "storeType", "storePassword")
	private, chain := v["privateKeyFile"], v["certificateFile"]
	if at := v["keyPassword"]; at != nil && (private != nil || chain != nil) {
		r.Fault(at, path+".keyPassword", "is not supported: decrypt the key (openssl pkey -in FILE -out FILE.plain); the cluster "+
			"stores it sealed", nil)
		return
	}
	switch {
	case v["storeFile"] != nil && (private != nil || chain != nil):
		r.Fault(v["storeFile"], path+".storeFile", "conflicts with privateKeyFile and certificateFile: give only one form", nil)
		return
	case private != nil && chain != nil:
	case private != nil || chain != nil:
		r.Fault(n, path, "must have both privateKeyFile and certificateFile", nil)
		return
	default:
		file := r.store(v, n, path)
		if file == nil {
			if v["storeFile"] == nil {
				r.Fault(n, path, "must have privateKeyFile and certificateFile, or storeFile", nil)
			}
			return
		}
		private, chain = file, file
	}
	spec := document.NewMapping(n)
	spec.Put(chain, "certFile", chain)
	spec.Put(private, "keyFile", private)
	tls.Put(n, "certificateRef", document.Text(n, name))
	r.object(&r.certificates, n, kindCertificate, name, spec)
}
