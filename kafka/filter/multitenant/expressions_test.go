package multitenant

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// prefixes of tenants: with a dot, and with various first and last characters.
var prefixes = []string{"z4de-", "a", "x.y.", "_", "A-b_"}

// oursOnly checks the property of every expression sent to a broker: between
// the fixed parts there is only syntax that cannot reach beyond them.
func oursOnly(t *testing.T, ten *tenant, ours string) {
	t.Helper()
	inside := strings.TrimSuffix(strings.TrimPrefix(ours, ten.expressionPrefix()), expressionSuffix)
	if ours != ten.expressionPrefix()+inside+expressionSuffix || strings.HasPrefix(inside, "?") {
		t.Fatalf("%q lacks the common prefix or suffix", ours)
	}
	depth := 0
	for i := 0; i < len(inside); i++ {
		switch c := inside[i]; {
		case c == '\\' && strings.HasPrefix(inside[i:], `\.`):
			i++
		case c == '(' && strings.HasPrefix(inside[i:], "(?:"):
			depth++
			i += 2
		case c == ')' && depth > 0:
			depth--
		case c == '[':
			n := strings.IndexByte(inside[i:], ']')
			if n < 3 || strings.Trim(inside[i+1:i+n], legal) != "" {
				t.Fatalf("%q has an unexpected class", ours)
			}
			i += n
		case c == '{':
			n := strings.IndexByte(inside[i:], '}')
			if n < 2 || strings.Trim(inside[i+1:i+n], "0123456789,") != "" {
				t.Fatalf("%q has an unexpected count", ours)
			}
			i += n
		case strings.IndexByte(letters+"_-.|*+?/", c) >= 0:
		default:
			t.Fatalf("%q contains %q", ours, c)
		}
	}
	if depth != 0 {
		t.Fatalf("%q leaves %d groups open", ours, depth)
	}
}

// sameNames checks an expression against names: the translated expression
// matches exactly those of the tenant's names that the original matches.
func sameNames(t *testing.T, expression string, names []string, prefixes ...string) {
	t.Helper()
	whole, err := regexp.Compile(`^(?:` + expression + `)$`)
	if err != nil {
		return // may not be valid inside of "(?:": other tests cover that
	}
	for _, prefix := range prefixes {
		ten := &tenant{prefix: prefix}
		ours, err := ten.rewriteExpression(expression)
		if err != nil {
			continue
		}
		oursOnly(t, ten, ours)
		if back, ok := ten.originalExpression(ours); !ok || back != expression {
			t.Fatalf("%q comes back as %q, %v", expression, back, ok)
		}
		// Also as an unanchored search.
		got := regexp.MustCompile(ours)
		for _, name := range names {
			if got.MatchString(prefix+name) != whole.MatchString(name) {
				t.Fatalf("%q: as %q it matches %q: %v", expression, ours, prefix+name, got.MatchString(prefix+name))
			}
			for _, foreign := range []string{name, "b" + prefix + name, strings.ToUpper(prefix) + name, "b-" + name} {
				if got.MatchString(foreign) && !strings.HasPrefix(foreign, prefix) {
					t.Fatalf("%q: as %q it matches another's %q", expression, ours, foreign)
				}
			}
		}
	}
}

// Rule 13: expressions are translated for the broker so that they match only
// the tenant's names, and the same ones.
func TestExpressionsMatchOnlyTheTenantsNames(t *testing.T) {
	names := []string{"", "a", "b", "ab", "abc", "orders", "orders-eu", "orders.eu", "ORDERS", "orders2", "payments", "-", ".",
		"_", "x-y_z", "z4de-orders", "aab", "k", "K"}
	for _, expression := range []string{
		"orders", "orders.*", ".*", ".+", "", "orders|payments", "a|", "^orders$", "^orders.*", "(orders|pay.*)", "^(?:a|b)$",
		"(^a|b$)", "^^a$$", `\Aa\z`,
		`orders\.eu`, `\Qorders.eu\E`, `\Qorders.eu`, `[a-z]+`, `[^a-z]+`, `[\-\.]`, `\w+`, `\W`, `\d`, `\D+`, `(?i)orders`,
		`(?i:OR)ders`, `(?i)k`, "a{2}b", "a{1,}b", "a{0,2}b",
		"(?s).*", "(?m)^a$", "(?P<name>a)", "a*?b", "(?U)a*", "orders/eu", "orders/|a", "[/]", "é", `\x61`, `\p{L}+`, "(a*)*",
		"(?:)", "()", "a||b", "[[:alpha:]]+", "(^)?a", "(ab)?", "(a?){3}",
		"a^", "a^b", "$a", "a*^b", "a$b*c", "(^a)*", "(?:a$)+b", ".*(?:^orders$|a$).*", ".*^a", "b$.*", "^*a", "(^|a)*b",
		"(^a?|b)+", "($)*a", "^$", "$^", "(a|$)(^|b)", "(^a){0,1}b",
		".*-.*", "[-.]", "[-a]", "[.-0]", "[_a-c-]+",
	} {
		if _, err := (&tenant{prefix: "z4de-"}).rewriteExpression(expression); err != nil {
			t.Errorf("%q is refused: %v", expression, err)
		}
		sameNames(t, expression, names, prefixes...)
	}
}

// An invalid expression is translated to an invalid one with the same error.
func TestBrokersRefuseTheInvalidExpressions(t *testing.T) {
	for code, expression := range invalidExpressions {
		var parse *syntax.Error
		if _, err := syntax.Parse(expression, syntax.Perl); !errors.As(err, &parse) || parse.Code != code {
			t.Errorf("%q: %v, want %s", expression, err, code)
		}
	}
}

// Simple expressions stay readable.
func TestExpressionsStayReadable(t *testing.T) {
	ten := newTenant(t, "z4de")
	for expression, want := range map[string]string{
		"orders":           `^z4de-(?:orders)$`,
		`orders\..*`:       `^z4de-(?:orders\..*)$`,
		"orders|payments":  `^z4de-(?:orders|payments)$`,
		"[a-z]+-[0-9]{2,}": `^z4de-(?:[a-z]+-[0-9]{2,})$`,
		".*":               `^z4de-(?:.*)$`,
		"^orders$":         `^z4de-(?:orders|/Xm9yZGVycyQ)$`,
	} {
		if ours, err := ten.rewriteExpression(expression); err != nil || ours != want {
			t.Errorf("%q becomes %q, %v, want %q", expression, ours, err, want)
		}
	}
}

// Expressions are refused if they would change the meaning of the surrounding
// parts, or cannot be decided for a name with the prefix.
func TestUnsafeExpressionsAreRefused(t *testing.T) {
	ten := newTenant(t, "z4de")
	for _, expression := range []string{
		"a)|(b", ")", "(", "a)|(?:.*", ".*)|.*(", "[", "[a", `\`, `a\`, "*", "a**", "(?i", "(?#c)", "(?<=a)b", `\1`, "(?=a)",
		"a{2,1}", "a{1001}", `\E`, `[\E]`, `a\E)|(?:.*`, "\xff",
		"(^a){2}", "(a|b$){3,}", `\ba`, `a\b`, `\B`, strings.Repeat("(", 2000) +
			strings.Repeat(")", 2000), strings.Repeat("a", 40_000), strings.Repeat(`\pL`, 3000),
	} {
		if ours, err := ten.rewriteExpression(expression); err == nil {
			t.Errorf("%.40q goes to the broker as %.80q", expression, ours)
		}
	}
}

// Random expressions.
func TestRandomExpressionsMatchOnlyTheTenantsNames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "ab", "-", ".", `\.`, "/", "[ab]", "[^a]", `\w`, `\W`, "(?i:a)", "^", "^", "$", "$", `\z`, "x",
		"0", `\Qa.b\E`, ""}
	var expression func(depth int) string
	expression = func(depth int) string {
		if depth == 0 {
			return parts[rnd.IntN(len(parts))]
		}
		one := func() string { return expression(depth - 1 - rnd.IntN(depth)) }
		switch rnd.IntN(6) {
		case 0:
			return one() + "|" + one()
		case 1, 2:
			return one() + one()
		case 3:
			return "(" + one() + ")"
		case 4:
			return "(?:" + one() + ")" + []string{"*", "+", "?", "{2}", "{1,2}", "*?"}[rnd.IntN(6)]
		}
		return one()
	}
	names := []string{""}
	for range 3 {
		for _, name := range names {
			for _, c := range "ab-.x" {
				names = append(names, name+string(c))
			}
		}
		if len(names) > 200 {
			break
		}
	}
	let := 0
	for i := range 1500 {
		e := expression(1 + rnd.IntN(5))
		if _, err := (&tenant{prefix: "p-"}).rewriteExpression(e); err == nil {
			let++
		}
		sameNames(t, e, names[:60], prefixes[i%len(prefixes)])
	}
	if let < 800 {
		t.Errorf("only %d of 1500 expressions are accepted", let)
	}
}

// A small expression that would expand to a large one is refused before it is
// expanded.
func TestRewrittenExpressionsAreBounded(t *testing.T) {
	ten := newTenant(t, "z4de")
	for _, expression := range []string{
		strings.Repeat("(?:(^|a)*(b|$)*", 200) + strings.Repeat(")*", 200),
		strings.Repeat("(a*^b|", 300) + "c" + strings.Repeat(")*$", 300),
		strings.Repeat("a?^?", 5000),
	} {
		if ours, err := ten.rewriteExpression(expression); err == nil || len(ours) > 0 {
			t.Errorf("%.40q becomes %d bytes", expression, len(ours))
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, seed := range []string{"orders.*", "a)|(b", `\Qa`, "(?i)[k-z]{2,3}|^x$", `\pL*`, "[^/]", "(?U)a+?|", "a/b"} {
		f.Add(seed, "orders", "z4de-orders")
	}
	f.Fuzz(func(t *testing.T, expression, name, foreign string) {
		legalName := func(s string) string {
			return strings.Map(func(r rune) rune {
				if strings.ContainsRune(legal, r) {
					return r
				}
				return -1
			}, s[:min(len(s), 50)])
		}
		if parsed, err := syntax.Parse(expression, syntax.Perl); err != nil || len(expression) > 300 || strings.Contains(parsed.String(), `\Q`) {
			return
		}
		if strings.Contains(expression, `\Q`) { // may quote what sameNames appends
			expression = strings.ReplaceAll(expression, `\Q`, "")
		}
		sameNames(t, expression, []string{legalName(name), legalName(foreign)}, prefixes...)
	})
}

// The broker rejects the translation of a refused expression, and the client
// sees the error of its own. Its subscription is shown as it wrote it, and
// never another tenant's.
func TestMembersSeeTheirOwnExpressions(t *testing.T) {
	ten := newTenant(t, "z4de")
	c := ten.Open(filter.Info{})
	for expression, want := range map[string]string{"orders$": `^z4de-(?:orders|/b3JkZXJzJA)$`, "a)|(b": ")", `\ba`: "[", "": ""} {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.Group, req.SubscribedTopicRegex = 1, "g", &expression
		x := filter.NewExchange(req.Key(), 1, "", quiet{t})
		m := filter.NewMessage(filter.Request, req.Key(), 1, req.AppendTo(nil))
		if err := c.Request(&x, &m); err != nil {
			t.Fatal(err)
		}
		asked, err := m.DecodeRequest()
		if err != nil {
			t.Fatal(err)
		}
		if got := *asked.(*kmsg.ConsumerGroupHeartbeatRequest).SubscribedTopicRegex; got != want {
			t.Errorf("%q goes to the broker as %q, want %q", expression, got, want)
		}
		resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
		text := fmt.Sprintf("SubscribedTopicRegex `%s` is not a valid regular expression: missing closing ].", want)
		resp.Version, resp.ErrorCode, resp.ErrorMessage = 1, invalidRegularExpression, &text
		back := filter.NewMessage(filter.Response, resp.Key(), 1, resp.AppendTo(nil))
		if err := c.Response(&x, &back); err != nil {
			t.Fatal(err)
		}
		answered, err := back.DecodeResponse()
		if err != nil {
			t.Fatal(err)
		}
		said := *answered.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorMessage
		if expression != "" && !strings.HasPrefix(said, "SubscribedTopicRegex `"+expression+"` is not a valid") ||
			strings.Contains(said, "z4de") {
			t.Errorf("for %q the client gets the message %q", expression, said)
		}
	}
	for ours, want := range map[string]string{
		`^z4de-(?:orders|/b3JkZXJzJA)$`: "orders$", `^z4de-(?:.*)$`: ".*", "": "",
		`^other-(?:.*)$`: "hidden", "other-.*": "hidden", `^z4de-(?:a/!)$`: "hidden", `^z4de-(?:a`: "hidden",
	} {
		got := "hidden"
		if s := (&call{conn: c.(*conn)}).restoreSubscription(&ours); s != nil {
			got = *s
		}
		if got != want {
			t.Errorf("%q is shown as %q, want %q", ours, got, want)
		}
	}
}
