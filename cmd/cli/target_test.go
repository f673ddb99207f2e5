package cli

import (
	"strings"
	"testing"
)

// Without a token the connection is in plain text, so it must stay on this
// machine.
func TestRemoteNodeNeedsToken(t *testing.T) {
	for addr, stays := range map[string]bool{
		"127.0.0.1:7947": true, "127.77.1.2:7947": true, "localhost:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, ":7947": true,
		"10.0.0.1:7947": false, "edge-1:7947": false, "[2001:db8::1]:1": false, "localhost.evil.example:1": false,
	} {
		if got := onThisMachine(addr); got != stays {
			t.Errorf("%s: %v", addr, got)
		}
	}
	t.Setenv("PENSTOCK_TOKEN", "")
	if _, err := (&target{addr: "192.0.2.1:7947", timeout: 1}).dial(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "needs a token") {
		t.Errorf("got %v", err)
	}
}
