package session

import "bytes"

// maxToken is how many bytes of a word or string are kept. No word of the tables is as
// long.
const maxToken = 40

// statement reads the text of a query, in whatever pieces it comes, and decides what the
// query may leave behind in its session. It knows the tokens of SQL, and what a
// statement may do from its first words and from the functions that it calls. What it
// does not know leaves something behind.
//
// The text has a character set in which no byte of a longer character can be taken for
// ASCII; keeper makes sure of it.
type statement struct {
	noEscapes bool // a backslash in a string is a character (NO_BACKSLASH_ESCAPES)

	// What is found out.
	hold       Hold     // "" so far
	foundRows  bool     // it reads FOUND_ROWS()
	rowCount   bool     // it reads ROW_COUNT()
	calculates bool     // SQL_CALC_FOUND_ROWS
	selects    bool     // it sets FOUND_ROWS()
	names      []string // of session variables that it sets, in upper case

	// The token that is being read.
	state   lexState
	quote   byte
	text    [maxToken]byte
	n       int
	tooLong bool // not all of it is kept
	spaced  bool // a blank or a comment has followed the last token

	// The grammar.
	last, before token // the last token, and the one before
	verb         class
	words        int // words so far
	ended        bool
	ats          int  // "@" before this token
	columns      bool // INSERT: the list of columns may still come
	set          setState
	scope        class // SET: of the variable that is being named
	charset      bool  // SET: the name of a character set is to come
	depth        int   // SET: of parentheses
}

type lexState uint8

const (
	lexBlank lexState = iota
	lexWord
	lexQuoted
	lexEscape     // a backslash in quotes
	lexQuoteEnd   // a quote in quotes: the end, or half of a doubled one
	lexDash       // "-"
	lexDashDash   // "--": a comment, if a blank follows
	lexSlash      // "/"
	lexOpen       // "/*": an executable comment, if "!" or "M!" follows
	lexOpenM      // "/*M"
	lexComment    // in a comment
	lexStar       // "*" in a comment
	lexLine       // in a comment up to the end of the line
	lexUnreadable // nothing more is read
)

type tokenKind uint8

const (
	noToken tokenKind = iota
	wordToken
	quotedToken // a string, or a name in quotes
	nameToken   // a name in backticks
	otherToken  // one character
)

type token struct {
	kind  tokenKind
	class class
	char  byte
}

// begin makes s ready for a text.
func (s *statement) begin(noEscapes bool) {
	*s = statement{noEscapes: noEscapes, names: s.names[:0]}
}

// holds notes what the statement leaves behind; the first one stays.
func (s *statement) holds(h Hold) {
	if s.hold == "" {
		s.hold = h
	}
}

// give up: what follows cannot be told.
func (s *statement) unreadable() {
	s.holds(HoldUnreadable)
	s.state = lexUnreadable
}

// feed reads the next bytes.
func (s *statement) feed(p []byte) {
	for len(p) > 0 && s.state != lexUnreadable {
		if n := s.skip(p); n > 0 {
			p = p[n:]
			continue
		}
		s.next(p[0])
		p = p[1:]
	}
}

// skip reads the bytes at the beginning of p that change nothing but the text of a token,
// and returns their number.
func (s *statement) skip(p []byte) int {
	switch s.state {
	case lexWord:
		n := 0
		for n < len(p) && isWord(p[n]) {
			n++
		}
		kept := copy(s.text[s.n:], p[:n])
		s.n += kept
		s.tooLong = s.tooLong || kept < n
		return n
	case lexQuoted:
		if !s.tooLong {
			return 0
		}
		n := bytes.IndexByte(p, s.quote)
		if n < 0 {
			n = len(p)
		}
		if s.quote == '`' || s.noEscapes && s.quote == '\'' {
			return n
		}
		if i := bytes.IndexByte(p[:n], '\\'); i >= 0 {
			return i
		}
		return n
	case lexComment:
		if n := bytes.IndexByte(p, '*'); n >= 0 {
			return n
		}
		return len(p)
	}
	return 0
}

// next reads one byte.
func (s *statement) next(c byte) {
	switch s.state {
	case lexBlank:
		s.start(c)
	case lexWord:
		s.endWord()
		s.start(c)
	case lexQuoted, lexEscape, lexQuoteEnd:
		s.inQuotes(c)
	case lexDash:
		if c == '-' {
			s.state = lexDashDash
			return
		}
		s.char('-')
		s.start(c)
	case lexDashDash:
		if c <= ' ' || c == 0x7f {
			s.state = lexLine
			s.inComment(c)
			return
		}
		s.char('-')
		s.char('-')
		s.start(c)
	case lexSlash:
		if c == '*' {
			s.state = lexOpen
			return
		}
		s.char('/')
		s.start(c)
	default:
		s.inComment(c)
	}
}

// start reads the first byte of a token.
func (s *statement) start(c byte) {
	s.state = lexBlank
	switch {
	case isWord(c):
		s.state, s.n, s.tooLong = lexWord, 0, false
		s.keep(c)
	case c == '\'' || c == '"' || c == '`':
		s.state, s.quote, s.n = lexQuoted, c, 0
		s.tooLong = s.set == setNone // the text matters to SET alone
	case c == '-':
		s.state = lexDash
	case c == '/':
		s.state = lexSlash
	case c == '#':
		s.state = lexLine
	case c == ' ' || c >= '\t' && c <= '\r':
		s.spaced = true
	case c < ' ' || c == 0x7f || c == '[' || c == ']':
		s.unreadable()
	default:
		s.char(c)
	}
}

func (s *statement) keep(c byte) {
	if s.n == maxToken {
		s.tooLong = true
		return
	}
	s.text[s.n] = c
	s.n++
}

// inQuotes reads a byte of a string or a quoted name, or what follows a quote in it.
func (s *statement) inQuotes(c byte) {
	switch s.state {
	case lexEscape:
		s.keep(c)
		s.state = lexQuoted
	case lexQuoteEnd:
		if c == s.quote {
			s.keep(c)
			s.state = lexQuoted
			return
		}
		s.endQuoted()
		s.start(c)
	default:
		switch {
		case c == s.quote:
			s.state = lexQuoteEnd
		case c == '\\' && s.quote == '"':
			// With ANSI_QUOTES these are names, in which a backslash is a character.
			// Not every server says whether it is on.
			s.unreadable()
		case c == '\\' && s.quote == '\'' && !s.noEscapes:
			s.state = lexEscape
		default:
			s.keep(c)
		}
	}
}

// inComment reads a byte of a comment.
func (s *statement) inComment(c byte) {
	s.spaced = true
	switch {
	case s.state == lexLine:
		if c == '\n' {
			s.state = lexBlank
		}
	case c == '!' && (s.state == lexOpen || s.state == lexOpenM), c == '+' && s.state == lexOpen:
		s.unreadable() // the server reads what is in it
	case c == 'M' && s.state == lexOpen:
		s.state = lexOpenM
	case c == '/' && s.state == lexStar:
		s.state = lexBlank
	case c == '*':
		s.state = lexStar
	default:
		s.state = lexComment
	}
}

// end reads the end of the text. Nothing may be fed after it.
func (s *statement) end() {
	switch s.state {
	case lexBlank, lexLine, lexDashDash:
	case lexWord:
		s.endWord()
	case lexQuoteEnd:
		s.endQuoted()
	default:
		s.unreadable()
	}
	switch {
	case s.verb == beginWord && s.last.class != beginWord && s.last.class != workWord, s.verb == createWord:
		s.holds(HoldUnknown)
	case s.set == setItem || s.set == setName || s.charset || s.ats > 0:
		s.holds(HoldUnreadable)
	}
}

// isWord reports whether a byte belongs to names, keywords and numbers.
func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// upper returns the token's text in upper case; "" if it is too long.
func (s *statement) upper() []byte {
	if s.tooLong {
		return nil
	}
	for i, c := range s.text[:s.n] {
		if c >= 'a' && c <= 'z' {
			s.text[i] = c - 'a' + 'A'
		}
	}
	return s.text[:s.n]
}

func (s *statement) push(t token) {
	s.before, s.last, s.spaced = s.last, t, false
}

// follows looks at what stands before a token.
func (s *statement) follows() {
	if s.ended {
		s.holds(HoldSeveral)
	}
	if s.ats == 1 {
		s.holds(HoldUserVariable)
	}
	s.ats = 0
}

// endWord handles a word.
func (s *statement) endWord() {
	s.follows()
	word := s.upper()
	class := words[string(word)]
	if s.last.char == '.' && class != sequenceWord && class != lastGTID {
		class = plain // a name
	}
	s.words++
	switch s.words {
	case 1:
		s.first(class)
	case 2:
		s.second(class)
	}
	switch class {
	case calcRows:
		s.calculates = true
	case foundRows:
		s.foundRows = true
	case rowCount:
		s.rowCount = true
	case userLock:
		s.holds(HoldUserLock)
	case lastGTID:
		s.holds(HoldGTID)
	case sequenceWord:
		s.holds(HoldSequence)
	case valueWord:
		if s.last.class == nextWord {
			s.holds(HoldSequence)
		}
	case temporaryWord:
		if s.verb == createWord {
			s.holds(HoldTemporaryTable)
		}
	case valuesWord, selectWord, setWord:
		s.columns = false
	}
	if s.set != setNone && s.words > 1 {
		s.setWord(word, class)
	}
	s.push(token{kind: wordToken, class: class})
}

// first handles the first word.
func (s *statement) first(c class) {
	s.verb = c
	switch c {
	case insertWord, replaceWord:
		s.columns = true
	case selectWord, withWord, valuesWord, tableWord:
		s.selects = true
	case setWord:
		s.set = setItem
	case beginWord, startWord, releaseWord, createWord, simpleWord, showWord:
	case lockWord:
		s.holds(HoldTableLock)
	case prepareWord:
		s.holds(HoldPrepared)
	case handlerWord:
		s.holds(HoldHandler)
	default:
		s.holds(HoldUnknown)
	}
}

// second handles the second word, on which some statements depend.
func (s *statement) second(c class) {
	switch s.verb {
	case startWord:
		if c != transactionWord {
			s.holds(HoldUnknown)
		}
	case releaseWord:
		if c != simpleWord { // SAVEPOINT
			s.holds(HoldUnknown)
		}
	case beginWord:
		if c != workWord {
			s.holds(HoldUnknown)
		}
	}
}

// endQuoted handles a string or a quoted name.
func (s *statement) endQuoted() {
	s.follows()
	if s.words == 0 {
		s.unreadable()
		return
	}
	kind := quotedToken
	if s.quote == '`' {
		kind = nameToken
	}
	if s.set != setNone {
		s.setQuoted(kind)
	}
	s.push(token{kind: kind})
}

// char handles a token of one character.
func (s *statement) char(c byte) {
	if c == '@' {
		if s.ats++; s.ats > 2 || s.words == 0 {
			s.unreadable()
			return
		}
		s.push(token{kind: otherToken, char: c})
		return
	}
	if c == ';' {
		s.ended = true
		return
	}
	s.follows()
	switch {
	case s.words == 0 && c != '(':
		s.unreadable()
		return
	case c == '(':
		s.open()
	}
	if s.set != setNone {
		s.setChar(c)
	}
	s.push(token{kind: otherToken, char: c})
}

// open handles "(": what stands before it may be a stored function.
func (s *statement) open() {
	switch {
	case s.columns:
		s.columns = false
	case s.last.kind == noToken || s.last.kind == otherToken:
	case s.last.kind != wordToken:
		s.holds(HoldFunction)
	case s.last.class == afterParenthesis && s.before.kind == otherToken && s.before.char == ')':
	case s.last.class == connectionID:
		s.holds(HoldConnectionID)
	case s.last.class.isKeyword():
	case s.last.class.isFunction() && !s.spaced:
	default:
		s.holds(HoldFunction)
	}
}
