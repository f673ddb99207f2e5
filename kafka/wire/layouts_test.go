package wire

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var update = flag.Bool("update", false, "write layouts.go anew, from the kmsg of go.mod")

const layoutsHead = `package wire

// Written by the test TestLayoutsAreThoseOfKmsg (-update); do not edit.

// layouts are how requests and responses are laid out, by key, in words:
//
//	4         so many bytes       s  a string     b  bytes
//	[ ... ]   an array            ?( ... )  a structure that may be absent
//	3-12{ ... }  in versions 3 to 12
//	T         tags, where flexible, with <0 ... > for those that are known
var layouts = [MaxKey + 1][2]string{
`

// Layouts are read out of kmsg's own decoder, so they know what it knows.
func TestLayoutsAreThoseOfKmsg(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/twmb/franz-go/pkg/kmsg").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "generated.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	decoders := map[string]*ast.BlockStmt{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "readFrom" {
			decoders[f.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name] = f.Body
		}
	}
	var out bytes.Buffer
	out.WriteString(layoutsHead)
	for key := range int16(MaxKey + 1) {
		fmt.Fprintf(&out, "%d: { // %s\n", key, Name(key))
		for _, m := range []any{kmsg.RequestForKey(key), kmsg.ResponseForKey(key)} {
			var l layoutWriter
			l.list(decoders[reflect.TypeOf(m).Elem().Name()].List)
			fmt.Fprintf(&out, "%q,\n", strings.Join(l.words, " "))
		}
		out.WriteString("},\n")
	}
	out.WriteString("}\n")
	want, err := format.Source(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("layouts.go", want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile("layouts.go"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("layouts.go is not that of this kmsg (-update writes it anew): %v", err)
	}
}

// layoutWriter turns the statements of a decoder into words.
type layoutWriter struct{ words []string }

func (l *layoutWriter) add(words ...string) { l.words = append(l.words, words...) }

func (l *layoutWriter) list(stmts []ast.Stmt) {
	for _, s := range stmts {
		l.stmt(s)
	}
}

func (l *layoutWriter) stmt(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.BlockStmt:
		l.list(s.List)
	case *ast.AssignStmt:
		l.read(s.Rhs[0])
	case *ast.IfStmt:
		l.branch(s)
	case *ast.ForStmt:
		if b, ok := s.Cond.(*ast.BinaryExpr); ok && b.Op == token.GTR {
			l.tags(s)
			return
		}
		l.add("[")
		l.list(s.Body.List)
		l.add("]")
	}
}

// read finds the call of the reader in an expression.
func (l *layoutWriter) read(e ast.Expr) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return
	}
	if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "internalReadTags" {
		l.add("T")
		return
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		for _, arg := range call.Args {
			l.read(arg)
		}
		return
	}
	name := method.Sel.Name
	for _, word := range []string{"Unsafe", "Compact", "Nullable"} {
		name = strings.TrimPrefix(name, word)
	}
	sizes := map[string]int{"Bool": 1, "Int8": 1, "Int16": 2, "Uint16": 2, "Int32": 4, "Int64": 8, "Float64": 8, "Uuid": 16}
	switch {
	case name == "String":
		l.add("s")
	case name == "Bytes":
		l.add("b")
	case name == "ArrayLen" || name == "Default":
	case sizes[name] > 0:
		n := sizes[name]
		if last := len(l.words) - 1; last >= 0 {
			if before, err := strconv.Atoi(l.words[last]); err == nil {
				l.words[last] = strconv.Itoa(before + n)
				return
			}
		}
		l.add(strconv.Itoa(n))
	default:
		panic("what reads " + method.Sel.Name + "?")
	}
}

func (l *layoutWriter) branch(s *ast.IfStmt) {
	if s.Init != nil {
		if a := s.Init.(*ast.AssignStmt); a.Lhs[0].(*ast.Ident).Name == "present" {
			l.add("?(")
			l.list(s.Body.List)
			l.add(")")
		}
		return
	}
	if name, ok := s.Cond.(*ast.Ident); ok && (name.Name == "isFlexible" || name.Name == "unsafe") {
		l.list(s.Body.List) // the other branch reads the same otherwise
		return
	}
	lo, hi, ok := versionsOf(s.Cond)
	if !ok {
		return
	}
	l.guarded(lo, hi, s.Body)
	if s.Else == nil {
		return
	}
	if lo != 0 {
		panic("an else of what does not begin at 0")
	}
	l.guarded(hi+1, maxVersion, s.Else)
}

func (l *layoutWriter) guarded(lo, hi int, body ast.Stmt) {
	inner := layoutWriter{}
	inner.stmt(body)
	if len(inner.words) == 0 {
		return
	}
	word := strconv.Itoa(lo) + "-"
	if hi != maxVersion {
		word += strconv.Itoa(hi)
	}
	l.add(word + "{")
	l.add(inner.words...)
	l.add("}")
}

// versionsOf reads a condition on the version alone.
func versionsOf(e ast.Expr) (lo, hi int, ok bool) {
	b, is := e.(*ast.BinaryExpr)
	if !is {
		return 0, 0, false
	}
	if b.Op == token.LAND {
		lo1, hi1, ok1 := versionsOf(b.X)
		lo2, hi2, ok2 := versionsOf(b.Y)
		return max(lo1, lo2), min(hi1, hi2), ok1 && ok2
	}
	name, is := b.X.(*ast.Ident)
	if !is || name.Name != "version" {
		return 0, 0, false
	}
	n, err := strconv.Atoi(b.Y.(*ast.BasicLit).Value)
	if err != nil {
		panic(err)
	}
	switch b.Op {
	case token.GEQ:
		return n, maxVersion, true
	case token.LEQ:
		return 0, n, true
	case token.LSS:
		return 0, n - 1, true
	}
	panic("what compares by " + b.Op.String() + "?")
}

// tags writes the known tags of a loop over them.
func (l *layoutWriter) tags(s *ast.ForStmt) {
	l.add("T")
	for _, c := range s.Body.List[0].(*ast.SwitchStmt).Body.List {
		if clause := c.(*ast.CaseClause); clause.List != nil {
			l.add("<" + clause.List[0].(*ast.BasicLit).Value)
			l.list(clause.Body)
			l.add(">")
		}
	}
}

func everyMessage(do func(d Direction, key, version int16)) {
	for _, d := range []Direction{Request, Response} {
		for key := range int16(MaxKey + 1) {
			for v := int16(0); v <= table[key].max; v++ {
				do(d, key, v)
			}
		}
	}
}

// Every message that kmsg writes is accepted, with everything set; cut off
// anywhere, it is not.
func TestEveryMessageIsChecked(t *testing.T) {
	everyMessage(func(d Direction, key, version int16) {
		for seed := range uint64(25) {
			rnd := rand.New(rand.NewPCG(seed, uint64(version)))
			_, body := randomMessage(t, rnd, d, key, version)
			if err := Check(d, key, version, body); err != nil {
				t.Fatalf("%v of what kmsg wrote: %x", err, body)
			}
			for range 5 {
				if n := rnd.IntN(len(body) + 1); n < len(body) && Check(d, key, version, body[:n]) == nil {
					t.Fatalf("%s v%d: accepted with %d of %d bytes", Name(key), version, n, len(body))
				}
			}
		}
	})
}

// What kmsg would go round for minutes for, or allocate gigabytes for, is refused at once.
func TestBombsAreRefused(t *testing.T) {
	tags := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	everyMessage(func(d Direction, key, version int16) {
		if !Flexible(key, version) {
			return
		}
		body := newMessage(t, d, key, version).AppendTo(nil)
		if body[len(body)-1] != 0 {
			t.Fatalf("%s v%d does not end with its tags", Name(key), version)
		}
		started := time.Now()
		if err := Check(d, key, version, append(body[:len(body)-1], tags...)); err == nil || time.Since(started) > time.Second {
			t.Errorf("%s v%d: %v after %v", Name(key), version, err, time.Since(started))
		}
	})
	// A FindCoordinator request with as many keys as there are bytes, each empty.
	keys := append([]byte{0}, AppendUvarint(nil, MaxElements+10)...)
	keys = append(keys, bytes.Repeat([]byte{1}, MaxElements+9)...)
	if err := Check(Request, keyFindCoordinator, 4, append(keys, 0)); err == nil {
		t.Error("more elements than allowed")
	}
}

func BenchmarkCheckMetadata(b *testing.B) {
	body := bigMetadata()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Check(Response, keyMetadata, 12, body); err != nil {
			b.Fatal(err)
		}
	}
}

// What is accepted kmsg reads at once. It may still refuse it: Check does not
// know which strings must not be null.
func FuzzCheck(f *testing.F) {
	everyMessage(func(d Direction, key, version int16) {
		if version == table[key].max {
			_, body := randomMessage(f, rand.New(rand.NewPCG(uint64(key), 9)), d, key, version)
			f.Add(uint8(d), key, version, body[:min(len(body), 3000)])
		}
	})
	f.Fuzz(func(t *testing.T, d uint8, key, version int16, body []byte) {
		if Check(Direction(d), key, version, body) != nil {
			return
		}
		started := time.Now()
		err := newMessage(t, Direction(d), key, version).ReadFrom(body)
		if took := time.Since(started); took > time.Second {
			t.Fatalf("%s v%d: kmsg took %v for %x, and said %v", Name(key), version, took, body, err)
		}
	})
}
