package cli

import (
	"encoding/json"
	"strings"
	"time"

	"penstock/node/acme"
	"penstock/node/api"
	"penstock/routing/resource"
)

// expiresColumn is the place of EXPIRES among all columns of certificates.
const expiresColumn = 2

// certificateRow returns the columns of a certificate that its spec gives.
func certificateRow(o resource.Object) []string {
	c := o.Spec.(*resource.Certificate)
	leaf, err := c.Leaf()
	if err != nil {
		return []string{strings.Join(c.Names(), ","), ""}
	}
	return []string{strings.Join(leaf.DNSNames, ","), leaf.NotAfter.UTC().Format(time.DateOnly)}
}

// withIssued adds where certificates come from, and for those that an authority
// issues their state and when they expire.
func (c columns) withIssued(r *api.GetResult) columns {
	issued := map[string]acme.Status{}
	for _, d := range r.Documents {
		var s acme.Status
		if text := statusOf(d); text != nil && json.Unmarshal(text, &s) == nil {
			issued[d.Name] = s
		}
	}
	return columns{append(c.heading, "SOURCE", "STATE"), func(o resource.Object) []string {
		row := c.row(o)
		s, ok := issued[o.Name]
		if !ok {
			return append(row, "resource", "")
		}
		if !s.NotAfter.IsZero() {
			row[expiresColumn] = s.NotAfter.UTC().Format(time.DateOnly)
		}
		return append(row, s.Source, s.State)
	}}
}
