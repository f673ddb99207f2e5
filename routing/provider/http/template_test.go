package http

import (
	"strings"
	"testing"

	"penstock/routing/provider"
)

func TestURLs(t *testing.T) {
	for _, test := range []struct{ url, service, port, want string }{
		{"http://h", "web", "", "http://h/"},
		{"http://h:8080/a?b=c", "web", "", "http://h:8080/a?b=c"},
		{"https://[::1]:1/{service}", "web", "", "https://[::1]:1/web"},
		{"http://h/{service}/{port}", "web", "http", "http://h/web/http"},
		{"http://h/x-{service}.json", "shop/web ü", "", "http://h/x-shop%2Fweb%20%C3%BC.json"},
		{"http://h?s={service}&p={port}", "a&b=c d/", "1", "http://h/?s=a%26b%3Dc+d%2F&p=1"},
		{"http://h/{service}", "{port}", "", "http://h/%7Bport%7D"},
		{"http://h/{service}", "?x#y", "", "http://h/%3Fx%23y"},
		{"http://h/{service}", "..", "", `! service ".." of the query cannot be part of a url`},
		{"http://h/{service}", "", "", `! service "" of the query cannot be part of a url`},
		{"http://h/{port}", "web", "", `! port "" of the query cannot be part of a url`},
		{"http://h/{service}", "web", "http", `! the query has port "http", and the url has no {port}: add it or remove the port`},
	} {
		parsed, err := parseTemplate(test.url)
		if err != nil {
			t.Errorf("%s: %v", test.url, err)
			continue
		}
		got, err := parsed.expand(provider.Query{Service: test.service, Port: test.port})
		if err != nil {
			got = "! " + err.Error()
		}
		if got != test.want {
			t.Errorf("%s with %q and %q\ngot  %s\nwant %s", test.url, test.service, test.port, got, test.want)
		}
	}
}

func TestURLsThatAreRefused(t *testing.T) {
	for url, want := range map[string]string{
		"":                                      "must begin with http:// or https:// and a host",
		"/list":                                 "must begin with http:// or https:// and a host",
		"ftp://h/":                              "must begin with http:// or https:// and a host",
		"http:///x":                             "must begin with http:// or https:// and a host",
		"http://:80/":                           "must begin with http:// or https:// and a host",
		"http://h:x/":                           "must be http:// or https:// with a host, perhaps a port, and a path",
		"http://h/%zz":                          "must be http:// or https:// with a host, perhaps a port, and a path",
		"http://me:hunter2@h/":                  "must not contain a user or password; use token or headers",
		"http://hunter2@h/":                     "must not contain a user or password; use token or headers",
		"http://me:hunter2/x@h/":                "must be http:// or https:// with a host, perhaps a port, and a path",
		"http://h/#x":                           "must not have a fragment (#...)",
		"http://{service}/":                     "only {service} and {port} are replaced, in its path and query string",
		"http://h:{port}/":                      "only {service} and {port} are replaced, in its path and query string",
		"http://h/{name}":                       "only {service} and {port} are replaced, in its path and query string",
		"http://h/{ser{port}vice}":              "only {service} and {port} are replaced, in its path and query string",
		"http://h/" + strings.Repeat("a", 5000): "has 5009 bytes; the maximum is 4096",
	} {
		_, err := parseTemplate(url)
		if err == nil || err.Error() != "url: "+want {
			t.Errorf("%.60s\ngot  %v\nwant url: %s", url, err, want)
		}
	}
}
