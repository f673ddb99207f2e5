package workload

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	spiffe "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/routing/resource"
)

// tokens are the tokens of a test: texts are IDs.
type tokens struct {
	mu    sync.Mutex
	paths map[string]string // of role issuer
}

func (k *tokens) Authenticate(_ context.Context, text string) (api.Principal, error) {
	if text == "unreachable" {
		return api.Principal{}, api.Errorf(api.Unavailable, "no leader")
	}
	if text == "reader" {
		return api.Principal{Name: "ci", Role: api.RoleReader, TokenID: text}, nil
	}
	if _, ok := k.Path(text); !ok {
		return api.Principal{}, api.Errorf(api.Unauthenticated, "unknown token")
	}
	return api.Principal{Name: text, Role: api.RoleIssuer, TokenID: text}, nil
}

func (k *tokens) Path(id string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	path, ok := k.paths[id]
	return path, ok
}

func (k *tokens) revoke(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.paths, id)
}

// fetchWith begins a stream that shows something as its tokens.
func fetchWith(t *testing.T, s *served, shown ...string) (resp *spiffe.X509SVIDResponse, next func() error) {
	t.Helper()
	client, ctx := s.dial(t)
	for _, text := range shown {
		ctx = metadata.AppendToOutgoingContext(ctx, tokenHeader, text)
	}
	stream, err := client.FetchX509SVID(ctx, &spiffe.X509SVIDRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err = stream.Recv(); err != nil {
		return nil, func() error { return err }
	}
	return resp, func() error { _, err := stream.Recv(); return err }
}

// serveTokens has identities for this process, for another user and tokens, and for
// tokens alone.
func serveTokens(t *testing.T) (*served, *tokens) {
	s, k := serve(t), &tokens{paths: map[string]string{"shop": "/ns/shop/**", "bank": "/ns/bank/**", "nobody": "/ns/nobody"}}
	s.Tokens = k
	s.putOwn("process", "/ns/shop/process", "")
	other := resource.UnixSelector{UID: []int{os.Getuid() + 1}}
	s.put("both", &resource.WorkloadIdentity{SPIFFE: "/ns/shop/both", Selectors: resource.WorkloadSelectors{Unix: other, Token: true}})
	s.put("full", &resource.WorkloadIdentity{
		SPIFFE: "spiffe://" + s.issuer.ca.ClusterID() + "/ns/shop/full", Selectors: resource.WorkloadSelectors{Token: true},
	})
	s.put("vault", &resource.WorkloadIdentity{SPIFFE: "/ns/bank/vault", Selectors: resource.WorkloadSelectors{Token: true}})
	return s, k
}

// A token gives the identities for tokens that its path covers; whose process shows it
// does not matter.
func TestTokensSelectIdentities(t *testing.T) {
	t.Parallel()
	s, _ := serveTokens(t)
	for _, c := range []struct {
		shown []string
		want  []string
	}{
		{nil, []string{"/ns/shop/process "}},
		{[]string{"Bearer shop"}, []string{"/ns/shop/both ", "/ns/shop/full "}},
		{[]string{"bearer bank"}, []string{"/ns/bank/vault "}},
	} {
		resp, next := fetchWith(t, s, c.shown...)
		if resp == nil {
			t.Errorf("%q: %v", c.shown, next())
			continue
		}
		if got := ids(resp); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.shown, got, c.want)
		}
	}
}

// A caller with a wrong token gets nothing, although its process has an identity.
func TestWrongTokensGetNothing(t *testing.T) {
	t.Parallel()
	s, _ := serveTokens(t)
	for _, c := range []struct {
		why   string
		shown []string
		code  codes.Code
	}{
		{"unknown", []string{"Bearer forged"}, codes.Unauthenticated},
		{"another role", []string{"Bearer reader"}, codes.Unauthenticated},
		{"another scheme", []string{"Basic shop"}, codes.Unauthenticated},
		{"no scheme", []string{"shop"}, codes.Unauthenticated},
		{"empty", []string{""}, codes.Unauthenticated},
		{"two", []string{"Bearer shop", "Bearer bank"}, codes.Unauthenticated},
		{"no identity", []string{"Bearer nobody"}, codes.PermissionDenied},
		{"undecided", []string{"Bearer unreachable"}, codes.Unavailable},
	} {
		resp, next := fetchWith(t, s, c.shown...)
		if resp != nil {
			t.Errorf("%s: got %q", c.why, ids(resp))
			continue
		}
		if err := next(); status.Code(err) != c.code || strings.Contains(err.Error(), "forged") {
			t.Errorf("%s: %v, want %v", c.why, err, c.code)
		}
	}
	if n := s.Stats().Denied; n != 8 {
		t.Errorf("%d denials are counted", n)
	}
	s.Tokens = nil
	if resp, next := fetchWith(t, s, "Bearer shop"); resp != nil || status.Code(next()) != codes.Unauthenticated {
		t.Error("a token is accepted where none are")
	}
}

// Open streams end with their token, and no other streams do.
func TestRevokedTokensEndStreams(t *testing.T) {
	t.Parallel()
	s, k := serveTokens(t)
	_, shop := fetchWith(t, s, "Bearer shop")
	_, bank := fetchWith(t, s, "Bearer bank")
	k.revoke("shop")
	if err := shop(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v", err)
	}
	testkit.WaitFor(t, "one stream to be left", func() bool { return s.Stats().Streams == 1 })
	k.revoke("bank")
	if err := bank(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v", err)
	}
}
