package http

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"penstock/routing/provider"
)

// A template is a URL with {service} and {port}.
type template struct {
	origin, path, query string // query begins with "?" or is empty
	service, port       bool   // whether they occur
}

// parseTemplate does not repeat the URL in its errors, which may hold a secret.
func parseTemplate(raw string) (template, error) {
	u, err := url.Parse(strings.NewReplacer("{service}", "s", "{port}", "1").Replace(raw))
	switch {
	case err != nil:
		return template{}, errors.New("url: must be http:// or https:// with a host, perhaps a port, and a path")
	case u.User != nil:
		return template{}, errors.New("url: must not contain a user or password; use token or headers")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return template{}, errors.New("url: must begin with http:// or https:// and a host")
	case strings.Contains(raw, "#"):
		return template{}, errors.New("url: must not have a fragment (#...)")
	case len(raw) > 4096:
		return template{}, fmt.Errorf("url: has %d bytes; the maximum is 4096", len(raw))
	}
	var t template
	t.path = raw
	if i := strings.Index(raw, "?"); i >= 0 {
		t.path, t.query = raw[:i], raw[i:]
	}
	host := strings.Index(t.path, "://") + len("://")
	if i := strings.Index(t.path[host:], "/"); i >= 0 {
		t.origin, t.path = t.path[:host+i], t.path[host+i:]
	} else {
		t.origin, t.path = t.path, "/"
	}
	variable := t.path + t.query
	t.service, t.port = strings.Contains(variable, "{service}"), strings.Contains(variable, "{port}")
	rest := t.origin + strings.NewReplacer("{service}", "", "{port}", "").Replace(variable)
	if strings.ContainsAny(rest, "{}") {
		return template{}, errors.New("url: only {service} and {port} are replaced, in its path and query string")
	}
	return t, nil
}

// expand returns the URL of a query.
func (t *template) expand(q provider.Query) (string, error) {
	if q.Port != "" && !t.port {
		return "", fmt.Errorf("the query has port %q, and the url has no {port}: add it or remove the port", q.Port)
	}
	for _, v := range []struct {
		name, value string
		used        bool
	}{{"service", q.Service, t.service}, {"port", q.Port, t.port}} {
		if v.used && (v.value == "" || v.value == "." || v.value == "..") {
			return "", fmt.Errorf("%s %q of the query cannot be part of a url", v.name, v.value)
		}
	}
	fill := func(s string, escape func(string) string) string {
		return strings.NewReplacer("{service}", escape(q.Service), "{port}", escape(q.Port)).Replace(s)
	}
	return t.origin + fill(t.path, url.PathEscape) + fill(t.query, url.QueryEscape), nil
}
