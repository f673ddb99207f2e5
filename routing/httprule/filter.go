package httprule

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"penstock/routing/resource"
	"penstock/routing/urlpath"
)

// normalFilters returns a copy of filters with paths in normal form, so that
// the paths they produce are normal, too.
func normalFilters(filters []resource.HTTPFilter) []resource.HTTPFilter {
	out := slices.Clone(filters)
	for i := range out {
		if f := out[i].RequestRedirect; f != nil && f.Path != nil {
			redirect := *f
			redirect.Path = normalRewrite(f.Path)
			out[i].RequestRedirect = &redirect
		}
		if f := out[i].URLRewrite; f != nil && f.Path != nil {
			out[i].URLRewrite = &resource.URLRewrite{Hostname: f.Hostname, Path: normalRewrite(f.Path)}
		}
	}
	return out
}

// normalRewrite converts paths to normal form. It keeps a path without one:
// such a path was stored before validation refused it, and must keep its
// effect.
func normalRewrite(p *resource.PathRewrite) *resource.PathRewrite {
	out := *p
	for _, path := range []**string{&out.ReplaceFullPath, &out.ReplacePrefixMatch} {
		if *path == nil {
			continue
		}
		if normal, ok := urlpath.Normal(**path); ok {
			*path = &normal
		}
	}
	return &out
}

// Headers is the interface of headers that filters change; http.Header
// implements it.
type Headers interface {
	Set(name, value string)
	Add(name, value string)
	Del(name string)
}

// Origin is the origin of a client's request.
type Origin struct {
	Scheme string // http or https
	Host   string // with its port, as the client wrote it
}

// Redirect returns the status and the Location of a rule that redirects.
func (r *Rules) Redirect(m Match, from Origin, path, query string) (status int, location string, ok bool) {
	f := r.filter(m, "RequestRedirect")
	if f == nil {
		return 0, "", false
	}
	to := f.RequestRedirect
	scheme := from.Scheme
	if to.Scheme != "" {
		scheme = to.Scheme
	}
	host, port := splitPort(from.Host)
	if to.Hostname != "" {
		host = to.Hostname
	}
	switch {
	case to.Port != nil:
		port = strconv.Itoa(*to.Port)
	case to.Scheme != "":
		port = ""
	}
	if scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		port = ""
	}
	if port != "" {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	location = scheme + "://" + host + rewritten(to.Path, path, m.Prefix)
	if query != "" {
		location += "?" + query
	}
	return *to.StatusCode, location, true
}

// splitPort splits the port off a host; "" if there is none. An IPv6 address
// keeps its brackets.
func splitPort(hostport string) (host, port string) {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 || strings.HasSuffix(hostport, "]") {
		return hostport, ""
	}
	return hostport[:i], hostport[i+1:]
}

// Rewrite returns the host and the path for the backend, the path in normal
// form; "" for each that does not change.
func (r *Rules) Rewrite(m Match, path string) (host, newPath string) {
	f := r.filter(m, "URLRewrite")
	if f == nil {
		return "", ""
	}
	if f.URLRewrite.Path != nil {
		newPath = rewritten(f.URLRewrite.Path, path, m.Prefix)
	}
	return f.URLRewrite.Hostname, newPath
}

// RequestHeaders changes the headers for the backend.
func (r *Rules) RequestHeaders(m Match, h Headers) {
	if f := r.filter(m, "RequestHeaderModifier"); f != nil {
		change(f.RequestHeaderModifier, h)
	}
}

// ResponseHeaders changes the headers for the client.
func (r *Rules) ResponseHeaders(m Match, h Headers) {
	if f := r.filter(m, "ResponseHeaderModifier"); f != nil {
		change(f.ResponseHeaderModifier, h)
	}
}

func change(c *resource.HeaderModifier, h Headers) {
	for _, v := range c.Set {
		h.Set(v.Name, v.Value)
	}
	for _, v := range c.Add {
		h.Add(v.Name, v.Value)
	}
	for _, name := range c.Remove {
		h.Del(name)
	}
}

// rewritten returns the new path for a path that matched with that prefix. A
// new prefix replaces whole segments, so no slash is lost or doubled.
func rewritten(to *resource.PathRewrite, path, prefix string) string {
	switch {
	case to == nil:
		return path
	case to.ReplaceFullPath != nil:
		return *to.ReplaceFullPath
	}
	rest := urlpath.CutPrefix(path, prefix)
	start := strings.TrimSuffix(*to.ReplacePrefixMatch, "/")
	if prefix == "/" && rest == "/" { // the prefix was the whole path
		rest = ""
	}
	return cmp.Or(start+rest, "/")
}

func (r *Rules) filter(m Match, kind string) *resource.HTTPFilter {
	filters := r.filters[m.Rule]
	for i := range filters {
		if filters[i].Type == kind {
			return &filters[i]
		}
	}
	return nil
}
