package integration

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// docs/reasons.md lists exactly the reasons for which connections are closed.
func TestDocsReasons(t *testing.T) {
	inCode := map[string]bool{}
	forEachGoFile(t, func(path string, file *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "integration/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && isReason(spec.Type) {
				for _, v := range spec.Values {
					if lit, ok := v.(*ast.BasicLit); ok {
						if name, err := strconv.Unquote(lit.Value); err == nil && name != "" {
							inCode[name] = true
						}
					}
				}
			}
			return true
		})
	})
	checkSame(t, "reason", tableKeys(readDocument(t, "docs/reasons.md")), inCode)
}

// isReason reports whether a type is named Reason, in any package.
func isReason(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name == "Reason"
	case *ast.SelectorExpr:
		return x.Sel.Name == "Reason"
	}
	return false
}
