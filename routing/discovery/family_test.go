package discovery

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestOneFamily: a name with addresses of both families uses one, since
// otherwise half of all connections would fail first if the other is
// unreachable.
func TestOneFamily(t *testing.T) {
	for name, test := range map[string]struct{ answer, unrouted, want string }{
		"IPv4 alone":          {answer: "10.0.0.1 10.0.0.2", want: "10.0.0.1 10.0.0.2"},
		"IPv6 alone":          {answer: "fd00::1 fd00::2", want: "fd00::1 fd00::2"},
		"localhost":           {answer: "::1 127.0.0.1", want: "127.0.0.1"},
		"both":                {answer: "fd00::1 10.0.0.1 fd00::2 10.0.0.2", want: "10.0.0.1 10.0.0.2"},
		"mapped":              {answer: "fd00::1 ::ffff:10.0.0.1", want: "::ffff:10.0.0.1"},
		"a node without IPv4": {answer: "fd00::1 10.0.0.1", unrouted: "10.", want: "fd00::1"},
		"a node without IPv6": {answer: "fd00::1 10.0.0.1", unrouted: "fd00", want: "10.0.0.1"},
		"no route at all":     {answer: "10.0.0.1 10.0.0.2", unrouted: "10.", want: "10.0.0.1 10.0.0.2"},
		"none":                {},
	} {
		t.Run(name, func(t *testing.T) {
			var answer []netip.Addr
			for s := range strings.FieldsSeq(test.answer) {
				answer = append(answer, netip.MustParseAddr(s))
			}
			got := oneFamily(answer, func(a netip.Addr) bool {
				return test.unrouted == "" || !strings.HasPrefix(a.String(), test.unrouted)
			})
			if text := strings.Trim(fmt.Sprint(got), "[]"); text != test.want {
				t.Errorf("%s gives %s, want %s", test.answer, text, test.want)
			}
		})
	}
}

func TestRouted(t *testing.T) {
	if !routed(netip.MustParseAddr("127.0.0.1")) {
		t.Error("there is no route to 127.0.0.1")
	}
	if routed(netip.MustParseAddr("fe80::1%nosuchinterface")) {
		t.Error("there is a route over an interface that does not exist")
	}
}
