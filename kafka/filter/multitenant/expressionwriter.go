package multitenant

import (
	"cmp"
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
)

// errBoundary means that an expression refers to positions that a prefix moves, in
// a way that is not rewritten.
var errBoundary = errors.New("word boundaries, and anchors inside repetitions, are not supported here")

// expressionWriter writes a parsed expression in the words above. Anchors go away:
// what is written for an expression depends on whether it stands where the name
// begins (start) and where it ends (end). What is written for elsewhere is true
// everywhere: "^" and "$" match nothing there.
type expressionWriter struct {
	strings.Builder
	known map[*syntax.Regexp]traits
}

// traits are what must be known of an expression to leave its anchors out.
type traits struct {
	hasBegin, hasEnd bool       // it has "^", "$"
	empty            [2][2]bool // it matches nothing at all: by start and end
}

// analyze finds them out for an expression and all that it consists of.
func (w *expressionWriter) analyze(e *syntax.Regexp) (t traits) {
	all, some := traits{empty: emptyAnywhere}, traits{}
	for _, sub := range e.Sub {
		one := w.analyze(sub)
		t.hasBegin, t.hasEnd = t.hasBegin || one.hasBegin, t.hasEnd || one.hasEnd
		for i := range 4 {
			all.empty[i/2][i%2] = all.empty[i/2][i%2] && one.empty[i/2][i%2]
			some.empty[i/2][i%2] = some.empty[i/2][i%2] || one.empty[i/2][i%2]
		}
	}
	switch e.Op {
	case syntax.OpBeginText, syntax.OpBeginLine: // there is one line
		t.hasBegin, t.empty[1] = true, emptyAnywhere[1]
	case syntax.OpEndText, syntax.OpEndLine:
		t.hasEnd, t.empty[0][1], t.empty[1][1] = true, true, true
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest, syntax.OpConcat, syntax.OpCapture, syntax.OpPlus, syntax.OpRepeat:
		if t.empty = all.empty; e.Op == syntax.OpStar || e.Op == syntax.OpQuest || e.Op == syntax.OpRepeat && e.Min == 0 {
			t.empty = emptyAnywhere
		}
	case syntax.OpAlternate:
		t.empty = some.empty
	}
	w.known[e] = t
	return t
}

// emptyAnywhere is the trait of what matches nothing at all wherever it stands.
var emptyAnywhere = [2][2]bool{{true, true}, {true, true}}

func (t *traits) isEmpty(start, end bool) bool {
	at := func(there bool) int {
		if there {
			return 1
		}
		return 0
	}
	return t.empty[at(start)][at(end)]
}

// write writes all of an expression.
func (w *expressionWriter) write(e *syntax.Regexp) error {
	w.known = map[*syntax.Regexp]traits{}
	w.analyze(e)
	return w.writeExpression(e, true, true)
}

// writeExpression writes what matches the same names.
func (w *expressionWriter) writeExpression(e *syntax.Regexp, start, end bool) error {
	if w.Len() > maxExpression {
		return &syntax.Error{Code: syntax.ErrLarge}
	}
	switch e.Op {
	case syntax.OpNoMatch:
		w.WriteString(neverMatches)
	case syntax.OpEmptyMatch:
		w.WriteString("(?:)")
	case syntax.OpLiteral:
		for _, r := range e.Rune {
			w.character(r, e.Flags&syntax.FoldCase != 0)
		}
	case syntax.OpCharClass:
		w.class(func(c rune) bool {
			for i := 0; i < len(e.Rune); i += 2 {
				if e.Rune[i] <= c && c <= e.Rune[i+1] {
					return true
				}
			}
			return false
		})
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		w.WriteByte('.')
	case syntax.OpBeginText, syntax.OpBeginLine:
		w.anchor(start)
	case syntax.OpEndText, syntax.OpEndLine:
		w.anchor(end)
	case syntax.OpCapture:
		return w.group(e.Sub[0], start, end)
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		return w.repeat(e, start, end)
	case syntax.OpConcat:
		return w.concat(e, start, end)
	case syntax.OpAlternate:
		for i, sub := range e.Sub {
			if i > 0 {
				w.WriteByte('|')
			}
			if err := w.writeExpression(sub, start, end); err != nil {
				return err
			}
		}
	default: // \b and \B
		return errBoundary
	}
	return nil
}

func (w *expressionWriter) anchor(there bool) {
	if !there {
		w.WriteString(neverMatches)
	}
}

func (w *expressionWriter) group(e *syntax.Regexp, start, end bool) error {
	w.WriteString("(?:")
	err := w.writeExpression(e, start, end)
	w.WriteByte(')')
	return err
}

// concat writes what follows one another. Any of it may be where the name begins
// that nothing but what is empty stands before, and so for the end; so there is an
// alternative for each pair of those that have anchors.
func (w *expressionWriter) concat(e *syntax.Regexp, start, end bool) error {
	list, whole := e.Sub, w.known[e]
	firsts, lasts := []int{0}, []int{len(list) - 1}
	for i := 1; i < len(list) && start; i++ {
		if before := w.known[list[i-1]]; !before.isEmpty(true, false) {
			break
		}
		if w.known[list[i]].hasBegin {
			firsts = append(firsts, i)
		}
	}
	for i := len(list) - 2; i >= 0 && end; i-- {
		if behind := w.known[list[i+1]]; !behind.isEmpty(false, true) {
			break
		}
		if w.known[list[i]].hasEnd {
			lasts = append(lasts, i)
		}
	}
	several := len(firsts) > 1 || len(lasts) > 1
	nothing := whole.isEmpty(start, end) && (whole.hasBegin || whole.hasEnd)
	if several || nothing {
		w.WriteString("(?:")
	}
	written := 0
	for _, first := range firsts {
		for _, last := range lasts {
			if first > last {
				continue
			}
			if written++; written > 1 {
				w.WriteByte('|')
			}
			for i := first; i <= last; i++ {
				put := w.writeExpression
				if list[i].Op == syntax.OpAlternate {
					put = w.group
				}
				if err := put(list[i], start && i == first, end && i == last); err != nil {
					return err
				}
			}
		}
	}
	if nothing && written > 0 {
		w.WriteByte('|')
	}
	if several || nothing {
		w.WriteByte(')')
	}
	return nil
}

func (w *expressionWriter) repeat(e *syntax.Regexp, start, end bool) error {
	sub := e.Sub[0]
	if t := w.known[sub]; t.hasBegin || t.hasEnd {
		return w.repeatAnchored(e, start, end)
	}
	put := w.group
	if single(sub) {
		put = w.writeExpression
	}
	if err := put(sub, start, end); err != nil {
		return err
	}
	switch e.Op {
	case syntax.OpStar:
		w.WriteByte('*')
	case syntax.OpPlus:
		w.WriteByte('+')
	case syntax.OpQuest:
		w.WriteByte('?')
	default:
		switch {
		case e.Max < 0:
			fmt.Fprintf(w, "{%d,}", e.Min)
		case e.Max == e.Min:
			fmt.Fprintf(w, "{%d}", e.Min)
		default:
			fmt.Fprintf(w, "{%d,%d}", e.Min, e.Max)
		}
	}
	return nil
}

// repeatAnchored writes what has anchors in it: of several times only the first
// is where the name begins, and the last where it ends.
func (w *expressionWriter) repeatAnchored(e *syntax.Regexp, start, end bool) error {
	sub, whole := e.Sub[0], w.known[e]
	once := e.Op == syntax.OpQuest || e.Op == syntax.OpRepeat && e.Max == 1
	if e.Op == syntax.OpRepeat && !once {
		return errBoundary
	}
	w.WriteString("(?:")
	err := w.writeExpression(sub, start, end)
	if !once {
		w.WriteByte('|')
		err = cmp.Or(err, w.group(sub, start, false), w.group(sub, false, false))
		w.WriteByte('*')
		err = cmp.Or(err, w.group(sub, false, end))
	}
	if whole.isEmpty(start, end) {
		w.WriteByte('|')
	}
	w.WriteByte(')')
	return err
}

// single tells of what is one character, or one class of them.
func single(e *syntax.Regexp) bool {
	switch e.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpCharClass:
		return true
	case syntax.OpLiteral:
		return len(e.Rune) == 1
	}
	return false
}

// character writes one, or what differs from it by case only.
func (w *expressionWriter) character(r rune, fold bool) {
	w.class(func(c rune) bool {
		if c == r {
			return true
		}
		if fold {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				if c == f {
					return true
				}
			}
		}
		return false
	})
}

// nameCharacters are all of legal, in the order of their codes.
const nameCharacters = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

// class writes a class of a name's characters.
func (w *expressionWriter) class(has func(rune) bool) {
	var runs [][2]byte
	n := 0
	for _, c := range []byte(nameCharacters) {
		if !has(rune(c)) {
			continue
		}
		n++
		if last := len(runs) - 1; last >= 0 && runs[last][1] == c-1 {
			runs[last][1] = c
			continue
		}
		runs = append(runs, [2]byte{c, c})
	}
	switch {
	case n == 0:
		w.WriteString(neverMatches)
	case n == len(nameCharacters):
		w.WriteByte('.')
	case n == 1:
		if runs[0][0] == '.' {
			w.WriteByte('\\')
		}
		w.WriteByte(runs[0][0])
	default:
		w.WriteByte('[')
		for _, run := range runs { // "-" is the first, where it is not a range
			switch w.WriteByte(run[0]); run[1] - run[0] {
			case 0:
			case 1:
				w.WriteByte(run[1])
			default:
				w.WriteByte('-')
				w.WriteByte(run[1])
			}
		}
		w.WriteByte(']')
	}
}
