package integration

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// rules are the requirements for a proxy of TCP and TLS. Tests name the one
// that they cover by its number: "rule", a blank, and the number.
var rules = [...]string{
	1:  "a ClientHello is put together over segments and records, cut anywhere; it is bounded in size and time",
	2:  "a server name that cannot be decided never falls through to a default",
	3:  "one matcher serves routing and certificates; names that are no names are refused",
	4:  "exact names first, then the wildcard with most labels; never the apex",
	5:  "unknown values are ignored, ALPN is what is offered, a second hello is understood, with ECH the name is the outer one",
	6:  "sniffing is a property of the listener: servers may speak first elsewhere",
	7:  "an end is passed on behind all bytes and closes one direction; a reset, or TLS cut off, never becomes an end",
	8:  "two watermarks for each direction: a slow reader costs a fixed number of bytes",
	9:  "TCP_NODELAY, keepalive, idle timeout and maximum age on both sides",
	10: "accepting is bounded, rests for want of descriptors, and is limited per listener, source, second and memory",
	11: "a listening socket is given up without losing those in its queue",
	12: "PROXY headers come from trusted sources only, in both versions, bounded, in pieces, and are sent in both",
	13: "the local address in a header is the true one, also behind a wildcard",
	14: "the unit of a split is the connection; a weight left out is 1, and 0 gets nothing",
	15: "least connections counts those being established",
	16: "active checks rise and fall; failures in use eject for a growing time, up to a share",
	17: "connecting alone is retried, elsewhere and within a budget; nothing after the first byte",
	18: "slow start, draining endpoints, zones with spill-over, consistent hashing",
	19: "a drain closes over a window, at quiet moments, never all at once",
	20: "connections are logged when they are opened and while they last, and end with one reason of a fixed list",
}

func TestEveryRuleHasATest(t *testing.T) {
	number := regexp.MustCompile(`\brule (\d+)\b`)
	tests := map[int]int{}
	forEachGoFile(t, func(path string, file *ast.File, _ *token.FileSet) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, group := range file.Comments {
			for _, m := range number.FindAllStringSubmatch(group.Text(), -1) {
				n, err := strconv.Atoi(m[1])
				if err != nil || n < 1 || n >= len(rules) {
					t.Errorf("%s: there is no rule %s", path, m[1])
				}
				tests[n]++
			}
		}
	})
	for n := 1; n < len(rules); n++ {
		if tests[n] == 0 {
			t.Errorf("no test holds rule %d: %s", n, rules[n])
		}
	}
}
