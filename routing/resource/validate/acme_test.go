package validate_test

import (
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

const acmeText = `
kind: Certificate
name: a
spec:
  acme:
    directory: https://ca.example.com/directory
    names: [a.example.com, bücher.example]
    agreeToTerms: true
    challenge: http01
    externalAccount: {kid: kid-1, hmac: zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W}
`

// The names that an authority is asked for count before it has issued anything, and
// http01 needs a listener that reads requests.
func TestNamesOfAnOrderedCertificateAreCovered(t *testing.T) {
	all := decode(t, acmeText+`---
kind: Service
name: apps
spec: {}
---
kind: Listener
name: edge
spec: {address: ":1", protocol: tls, tls: {mode: terminate, certificateRefs: [a]}}
---
kind: Host
name: tenant
spec: {listener: edge, names: [a.example.com, bücher.example, other.example.org], service: apps}
`)
	_, faults, warnings := new(validate.Set).With(puts(all))
	wantFaults(t, faults)
	wantFaults(t, warnings, "Certificate/a spec.acme.challenge: no listener can answer http01",
		"Host/tenant spec.names[2]: no certificate of the listener is valid for this name (other.example.org)")
}

// What get shows can be applied again, and the hidden key belongs to its account.
func TestHiddenKeyOfAnExternalAccountIsFilledIn(t *testing.T) {
	stored := decode(t, acmeText)[0]
	shown := decode(t, strings.Replace(acmeText, "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W", resource.HiddenSecret, 1))[0]
	filled, faults := resource.FillHidden(shown, stored)
	wantFaults(t, faults)
	if got := filled.Spec.(*resource.Certificate).ACME.ExternalAccount.HMAC; string(got) != "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W" {
		t.Error("the key is not filled in")
	}
	if shown.Spec.(*resource.Certificate).ACME.ExternalAccount.HMAC != resource.HiddenSecret {
		t.Error("the caller's object was changed")
	}
	shown.Spec.(*resource.Certificate).ACME.ExternalAccount.KID = "kid-2"
	_, faults = resource.FillHidden(shown, stored)
	wantFaults(t, faults, "Certificate/a spec.acme.externalAccount.hmac: is hidden, and the fields beside it differ")
}
