package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

const (
	// Cookie is the name of the session's cookie.
	Cookie = "penstock-session"
	// CSRFHeader carries the session's csrf in requests that may change something.
	CSRFHeader = "X-Penstock-CSRF"
	// SessionLife bounds a session.
	SessionLife = 12 * time.Hour
	// maxCookies bounds the cookies of one request that are looked at: other servers at the
	// same host may set one of this name.
	maxCookies = 4
	maxLogin   = 8 << 10 // bytes of a login's body
	// loginTimeout bounds a login.
	loginTimeout = 10 * time.Second
)

// Sessions begins, checks and ends sessions. Its methods are safe for concurrent use.
type Sessions struct{ cfg Config }

// NewSessions returns the sessions of a node.
func NewSessions(cfg Config) *Sessions { return &Sessions{cfg} }

// Caller is who makes a request with a session.
type Caller struct {
	Principal api.Principal
	Until     time.Time // when the session ends at the latest; zero: never
	csrf      string
}

var (
	errNoSession = api.Errorf(api.Unauthenticated, "log in at /ui/ with a token; scripts send it as Authorization: Bearer pst1...")
	errCSRF      = api.Errorf(api.Forbidden, "a request with a session that changes something needs the header %s: see /ui/session", CSRFHeader)
	errOtherSite = api.Errorf(api.Forbidden, "a page of another origin sent this request")
	errInsecure  = api.Errorf(api.Forbidden, "the dashboard requires TLS, except from this machine: see --http-cert")
	errLoginBody = api.Errorf(api.Invalid, `want Content-Type: application/json and {"token":"pst1..."}`)
)

// Check returns the caller of a request that has a session's cookie. It refuses requests
// of pages of other origins, and those that may change something without the header
// CSRFHeader.
func (s *Sessions) Check(r *http.Request) (Caller, error) {
	if !SameOrigin(r) {
		return Caller{}, errOtherSite
	}
	c, err := s.caller(r)
	switch {
	case err != nil:
		return Caller{}, err
	case r.Method == http.MethodGet || r.Method == http.MethodHead || s.cfg.Dev:
	case subtle.ConstantTimeCompare([]byte(r.Header.Get(CSRFHeader)), []byte(c.csrf)) != 1:
		return Caller{}, errCSRF
	}
	return c, nil
}

// caller returns the caller of a request.
func (s *Sessions) caller(r *http.Request) (Caller, error) {
	if s.cfg.Dev {
		return Caller{Principal: api.Principal{Name: "dev", Role: api.RoleAdmin, From: r.RemoteAddr}, csrf: "dev"}, nil
	}
	if !Secured(r) {
		return Caller{}, errInsecure
	}
	err := error(errNoSession)
	for i, cookie := range r.CookiesNamed(Cookie) {
		if i == maxCookies {
			break
		}
		var c Caller
		if c, err = s.holder(r.Context(), cookie.Value); err == nil {
			c.Principal.From = r.RemoteAddr
			return c, nil
		}
	}
	return Caller{}, err
}

// holder returns the caller that a cookie stands for.
func (s *Sessions) holder(ctx context.Context, value string) (Caller, error) {
	one, err := s.cfg.Keys.open(value)
	switch {
	case errors.Is(err, errNoKeys):
		return Caller{}, api.Errorf(api.Unavailable, "%v", err)
	case err != nil:
		return Caller{}, api.Errorf(api.Unauthenticated, "%v: log in again", err)
	}
	until := one.begun.Add(SessionLife)
	if !s.cfg.Now().Before(until) {
		return Caller{}, api.Errorf(api.Unauthenticated, "the session has ended after %v: log in again", SessionLife)
	}
	p, err := s.cfg.Holder(ctx, one.token)
	if err != nil {
		return Caller{}, err
	}
	return Caller{Principal: p, Until: until, csrf: base64.RawURLEncoding.EncodeToString(one.csrf[:])}, nil
}

// SameOrigin reports whether a request was not sent by a page of another origin. A
// program other than a browser sends neither header.
func SameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none": // none: typed, or a bookmark
		return true
	case "":
	default:
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

// Secured reports whether a request came by TLS, or from this machine.
func Secured(r *http.Request) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return r.TLS != nil || err == nil && at.Addr().Unmap().IsLoopback()
}

// Session describes a session to its page.
type Session struct {
	Name    string   `json:"name"` // of the token
	Role    api.Role `json:"role"`
	CSRF    string   `json:"csrf"` // for CSRFHeader
	Node    string   `json:"node"`
	Version string   `json:"version"`
	Dev     bool     `json:"dev"`
	// Until is when the session ends at the latest; left out with Dev.
	Until time.Time `json:"until,omitzero"`
}

func (s *Sessions) describe(c *Caller) Session {
	return Session{
		Name: c.Principal.Name, Role: c.Principal.Role, CSRF: c.csrf, Node: s.cfg.Node, Version: s.cfg.Version, Dev: s.cfg.Dev, Until: c.Until,
	}
}

// serveSession answers GET /ui/session.
func (s *Sessions) serveSession(w http.ResponseWriter, r *http.Request) {
	c, err := s.Check(r)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, s.describe(&c))
}

// login answers POST /ui/login.
func (s *Sessions) login(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Dev {
		c, _ := s.caller(r) // never fails
		answer(w, http.StatusOK, s.describe(&c))
		return
	}
	c, value, err := s.begin(r)
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Busy && e.Code != api.Invalid { // those have not been examined
		s.audit(r, api.ActLogin, c.Principal, err)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	s.setCookie(w, r, value, int(SessionLife/time.Second))
	answer(w, http.StatusOK, s.describe(&c))
}

// begin examines the token of a login, and returns the caller and the cookie's value.
func (s *Sessions) begin(r *http.Request) (Caller, string, error) {
	token, err := loginToken(r)
	if err != nil {
		return Caller{}, "", err
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginTimeout)
	defer cancel()
	var from net.Addr
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from = net.TCPAddrFromAddrPort(at)
	}
	p, err := s.cfg.Login(ctx, from, token)
	if err != nil {
		return Caller{}, "", err
	}
	p.From = r.RemoteAddr
	c := Caller{Principal: p}
	if !p.Role.May(api.RoleReader) {
		return c, "", api.Errorf(api.Forbidden, "%v has role %s: the dashboard needs role reader, operator or admin", p, p.Role)
	}
	one := session{token: p.TokenID, begun: s.cfg.Now()}
	_, _ = rand.Read(one.csrf[:]) // never fails
	value, err := s.cfg.Keys.seal(one)
	if err != nil {
		return c, "", api.Errorf(api.Unavailable, "%v", err)
	}
	c.Until, c.csrf = one.begun.Add(SessionLife).Truncate(time.Second), base64.RawURLEncoding.EncodeToString(one.csrf[:])
	return c, value, nil
}

// loginToken reads the token of a login.
func loginToken(r *http.Request) (string, error) {
	if !Secured(r) {
		return "", errInsecure
	}
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(media) != "application/json" {
		return "", errLoginBody
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxLogin+1))
	var login struct {
		Token string `json:"token"`
	}
	if err != nil || len(body) > maxLogin || json.Unmarshal(body, &login) != nil { // its error could show the token
		return "", errLoginBody
	}
	if login.Token = strings.TrimSpace(login.Token); login.Token == "" {
		return "", errLoginBody
	}
	return login.Token, nil
}

// logout answers POST /ui/logout: it deletes the cookie. It needs no valid session, so
// that a page can always get rid of one.
func (s *Sessions) logout(w http.ResponseWriter, r *http.Request) {
	if c, err := s.Check(r); err == nil && !s.cfg.Dev {
		s.audit(r, api.ActLogout, c.Principal, nil)
	} else if errors.Is(err, errCSRF) || errors.Is(err, errOtherSite) {
		refuse(w, err)
		return
	}
	s.setCookie(w, r, "", -1)
	answer(w, http.StatusOK, api.Empty{})
}

// setCookie sets the session's cookie, or deletes it if age is negative.
func (s *Sessions) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: Cookie, Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
}

// audit records a login or logout.
func (s *Sessions) audit(r *http.Request, act string, p api.Principal, err error) {
	s.cfg.Audit(rpc.Event{Principal: p, Method: act, Summary: "the dashboard", Err: err, At: time.Now(), Peer: r.RemoteAddr})
}

// refuse answers with an error, as /v1 does.
func refuse(w http.ResponseWriter, err error) {
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.Internal, Message: "the request failed"}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			e = api.Errorf(api.Deadline, "it took too long: try again")
		}
	}
	status := http.StatusInternalServerError
	switch e.Code {
	case api.Unauthenticated:
		status = http.StatusUnauthorized
	case api.Forbidden:
		status = http.StatusForbidden
	case api.Invalid:
		status = http.StatusBadRequest
	case api.Busy:
		w.Header().Set("Retry-After", "2")
		status = http.StatusTooManyRequests
	case api.Deadline:
		status = http.StatusGatewayTimeout
	case api.Unavailable, api.NoLeader:
		status = http.StatusServiceUnavailable
	}
	answer(w, status, map[string]any{"error": e.Message, "code": e.Code})
}
