package dataplane

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio"
	"penstock/node/nodetest"
)

// TestConnectTimesOfRecreatedService: a connection that outlives its service
// keeps the flow. When the service is back, that flow must count new connections.
func TestConnectTimesOfRecreatedService(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := start(t, nodetest.OneService(b)+`
---
kind: Listener
name: other
spec: {address: "127.0.0.1:0", service: apps}
`)
	nodetest.Dial(t, n.at(t, "edge")) // stays, and so does the flow from edge
	gone, _ := nodetest.Dial(t, n.at(t, "other"))
	gone.Close()
	series := `penstock_connect_duration_seconds_count{service="apps"}`
	testkit.WaitFor(t, "both to be counted", func() bool { return n.metric(t, series) == "2" })
	for _, c := range [][2]string{{"listener", "edge"}, {"listener", "other"}, {"service", "apps"}} {
		n.mustDelete(t, c[0], c[1])
	}
	testkit.WaitFor(t, "the flow from other to be forgotten", func() bool {
		n.Sweep(time.Now().Add(time.Minute))
		return !slices.ContainsFunc(n.Flows(), func(f *Flow) bool { return f.Listener() == "other" })
	})
	n.mustApply(t, nodetest.OneService(b))
	before := n.metric(t, series)
	nodetest.Dial(t, n.at(t, "edge"))
	testkit.WaitFor(t, "a connection to be counted", func() bool { v := n.metric(t, series); return v != "" && v != before })
}

// TestEveryReasonIsCounted: every reason of netio, routing and the sessions of Kafka and
// MySQL has a counter.
func TestEveryReasonIsCounted(t *testing.T) {
	found := 0
	for _, file := range []string{"../../netio/reason.go", "../../routing/routing.go", "../../kafka/session/reasons.go", "../../mysql/session/reasons.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if !isReason(spec.Type) {
				return true
			}
			for _, v := range spec.Values {
				text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				if _, counted := reasonIndex[netio.Reason(text)]; text != "" && !counted {
					t.Errorf("%s: reason %q has no counter", file, text)
				}
				found++
			}
			return true
		})
	}
	if found < len(reasons) {
		t.Errorf("found %d reasons in the code, counters for %d", found, len(reasons))
	}
}

// isReason reports whether a type is Reason, of its own package or another.
func isReason(t ast.Expr) bool {
	if sel, ok := t.(*ast.SelectorExpr); ok {
		t = sel.Sel
	}
	id, ok := t.(*ast.Ident)
	return ok && id.Name == "Reason"
}
