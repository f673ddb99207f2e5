package dataplane

import (
	"fmt"
	"strings"
	"testing"

	"penstock/node/nodetest"
)

// No way to write a request gets it past a deny of its path or method.
func TestRequestsWrittenInOtherWaysAreDenied(t *testing.T) {
	end := newRawServer(t)
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", end.addr)+nodetest.WebRoute(nodetest.Rule("/", ""))+`---
kind: TrafficPermission
name: no-admin
spec: {to: [{services: [shop], http: [{paths: [/admin, /admin/*]}, {methods: [DELETE]}]}], action: deny}
`)
	web := n.at(t, "web")
	for _, line := range []string{
		"GET /admin", "GET /admin/", "GET /admin/x", "GET //admin", "GET /admin//x", "GET /%61dmin", "GET /admin%2Fx", "GET /admin%2fx",
		"GET /%2Fadmin", "GET /admin;a=b", "GET /admin;a/x", "GET /admin%3Ba", "GET /admin%5Cx", `GET /admin\x`, "GET /admin?x=1",
		"GET http://other.example/admin", "GET http://other.example//admin/x", "HEAD /admin",
		"DELETE /", "delete /", "Delete http://other.example/",
	} {
		text, _ := send(t, web, fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\n\r\n", line), 1, false)
		if !strings.HasPrefix(text, "HTTP/1.1 403") {
			t.Errorf("%s: %.100q, want 403", line, text)
		}
	}
	for _, line := range []string{
		"GET /x/../admin", "GET /%2e/admin", "GET /x/..%2Fadmin", "GET /x/..;/admin", "GET admin", "GET /%00admin", "OPTIONS *", "CONNECT x:80",
	} {
		text, _ := send(t, web, fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\n\r\n", line), 1, false)
		if !strings.HasPrefix(text, "HTTP/1.1 40") {
			t.Errorf("%s: %.100q, want 400, 403 or 405", line, text)
		}
	}
	select {
	case got := <-end.got:
		t.Errorf("the endpoint got %s", got)
	default:
	}
	if text, _ := send(t, web, "GET /administer HTTP/1.1\r\nHost: x\r\n\r\n", 1, false); !strings.HasPrefix(text, "HTTP/1.1 200") {
		t.Errorf("what is not denied: %.100q", text)
	}
}
