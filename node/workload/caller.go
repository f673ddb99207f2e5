package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"penstock/node/api"
	"penstock/routing/resource"
)

// tokenHeader is the metadata by which a caller shows a token, as "Bearer TOKEN"
// (RFC 6750, section 2.1).
const tokenHeader = "authorization"

// tokenCheck is how often the token of an open stream is checked: one that was revoked
// or has expired ends the stream.
const tokenCheck = 2 * time.Second

// Tokens verify the tokens that callers show.
type Tokens interface {
	// Authenticate returns the principal of a token. Its errors contain nothing of it.
	Authenticate(ctx context.Context, text string) (api.Principal, error)
	// Path returns the pattern of SPIFFE paths of a token of role issuer, by the token's
	// ID; not ok if the token is not valid any more.
	Path(id string) (pattern string, ok bool)
}

// caller is who asks: the process at the other end of the socket, or whoever has the
// token that was shown.
type caller struct {
	process credentials
	token   api.Principal // of role issuer; TokenID is "" if none was shown
}

func (c *caller) showsToken() bool { return c.token.TokenID != "" }

// begin counts a stream and returns its caller, and the context of the stream, which also
// ends with the caller's token; end must be called. A caller that shows a token is known
// by that alone: with a wrong one it gets nothing, whatever process it is.
func (a *API) begin(stream context.Context) (c caller, ctx context.Context, end func(), err error) {
	p, _ := peer.FromContext(stream)
	if p == nil {
		return c, nil, nil, status.Error(codes.Internal, "the caller is not known")
	}
	known, ok := p.AuthInfo.(credentials)
	if !ok {
		return c, nil, nil, status.Error(codes.Internal, "the caller is not known")
	}
	c.process = known
	if c.token, err = a.authenticate(stream); err != nil {
		a.count(func(s *APIStats) { s.Denied++ })
		a.log.Debug("refused a token at the Workload API", "uid", known.uid, "gid", known.gid, "pid", known.pid, "error", err)
		return c, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(stream)
	if c.showsToken() {
		go a.watchToken(ctx, cancel, c.token.TokenID)
	}
	a.count(func(s *APIStats) { s.Streams++ })
	return c, ctx, func() {
		cancel(nil)
		a.count(func(s *APIStats) { s.Streams-- })
	}, nil
}

// authenticate returns the principal of the token that a call shows; of none if it shows
// none.
func (a *API) authenticate(ctx context.Context) (none api.Principal, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	shown := md.Get(tokenHeader)
	if len(shown) == 0 {
		return none, nil
	}
	scheme, text, _ := strings.Cut(shown[0], " ")
	switch {
	case len(shown) > 1 || !strings.EqualFold(scheme, "bearer") || text == "":
		return none, status.Errorf(codes.Unauthenticated, "%s must be given once, as \"Bearer TOKEN\"", tokenHeader)
	case a.Tokens == nil:
		return none, status.Error(codes.Unauthenticated, "no tokens are accepted here")
	}
	p, err := a.Tokens.Authenticate(ctx, text)
	var refused *api.Error
	switch {
	case errors.As(err, &refused) && refused.Code == api.Unavailable:
		return none, status.Error(codes.Unavailable, refused.Error())
	case err != nil:
		return none, status.Error(codes.Unauthenticated, err.Error())
	case p.Role != api.RoleIssuer:
		return none, status.Errorf(codes.Unauthenticated, "the token %q has the role %s: want one of role issuer, from "+
			"penstock token create --role issuer --path PATTERN", p.Name, p.Role)
	}
	return p, nil
}

// watchToken ends a stream when the token is not valid any more.
func (a *API) watchToken(ctx context.Context, end context.CancelCauseFunc, id string) {
	ticker := time.NewTicker(tokenCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if _, ok := a.Tokens.Path(id); !ok {
			end(status.Error(codes.Unauthenticated, "the token has expired or was revoked"))
			return
		}
	}
}

// selector returns the function that says whether an identity is for the caller.
func (a *API) selector(c *caller) func(w *resource.WorkloadIdentity) bool {
	if !c.showsToken() {
		return func(w *resource.WorkloadIdentity) bool { return selects(&w.Selectors.Unix, c.process) }
	}
	path, ok := a.Tokens.Path(c.token.TokenID)
	domain := "spiffe://" + a.trustDomain
	return func(w *resource.WorkloadIdentity) bool {
		id := w.SPIFFE
		if strings.HasPrefix(id, "/") {
			id = domain + id
		}
		return ok && w.Selectors.Token && resource.MatchSPIFFE(domain+path, id)
	}
}

// denied refuses a caller for whom there is no identity.
func (a *API) denied(c *caller) error {
	a.count(func(s *APIStats) { s.Denied++ })
	p := &c.process
	a.log.Debug("no workload identity", "uid", p.uid, "gid", p.gid, "pid", p.pid, "token", c.token.Name)
	why := fmt.Sprintf("no WorkloadIdentity selects uid %d, gid %d on this node", p.uid, p.gid)
	if c.showsToken() {
		why = fmt.Sprintf("no WorkloadIdentity with selectors.token has an ID that the token %q may have", c.token.Name)
	}
	return status.Error(codes.PermissionDenied, why+": see penstock get workloadidentities")
}

// ended returns the status of a stream whose context has ended.
func ended(ctx context.Context) error {
	if s, ok := status.FromError(context.Cause(ctx)); ok {
		return s.Err()
	}
	return status.FromContextError(ctx.Err()).Err()
}
