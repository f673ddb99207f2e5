package http

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// statusError is a response that is no answer.
type statusError struct {
	code       int
	retryAfter time.Duration // what the server asks for; 0: nothing
}

// Error implements error.
func (e *statusError) Error() string {
	text := fmt.Sprintf("the server answers %d", e.code)
	if name := nethttp.StatusText(e.code); name != "" {
		text += " (" + name + ")"
	}
	switch {
	case e.code == nethttp.StatusUnauthorized || e.code == nethttp.StatusForbidden:
		text += ": check token, headers and client certificate"
	case e.code == nethttp.StatusNotFound:
		text += ": check the url; a service without endpoints is an empty list"
	case e.retryAfter > 0:
		text += fmt.Sprintf(" and asks to retry after %v", e.retryAfter)
	}
	return text
}

// retryAfter is how long a server wants to be left alone after an error.
func retryAfter(err error) time.Duration {
	if status := (*statusError)(nil); errors.As(err, &status) {
		return status.retryAfter
	}
	return 0
}

// parseRetryAfter reads the header Retry-After: seconds, or a date.
func parseRetryAfter(value string) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if date, err := nethttp.ParseTime(value); err == nil {
		d = time.Until(date)
	}
	return min(max(d, 0), maxRetryAfter)
}

// maxRedirects is how many redirects a request follows.
const maxRedirects = 3

// get requests a URL and follows redirects. The response has status 200 or 304
// and an encoding that its Body can be read in. The caller closes that.
func (s *Source) get(ctx context.Context, target string, header nethttp.Header) (*nethttp.Response, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("the url with the service's name in it is not valid")
	}
	for range maxRedirects + 1 {
		resp, err := s.send(ctx, u, header)
		if err != nil {
			return nil, err
		}
		switch resp.StatusCode {
		case nethttp.StatusMovedPermanently, nethttp.StatusFound, nethttp.StatusSeeOther,
			nethttp.StatusTemporaryRedirect, nethttp.StatusPermanentRedirect:
			resp.Body.Close()
			to, err := resp.Location()
			if err != nil {
				return nil, errors.New("is redirected to something that is no URL")
			}
			if err := checkRedirect(u, to, s.credentials); err != nil {
				return nil, err
			}
			u = to
			continue
		}
		if err := checkResponse(resp); err != nil {
			resp.Body.Close()
			return nil, err
		}
		return resp, nil
	}
	return nil, fmt.Errorf("is redirected more than %d times", maxRedirects)
}

// checkRedirect lets no credentials out to another server.
func checkRedirect(from, to *url.URL, credentials bool) error {
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || to.User != nil:
		return errors.New("is redirected to something other than an http or https URL without a user")
	case from.Scheme == "https" && to.Scheme == "http":
		return errors.New("is redirected from https to http")
	case credentials && (!strings.EqualFold(from.Host, to.Host) || from.Scheme != to.Scheme):
		return fmt.Errorf("is redirected to %.100q, and credentials are not sent elsewhere: configure the final url", to.Scheme+"://"+to.Host)
	}
	return nil
}

// send sends one request.
func (s *Source) send(ctx context.Context, u *url.URL, header nethttp.Header) (*nethttp.Response, error) {
	req, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("the url is not valid")
	}
	for name, values := range s.header {
		req.Header[name] = values
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return resp, err
}

func checkResponse(resp *nethttp.Response) error {
	switch resp.StatusCode {
	case nethttp.StatusNotModified:
		return nil
	case nethttp.StatusOK:
		// net/http has removed gzip, which it asked for.
		if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
			return fmt.Errorf("the answer has the encoding %.40q; only gzip is understood", encoding)
		}
		return nil
	}
	err := &statusError{code: resp.StatusCode}
	if err.code == nethttp.StatusTooManyRequests || err.code == nethttp.StatusServiceUnavailable {
		err.retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"))
	}
	return err
}
