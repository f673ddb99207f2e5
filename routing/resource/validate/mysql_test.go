package validate_test

import (
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// A change of one side alone is checked against the other, which stays as it is.
func TestMySQLServicesAndListenersFitEachOther(t *testing.T) {
	const (
		listener = "kind: Listener\nname: db\nspec: {address: ':6000', protocol: mysql, service: db, tls: {mode: terminate, certificateRefs: [c]}}"
		service  = "kind: Service\nname: db\nspec: {protocol: mysql}"
		host     = "kind: Host\nname: h\nspec: {listener: db, names: [a.example.com], service: db}"
		tcp      = "kind: Service\nname: db\nspec: {}"
		edge     = "kind: Listener\nname: db\nspec: {address: ':6000', protocol: tls, service: db}"
	)
	all := decode(t, listener+"\n---\n"+service+"\n---\n"+host)
	certificate := resource.Object{Key: key("Certificate", "c"), Spec: &resource.Certificate{Follow: true, CertFile: "/c", KeyFile: "/k"}}
	set := mustWith(t, new(validate.Set), append(puts(all), resource.Put(certificate))...)
	with := func(texts ...string) resource.Faults {
		t.Helper()
		var changes []resource.Change
		for _, text := range texts {
			changes = append(changes, puts(decode(t, text))...)
		}
		_, faults, _ := set.With(changes)
		return faults
	}
	wantFaults(t, with(service, listener, host))
	wantFaults(t, with(tcp),
		"Service/db spec.protocol: does not fit Host/h: it is a service with protocol: tcp",
		"Service/db spec.protocol: does not fit Listener/db: it is a service with protocol: tcp")
	wantFaults(t, with(edge), "Host/h spec.service: is a service with protocol: mysql", "Listener/db spec.service: is a service with protocol: mysql")
	wantFaults(t, with(tcp, edge))
	wantFaults(t, with(edge, tcp))
	wantFaults(t, with(host, tcp),
		"Host/h spec.service: is a service with protocol: tcp", "Service/db spec.protocol: does not fit Listener/db: it is a service with protocol: tcp")
}
