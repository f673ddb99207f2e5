package resource_test

import (
	"testing"

	"penstock/internal/testkit/certs"
	"penstock/routing/resource"
)

// A text never makes the parser fail otherwise than by an error, and what it takes is
// authorities.
func FuzzBundle(f *testing.F) {
	f.Add(`{"keys": [{"kty": "EC", "use": "x509-svid", "x5c": ["AA=="]}], "spiffe_sequence": 1, "spiffe_refresh_hint": 9e9}`)
	f.Add(certs.NewCA("ca").PEM)
	f.Add(`{"keys": []}`)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := resource.ParseBundle(text)
		if err != nil {
			return
		}
		for _, cert := range b.Authorities {
			if !cert.IsCA {
				t.Errorf("takes %v for an authority", cert.Subject)
			}
		}
		if b.RefreshHint < 0 {
			t.Errorf("hint %v", b.RefreshHint)
		}
	})
}
