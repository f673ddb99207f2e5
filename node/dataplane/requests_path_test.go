package dataplane

import (
	"fmt"
	"strings"
	"testing"

	"penstock/node/nodetest"
)

// The endpoint gets the path that was routed, escapes included: unescaped
// characters from a client or a route do not change escapes elsewhere in the path.
func TestEscapesOfPathsReachTheEndpoint(t *testing.T) {
	end := newRawServer(t)
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", end.addr)+nodetest.WebRoute(
		nodetest.Rule("/old", `filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: "/a|b"}}}]`),
		nodetest.Rule("/full", `filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: "/x|%2f"}}}]`),
		nodetest.Rule("/c%7Cd", `filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /e}}}]`),
	))
	web := n.at(t, "web")
	for path, want := range map[string]string{
		"/old/x%2Fy":    "/a%7Cb/x%2Fy",
		"/old/x|%2fy":   "/a%7Cb/x%7C%2Fy",
		"/full/x":       "/x%7C%2F",
		"/c|d/x%2Fy":    "/e/x%2Fy",
		"/plain|/x%2Fy": "/plain%7C/x%2Fy",
		"/plain/x%2fy":  "/plain/x%2fy",
		"/a%20b":        "/a%20b",
		"/a\"%20b":      "/a%22%20b",
	} {
		text, _ := send(t, web, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path), 1, false)
		if !strings.HasPrefix(text, "HTTP/1.1 200") {
			t.Errorf("%s: %q", path, text)
			continue
		}
		if got := <-end.got; got != fmt.Sprintf("GET %s host x body %q", want, "") {
			t.Errorf("%s: the endpoint got %s, want %s", path, got, want)
		}
	}
	for _, path := range []string{"/old/..%2F..%2Fetc", "/x|/..%2F..%2Fetc", "/old/..;/etc"} {
		if text, _ := send(t, web, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path), 1, false); !strings.HasPrefix(text, "HTTP/1.1 400") {
			t.Errorf("%s: %q", path, text)
		}
	}
}
