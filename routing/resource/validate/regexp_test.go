package validate

import (
	"regexp/syntax"
	"testing"
)

// The count before a regular expression is built is not less than its states,
// and close enough to refuse no harmless expression.
func TestRegularExpressionSizeIsCheckedBeforeBuilding(t *testing.T) {
	for _, text := range []string{
		"/", "/a", "/v[0-9]+/.*", "(a|b|c)*", "[a-z]{1,9}", "(?i)hello{3,7}", `\pL+`, `(\w+\.)+com`,
		"(a{10}){10}", "(?:a?){50}", ".*Firefox.*",
	} {
		re, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		counted := states(re)
		if counted > maxRegexpStates {
			t.Errorf("%s is refused: %d states", text, counted)
		}
		if len(prog.Inst) > 3*counted+4 {
			t.Errorf("%s becomes %d instructions, and counts as %d", text, len(prog.Inst), counted)
		}
	}
}
