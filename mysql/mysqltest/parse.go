package mysqltest

import (
	"fmt"
	"strings"

	"penstock/mysql/wire"
)

// kind is the kind of a token.
type kind int

const (
	endOfText kind = iota
	word           // in lower case, unless quoted with backticks
	number
	text
	userVar // without @
	sysVar  // without @@, in lower case
	param   // ?
	symbol  // any other character
)

type tok struct {
	kind       kind
	s          string
	start, end int
}

// parser walks over the tokens of some statements.
type parser struct {
	src    string
	tokens []tok // the last is endOfText
	at     int
	asked  int // parameters that expressions have named
}

// parse cuts text into tokens.
func parse(src string) (*parser, error) {
	p := &parser{src: src}
	for i := 0; ; {
		for i < len(src) && strings.IndexByte(" \t\r\n\x00", src[i]) >= 0 {
			i++
		}
		t := tok{kind: endOfText, start: i, end: i}
		if i < len(src) {
			t = lex(src, i)
		}
		p.tokens = append(p.tokens, t)
		if t.kind == endOfText && i < len(src) {
			p.at = len(p.tokens) - 1
			return nil, p.fault()
		}
		if t.kind == endOfText {
			return p, nil
		}
		i = t.end
	}
}

// lex returns the token at i; endOfText if there is none.
func lex(src string, i int) tok {
	letters := func(from int, more string) int {
		for from < len(src) && (isLetter(src[from]) || strings.IndexByte(more, src[from]) >= 0) {
			from++
		}
		return from
	}
	switch c := src[i]; {
	case c == '\'' || c == '"':
		return quoted(src, i)
	case c == '`':
		if n := strings.IndexByte(src[i+1:], '`'); n >= 0 {
			return tok{word, src[i+1 : i+1+n], i, i + n + 2}
		}
		return tok{kind: endOfText, start: i, end: i}
	case strings.HasPrefix(src[i:], "@@"):
		end := letters(i+2, ".")
		return tok{sysVar, strings.ToLower(src[i+2 : end]), i, end}
	case c == '@':
		end := letters(i+1, "")
		return tok{userVar, src[i+1 : end], i, end}
	case c >= '0' && c <= '9':
		end := letters(i, ".")
		return tok{number, src[i:end], i, end}
	case c == '?':
		return tok{param, "?", i, i + 1}
	case isLetter(c):
		end := letters(i, "")
		return tok{word, strings.ToLower(src[i:end]), i, end}
	default:
		return tok{symbol, src[i : i+1], i, i + 1}
	}
}

func isLetter(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// quoted returns the string at i, without its escapes.
func quoted(src string, i int) tok {
	var s strings.Builder
	for j := i + 1; j < len(src); j++ {
		switch c := src[j]; {
		case c == '\\' && j+1 < len(src):
			j++
			if n := strings.IndexByte("ntr0", src[j]); n >= 0 {
				s.WriteByte("\n\t\r\x00"[n])
			} else {
				s.WriteByte(src[j])
			}
		case c == src[i] && j+1 < len(src) && src[j+1] == c:
			j++
			s.WriteByte(c)
		case c == src[i]:
			return tok{text, s.String(), i, j + 1}
		default:
			s.WriteByte(c)
		}
	}
	return tok{kind: endOfText, start: i, end: i}
}

func (p *parser) peek() tok { return p.tokens[p.at] }

func (p *parser) next() tok {
	t := p.tokens[p.at]
	if t.kind != endOfText {
		p.at++
	}
	return t
}

// rest returns the tokens that are left, with endOfText.
func (p *parser) rest() []tok {
	rest := p.tokens[p.at:]
	for i, t := range rest {
		if t.kind == symbol && t.s == ";" && i+1 < len(rest) && rest[i+1].kind != endOfText {
			return rest[i:]
		}
	}
	return rest[len(rest)-1:]
}

// accept takes the words or symbols in order, if all of them come next.
func (p *parser) accept(words ...string) bool {
	for i, w := range words {
		if t := p.tokens[min(p.at+i, len(p.tokens)-1)]; t.kind != word && t.kind != symbol || t.s != w {
			return false
		}
	}
	p.at += len(words)
	return true
}

// expect takes the words or symbols, or returns an error.
func (p *parser) expect(words ...string) error {
	if !p.accept(words...) {
		return p.fault()
	}
	return nil
}

// name takes a word.
func (p *parser) name() (string, error) {
	if p.peek().kind != word {
		return "", p.fault()
	}
	return p.next().s, nil
}

// separator takes the end of a statement, and reports whether another follows.
func (p *parser) separator() bool {
	return p.accept(";") && p.peek().kind != endOfText
}

// ended reports whether the statement is complete.
func (p *parser) ended() bool {
	t := p.peek()
	return t.kind == endOfText || t.kind == symbol && t.s == ";"
}

// skip takes the rest of the statement.
func (p *parser) skip() {
	for !p.ended() {
		p.next()
	}
}

// params returns how many parameters all statements have.
func (p *parser) params() int {
	n := 0
	for _, t := range p.tokens {
		if t.kind == param {
			n++
		}
	}
	return n
}

// fault returns the syntax error at the next token.
func (p *parser) fault() error {
	near := p.src[p.peek().start:]
	return wire.Error{
		Code: 1064, State: "42000",
		Message: fmt.Sprintf("You have an error in your SQL syntax near '%s'", near[:min(len(near), 80)]),
	}
}
