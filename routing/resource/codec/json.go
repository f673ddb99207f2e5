package codec

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// jsonParser parses JSON (RFC 8259) into the same nodes as the YAML parser, with
// their lines. JSON is not parsed as YAML, which supports neither its surrogate
// pairs nor its tabs. Names and strings must be UTF-8.
type jsonParser struct {
	data        string
	pos         int
	line        int
	stringStyle yaml.Style // of strings: quoted to decode them, 0 to write them as YAML
	nodes       int
	slab        []yaml.Node // preallocated nodes
}

// slabSize is how many nodes are allocated at once. They are freed together once
// the object is decoded.
const slabSize = 64

func (p *jsonParser) node(n yaml.Node) *yaml.Node {
	if len(p.slab) == 0 {
		p.slab = make([]yaml.Node, slabSize)
	}
	out := &p.slab[0]
	p.slab = p.slab[1:]
	*out = n
	out.Line = p.line
	return out
}

// syntaxError is the error that stops a parser.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return e.message }

// parseJSON parses one value after another to the end of data.
func parseJSON(data string) ([]*yaml.Node, *syntaxError) {
	p := &jsonParser{data: data, line: 1, stringStyle: yaml.DoubleQuotedStyle}
	var roots []*yaml.Node
	for p.skipSpace(); p.pos < len(p.data); p.skipSpace() {
		n, err := p.parseValue(0)
		if err != nil {
			return roots, err
		}
		if roots = append(roots, n); len(roots) > MaxDocuments {
			return nil, p.fail("has more than %d documents: split it", MaxDocuments)
		}
	}
	return roots, nil
}

func (p *jsonParser) fail(format string, args ...any) *syntaxError {
	return &syntaxError{p.line, fmt.Sprintf(format, args...)}
}

func (p *jsonParser) skipSpace() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case '\n':
			p.line++
		case ' ', '\t', '\r':
		default:
			return
		}
		p.pos++
	}
}

// peek returns the next byte; 0 at the end, which begins no JSON token.
func (p *jsonParser) peek() byte {
	if p.pos < len(p.data) {
		return p.data[p.pos]
	}
	return 0
}

func (p *jsonParser) parseValue(depth int) (*yaml.Node, *syntaxError) {
	if depth > MaxDepth {
		return nil, p.fail("is nested deeper than %d levels", MaxDepth)
	}
	if p.nodes++; p.nodes > MaxNodes {
		return nil, p.fail("has more than %d values: split it", MaxNodes)
	}
	switch c := p.peek(); {
	case c == '{':
		return p.parseObject(depth)
	case c == '[':
		return p.parseArray(depth)
	case c == '"':
		return p.parseString()
	case c == '-' || c >= '0' && c <= '9':
		return p.parseNumber()
	}
	for _, word := range [...]struct{ text, tag string }{{"true", "!!bool"}, {"false", "!!bool"}, {"null", "!!null"}} {
		if rest := p.data[p.pos:]; len(rest) >= len(word.text) && rest[:len(word.text)] == word.text {
			n := p.node(yaml.Node{Kind: yaml.ScalarNode, Tag: word.tag, Value: word.text})
			p.pos += len(word.text)
			return n, nil
		}
	}
	return nil, p.unexpected("a value")
}

func (p *jsonParser) unexpected(wanted string) *syntaxError {
	if p.pos >= len(p.data) {
		return p.fail("is not JSON: unexpected end, expected %s", wanted)
	}
	return p.fail("is not JSON: unexpected %q, expected %s", p.data[p.pos], wanted)
}

func (p *jsonParser) parseObject(depth int) (*yaml.Node, *syntaxError) {
	n := p.node(yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"})
	err := p.parseList('}', func() *syntaxError {
		if p.peek() != '"' {
			return p.unexpected("a quoted key")
		}
		key, err := p.parseString()
		if err != nil {
			return err
		}
		p.skipSpace()
		if p.peek() != ':' {
			return p.unexpected(`":"`)
		}
		p.pos++
		p.skipSpace()
		value, err := p.parseValue(depth + 1)
		n.Content = append(n.Content, key, value)
		return err
	})
	return n, err
}

func (p *jsonParser) parseArray(depth int) (*yaml.Node, *syntaxError) {
	n := p.node(yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"})
	err := p.parseList(']', func() *syntaxError {
		value, err := p.parseValue(depth + 1)
		n.Content = append(n.Content, value)
		return err
	})
	return n, err
}

// parseList parses items separated by commas up to the end byte.
func (p *jsonParser) parseList(end byte, item func() *syntaxError) *syntaxError {
	p.pos++
	p.skipSpace()
	if p.peek() == end {
		p.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		p.skipSpace()
		switch p.peek() {
		case end:
			p.pos++
			return nil
		case ',':
			p.pos++
			p.skipSpace()
		default:
			return p.unexpected(fmt.Sprintf(`"," or %q`, string(end)))
		}
	}
}

func (p *jsonParser) parseNumber() (*yaml.Node, *syntaxError) {
	start, tag := p.pos, "!!int"
	if p.peek() == '-' {
		p.pos++
	}
	whole := p.pos
	if p.skipDigits() == 0 || p.data[whole] == '0' && p.pos > whole+1 {
		return nil, p.fail("is not JSON: a number without digits or with a leading zero")
	}
	if p.peek() == '.' {
		tag = "!!float"
		p.pos++
		if p.skipDigits() == 0 {
			return nil, p.unexpected("a digit")
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		tag = "!!float"
		p.pos++
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		if p.skipDigits() == 0 {
			return nil, p.unexpected("a digit")
		}
	}
	return p.node(yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: p.data[start:p.pos]}), nil
}

func (p *jsonParser) skipDigits() int {
	start := p.pos
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.pos++
	}
	return p.pos - start
}

func (p *jsonParser) parseString() (*yaml.Node, *syntaxError) {
	n := p.node(yaml.Node{Kind: yaml.ScalarNode, Style: p.stringStyle, Tag: "!!str"})
	p.pos++
	start := p.pos
	var built []byte // nil while the string has no escapes
	for {
		switch c := p.peek(); {
		case p.pos >= len(p.data):
			return nil, p.fail("is not JSON: a string without a closing quote")
		case c == '"':
			n.Value = p.data[start:p.pos]
			if built != nil {
				n.Value = string(append(built, n.Value...))
			}
			p.pos++
			return n, nil
		case c < ' ':
			return nil, p.fail(`is not JSON: control character %q in a string`, c)
		case c == '\\':
			built = append(built, p.data[start:p.pos]...)
			var err *syntaxError
			if built, err = p.parseEscape(built); err != nil {
				return nil, err
			}
			start = p.pos
		default:
			p.pos++
		}
	}
}

// parseEscape parses one escape or surrogate pair.
func (p *jsonParser) parseEscape(dst []byte) ([]byte, *syntaxError) {
	p.pos++
	c := p.peek()
	p.pos++
	switch c {
	case '"', '\\', '/':
		return append(dst, c), nil
	case 'b':
		return append(dst, '\b'), nil
	case 'f':
		return append(dst, '\f'), nil
	case 'n':
		return append(dst, '\n'), nil
	case 'r':
		return append(dst, '\r'), nil
	case 't':
		return append(dst, '\t'), nil
	case 'u':
		r, ok := p.parseHex4()
		if ok && utf16.IsSurrogate(r) {
			ok = len(p.data)-p.pos >= 2 && p.data[p.pos:p.pos+2] == `\u`
			p.pos += 2
			if ok {
				var low rune
				low, ok = p.parseHex4()
				r = utf16.DecodeRune(r, low)
				ok = ok && r != utf8.RuneError
			}
		}
		if ok {
			return utf8.AppendRune(dst, r), nil
		}
	}
	return nil, p.fail(`is not JSON: invalid escape`)
}

func (p *jsonParser) parseHex4() (rune, bool) {
	if len(p.data)-p.pos < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(p.data[p.pos:p.pos+4], 16, 16)
	p.pos += 4
	return rune(v), err == nil
}
