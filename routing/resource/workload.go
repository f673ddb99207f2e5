package resource

import (
	"reflect"
)

// KindWorkload is the kind of WorkloadIdentity.
const KindWorkload = "WorkloadIdentity"

// WorkloadIdentity is a SPIFFE ID for the programs beside a node that its selectors
// match. They get it through the SPIFFE Workload API, at the socket of --spiffe-socket.
type WorkloadIdentity struct {
	// SPIFFE is the ID: a path such as /ns/shop/web, in the cluster's trust domain, or
	// the ID in full. At most 512 bytes. Required.
	SPIFFE string `yaml:"spiffe"`
	// DNS lists the DNS names of the certificate, at most 16.
	DNS []string `yaml:"dns"`
	// TTL is how long a certificate is valid; it is renewed at half of that. Default
	// 1h, 5m to 168h.
	TTL Duration `yaml:"ttl" default:"1h" range:"5m..168h"`
	// Hint tells a program with several identities what this one is for, such as
	// internal. At most 253 bytes.
	Hint string `yaml:"hint"`
	// OnRevoke says what a node does when the certificate that it holds was revoked:
	// deny (none is issued for this ID as long as a revoked one is recorded) or
	// reissue (the program gets another one, for a new key). Default deny.
	OnRevoke string `yaml:"onRevoke" default:"deny" oneof:"deny reissue"`
	// FederatesWith names the TrustBundles that the programs get beside the cluster's
	// own, to verify peers of those trust domains. At most 64.
	FederatesWith []string `yaml:"federatesWith"`
	// Selectors say which programs get the identity. Required.
	Selectors WorkloadSelectors `yaml:"selectors"`
}

// WorkloadSelectors select programs.
type WorkloadSelectors struct {
	// Unix selects processes by the credentials that the kernel reports. Required without
	// token.
	Unix UnixSelector `yaml:"unix"`
	// Token gives the identity to callers that show a token of role issuer whose path
	// covers the ID, from any process that may connect.
	Token bool `yaml:"token"`
}

// UnixSelector selects processes. Each list that is given must contain the process's
// ID; at least one list is required, unless the identity is for tokens.
type UnixSelector struct {
	// UID lists user IDs as numbers, at most 64.
	UID []int `yaml:"uid"`
	// GID lists primary group IDs as numbers, at most 64; further groups of a process
	// do not count.
	GID []int `yaml:"gid"`
}

// ReservedPaths are the first segments of the SPIFFE paths by which services, nodes
// and discovery servers know each other. No workload gets such an ID.
var ReservedPaths = []string{"service", "xds", "penstock"}

// WithDefaults returns a copy with all defaults filled in.
func (w *WorkloadIdentity) WithDefaults() *WorkloadIdentity {
	out := *w
	fill(reflect.ValueOf(&out).Elem())
	return &out
}

// Refs lists the trust bundles.
func (w *WorkloadIdentity) Refs() []Ref {
	return trustDomainRefs("spec.federatesWith", w.FederatesWith)
}
