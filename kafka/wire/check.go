package wire

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// MaxElements bounds the sum of the elements of all arrays of a message, except
// arrays of numbers. A decoded element may take a hundred bytes and more.
const MaxElements = 2_000_000

// Check parses the body of a message as kmsg would, and fails where kmsg would
// misbehave: kmsg trusts the count of tags, so that five bytes make it loop four
// thousand million times, and it trusts the count of an array up to the number
// of bytes left, whatever the size of an element. Check takes time linear in the
// body and allocates nothing. Messages from peers must pass it before they are
// decoded.
func Check(d Direction, key, version int16, body []byte) error {
	if d > Response || key < 0 || key > MaxKey || table[key].name == "" {
		return fmt.Errorf("%w: unknown api key %d", ErrMalformed, key)
	}
	if version < 0 || version > table[key].max {
		return fmt.Errorf("%w: unknown version %s v%d", ErrMalformed, Name(key), version)
	}
	c := checker{r: NewReader(body, Flexible(key, version)), version: version, left: MaxElements}
	c.check(parsedLayouts()[key][d])
	if err := c.r.Err(); err != nil {
		return fmt.Errorf("%s v%d: %w", Name(key), version, err)
	}
	return nil
}

// field is one field of a layout; see layouts for their notation.
type field struct {
	kind   byte  // '4': n bytes, 's', 'b', '[', '?', 'T', '{': inner in versions lo to hi
	n      int   // bytes
	lo, hi int16 // versions
	inner  []field
	known  []knownTag // of 'T'
}

type knownTag struct {
	id    uint32
	inner []field
}

type checker struct {
	r       Reader
	version int16
	left    int // elements
}

func (c *checker) check(fields []field) {
	for i := range fields {
		if c.r.err != nil {
			return
		}
		switch f := &fields[i]; f.kind {
		case '4':
			c.r.Span(f.n)
		case 's':
			c.r.String()
		case 'b':
			c.r.Bytes()
		case '?':
			if c.r.Int8() != -1 {
				c.check(f.inner)
			}
		case '{':
			if c.version >= f.lo && c.version <= f.hi {
				c.check(f.inner)
			}
		case '[':
			c.array(f)
		case 'T':
			c.tags(f)
		}
	}
}

func (c *checker) array(f *field) {
	n := max(c.r.Array(), 0)
	if len(f.inner) == 1 && f.inner[0].kind == '4' {
		c.r.Span(n * f.inner[0].n)
		return
	}
	if c.left -= n; c.left < 0 {
		c.r.Fail(fmt.Errorf("arrays %w: at most %d elements", ErrTooLarge, MaxElements))
	}
	for ; n > 0 && c.r.err == nil; n-- {
		c.check(f.inner)
	}
}

func (c *checker) tags(f *field) {
	if !c.r.Flexible {
		return
	}
	for n := c.r.Uvarint(); n > 0 && c.r.err == nil; n-- {
		id := c.r.Uvarint()
		value := c.r.Span(int(c.r.Uvarint()))
		for i := range f.known {
			if f.known[i].id == id && c.r.err == nil {
				inner := checker{r: NewReader(value, true), version: c.version, left: c.left}
				inner.check(f.known[i].inner)
				if c.left = inner.left; inner.r.err != nil {
					c.r.Fail(inner.r.err)
				}
			}
		}
	}
}

// parsedLayouts parses layouts on first use.
var parsedLayouts = sync.OnceValue(func() *[MaxKey + 1][2][]field {
	parsed := new([MaxKey + 1][2][]field)
	for key, both := range layouts {
		for d, text := range both {
			p := layoutParser(strings.Fields(text))
			parsed[key][d] = p.fields("")
		}
	}
	return parsed
})

// layoutParser parses the words of a layout. An unknown word is a bug; the tests
// parse all layouts.
type layoutParser []string

// fields parses up to the word end.
func (p *layoutParser) fields(end string) (fields []field) {
	for len(*p) > 0 {
		word := (*p)[0]
		*p = (*p)[1:]
		versions, guard := strings.CutSuffix(word, "{")
		switch {
		case word == end:
			return fields
		case word == "s" || word == "b":
			fields = append(fields, field{kind: word[0]})
		case word == "[":
			fields = append(fields, field{kind: '[', inner: p.fields("]")})
		case word == "?(":
			fields = append(fields, field{kind: '?', inner: p.fields(")")})
		case word == "T":
			fields = append(fields, field{kind: 'T'})
		case strings.HasPrefix(word, "<"):
			tags := &fields[len(fields)-1]
			tags.known = append(tags.known, knownTag{uint32(mustAtoi(word[1:])), p.fields(">")})
		case guard:
			lo, hi, _ := strings.Cut(versions, "-")
			f := field{kind: '{', hi: maxVersion, inner: p.fields("}")}
			if f.lo = int16(mustAtoi(lo)); hi != "" {
				f.hi = int16(mustAtoi(hi))
			}
			fields = append(fields, f)
		default:
			fields = append(fields, field{kind: '4', n: mustAtoi(word)})
		}
	}
	return fields
}

func mustAtoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("wire: layouts: " + err.Error())
	}
	return n
}
