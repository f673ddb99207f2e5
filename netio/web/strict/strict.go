// Package strict finds HTTP/1 messages that two servers could read
// differently, which allows request smuggling. net/http accepts some of them:
// lines that end in a bare LF, folded header lines, and a Content-Length
// beside chunks, which it ignores.
//
//	var s strict.Scanner
//	n, err := s.Scan(bytes) // bytes[:n] are in order
//
// A Scanner tracks where each message begins and ends (RFC 9112). It keeps
// only the few bytes of the field that it reads, and does no I/O. Messages
// that are invalid but unambiguous are left to net/http.
package strict

import (
	"errors"
	"strings"
)

// Errors of Scan.
var (
	ErrLineEnd  = errors.New("a line that does not end in CR LF")
	ErrFold     = errors.New("a header line that begins with a blank")
	ErrLine     = errors.New("a first line that is not three words with one blank between them")
	ErrVersion  = errors.New("a first line that does not end in a version of HTTP, at the beginning of a connection")
	ErrName     = errors.New("a header line without a valid name directly before its colon")
	ErrNUL      = errors.New("a NUL in a line")
	ErrLength   = errors.New("a Content-Length that is no number, or several that differ")
	ErrEncoding = errors.New("a Transfer-Encoding that is not chunked alone, or that is in HTTP/1.0")
	ErrBoth     = errors.New("both Content-Length and Transfer-Encoding")
	ErrChunk    = errors.New("a chunk without its size or its end")
)

type state uint8

const (
	start     state = iota // before the first byte of a message
	blankEnd               // behind CR of an empty line before a message
	line                   // in the first line
	lineEnd                // behind its CR
	fields                 // at the beginning of a header line, or of a trailer's
	name                   // in a name
	value                  // in a value
	valueEnd               // behind its CR
	fieldsEnd              // behind CR of the empty line at the end
	body                   // left bytes follow
	size                   // in the size of a chunk
	extension              // behind it
	sizeEnd                // behind the CR
	chunk                  // left bytes follow
	chunkCR                // behind them
	chunkLF                //
	raw                    // nothing more is looked at
)

// keep is how many bytes are kept of a first line, a name and a value: enough
// for those that matter.
const keep = 24

// text is the beginning of one, in lower case.
type text struct {
	b [keep]byte
	n int // may be above keep: it was longer
}

func (t *text) add(c byte) {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	if t.n < keep {
		t.b[t.n] = c
	}
	if t.n <= keep {
		t.n++
	}
}

func (t *text) String() string { return string(t.b[:min(t.n, keep)]) }

// value is without the blanks around it; "?" where it is longer than is kept.
func (t *text) value() string {
	v := strings.Trim(t.String(), " \t")
	if t.n > keep {
		return "?"
	}
	return v
}

// A Scanner checks one direction of a connection. The zero value reads
// requests.
type Scanner struct {
	// Answers says that the messages are responses. The Scanner checks the
	// header only, and each response needs a new Scanner.
	Answers bool

	state   state
	later   bool // there was a message before
	trailer bool // fields are behind chunks
	blanks  int  // in the first line
	first   text // what is behind the last blank of a request's, behind the first of an answer's
	name    text
	value   text
	old     bool // an answer in HTTP/1.0
	lead    bool // nothing but blanks of the value has been read

	left     uint64 // bytes of the body, or of a chunk
	digits   int    // of a chunk's size
	length   bool   // there is a Content-Length: left
	encoded  bool   // there is a Transfer-Encoding
	switches bool   // there is an Upgrade
}

// Scan checks the next bytes and returns how many of them are valid. After an
// error, the bytes behind those must not be passed on.
func (s *Scanner) Scan(p []byte) (n int, err error) {
	for n < len(p) {
		switch s.state {
		case raw:
			return len(p), nil
		case body, chunk:
			k := min(uint64(len(p)-n), s.left)
			n += int(k)
			if s.left -= k; s.left == 0 {
				s.bodyEnd()
			}
			continue
		}
		if err = s.next(p[n]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (s *Scanner) bodyEnd() {
	if s.state == chunk {
		s.state = chunkCR
		return
	}
	s.messageEnd()
}

// messageEnd prepares the scanner for what follows a message.
func (s *Scanner) messageEnd() {
	if s.switches || s.Answers {
		s.state = raw
		return
	}
	*s = Scanner{later: true}
}

// next takes one byte outside of bodies.
func (s *Scanner) next(c byte) error {
	switch s.state {
	case start, blankEnd, line, lineEnd:
		return s.firstLine(c)
	case fields, name, value, valueEnd, fieldsEnd:
		return s.field(c)
	}
	return s.chunked(c)
}

func (s *Scanner) firstLine(c byte) error {
	switch s.state {
	case start:
		switch c {
		case '\r':
			s.state = blankEnd
			return nil
		case '\n':
			return ErrLineEnd
		}
		s.state = line
		return s.firstLine(c)
	case blankEnd:
		s.state = start
		return want(c, '\n')
	case line:
		switch {
		case c == '\r':
			s.state = lineEnd
		case c == '\n':
			return ErrLineEnd
		case c == 0:
			return ErrNUL
		case c == ' ':
			s.blanks++
			if !s.Answers || s.blanks == 1 {
				s.old = s.Answers && s.first.value() == "http/1.0"
				s.first = text{}
			}
		case c == '\t' && s.Answers && s.blanks > 1: // the reason (RFC 9112, section 4)
		case c == '\t' || c == '\v' || c == '\f':
			return ErrLine
		case !s.Answers || s.blanks <= 1:
			s.first.add(c)
		}
	case lineEnd:
		if !s.Answers && s.blanks != 2 {
			return ErrLine
		}
		if c == '\n' && !s.Answers && !s.later && !strings.HasPrefix(s.first.String(), "http/") {
			return ErrVersion
		}
		s.state = fields
		return want(c, '\n')
	}
	return nil
}

func want(c, wanted byte) error {
	if c != wanted {
		return ErrLineEnd
	}
	return nil
}

// field takes a byte of a header or of a trailer.
func (s *Scanner) field(c byte) error {
	switch s.state {
	case fields:
		switch c {
		case '\r':
			s.state = fieldsEnd
			return s.headerEnd()
		case '\n':
			return ErrLineEnd
		case ' ', '\t':
			return ErrFold
		}
		s.state, s.name, s.value, s.lead = name, text{}, text{}, true
		return s.field(c)
	case name:
		switch {
		case c == ':' && s.name.n > 0:
			s.state = value
		case c == '\n':
			return ErrLineEnd
		case !isToken(c):
			return ErrName
		default:
			s.name.add(c)
		}
	case value:
		switch {
		case c == '\r':
			s.state = valueEnd
		case c == '\n':
			return ErrLineEnd
		case c == 0:
			return ErrNUL
		case s.lead && (c == ' ' || c == '\t'):
		default:
			s.lead = false
			s.value.add(c)
		}
	case valueEnd:
		s.state = fields
		if err := want(c, '\n'); err != nil {
			return err
		}
		return s.noteField()
	case fieldsEnd:
		if err := want(c, '\n'); err != nil {
			return err
		}
		s.bodyBegins()
	}
	return nil
}

func isToken(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// noteField is for a field that is whole.
func (s *Scanner) noteField() error {
	if s.trailer {
		return nil
	}
	switch s.name.String() {
	case "content-length":
		n, ok := number(s.value.value())
		if !ok || s.length && n != s.left {
			return ErrLength
		}
		s.length, s.left = true, n
	case "transfer-encoding":
		if s.encoded || s.value.value() != "chunked" {
			return ErrEncoding
		}
		s.encoded = true
	case "upgrade":
		s.switches = s.switches || Switches(s.value.value())
	}
	return nil
}

// Switches reports whether the bytes behind a request for this upgrade may
// belong to another protocol. The Scanner does not check such bytes, and they
// must not be read as requests. It returns false for h2c, which some clients
// always ask for and no server here accepts.
func Switches(upgrade string) bool { return !strings.EqualFold(strings.Trim(upgrade, " \t"), "h2c") }

// number reads one without a sign.
func number(text string) (n uint64, ok bool) {
	if text == "" || len(text) > 18 {
		return 0, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(text[i]-'0')
	}
	return n, true
}

// headerEnd looks at a header as a whole, while its last line can still be kept
// back.
func (s *Scanner) headerEnd() error {
	switch {
	case s.trailer || !s.encoded:
		return nil
	case s.length:
		return ErrBoth
	case s.old, !s.Answers && s.first.value() == "http/1.0":
		return ErrEncoding
	}
	return nil
}

func (s *Scanner) bodyBegins() {
	switch {
	case s.trailer:
		s.messageEnd()
	case s.Answers && s.first.n > 0 && s.first.b[0] == '1' && s.first.value() != "101":
		*s = Scanner{Answers: true} // 100 Continue and the like come before an answer
	case s.Answers:
		s.state = raw
	case s.encoded:
		s.state, s.left, s.digits = size, 0, 0
	case s.length && s.left > 0:
		s.state = body
	default:
		s.messageEnd()
	}
}

// chunked takes a byte between chunks.
func (s *Scanner) chunked(c byte) error {
	switch s.state {
	case size:
		d, ok := hex(c)
		switch {
		case ok && s.digits < 15:
			s.left, s.digits = s.left<<4|d, s.digits+1
			return nil
		case ok || s.digits == 0:
			return ErrChunk
		}
		s.state = extension
		return s.chunked(c)
	case extension:
		switch c {
		case '\r':
			s.state = sizeEnd
		case '\n':
			return ErrLineEnd
		case 0:
			return ErrNUL
		}
	case sizeEnd:
		if err := want(c, '\n'); err != nil {
			return err
		}
		if s.state = chunk; s.left == 0 {
			s.state, s.trailer = fields, true
		}
	case chunkCR:
		s.state = chunkLF
		if c != '\r' {
			return ErrChunk
		}
	case chunkLF:
		s.state, s.digits = size, 0
		if c != '\n' {
			return ErrChunk
		}
	}
	return nil
}

func hex(c byte) (uint64, bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0'), true
	case 'a' <= c && c <= 'f':
		return uint64(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return uint64(c-'A') + 10, true
	}
	return 0, false
}
