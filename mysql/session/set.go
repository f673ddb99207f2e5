package session

// setState says what SET has to come next.
type setState uint8

const (
	setNone  setState = iota // another statement
	setItem                  // an assignment, or the next word of its beginning
	setName                  // "=" or ":=" behind the name of a variable
	setValue                 // a value, and "," behind it
	setRest                  // nothing more is assigned
)

// maxNames is the number of variables that are known to be set.
const maxNames = 64

// setWord handles a word of SET.
func (s *statement) setWord(word []byte, c class) {
	switch s.set {
	case setItem:
		s.setBegins(word, c)
	case setValue:
		switch {
		case !s.charset || c == setWord && s.last.class == characterWord:
		case safeCharsets[string(word)]:
			s.charset = false
		default:
			s.holds(HoldCharacterSet)
		}
	case setName:
		s.unreadable()
	}
}

// setBegins handles a word at the beginning of an assignment.
func (s *statement) setBegins(word []byte, c class) {
	if s.last.char == '@' || s.last.char == '.' {
		if c != scopeWord && c != globalWord || s.last.char == '.' {
			s.setVariable(word)
			return
		}
	}
	switch c {
	case scopeWord, globalWord:
		s.scope = c
	case characterWord:
		s.set, s.charset = setValue, true
	case transactionWord:
		if s.scope == plain {
			s.holds(HoldNextTransaction)
		}
		s.set = setRest
	case roleWord:
		s.holds(HoldRole)
		s.set = setRest
	case otherSetWord:
		s.holds(HoldUnknown)
		s.set = setRest
	default:
		s.setVariable(word)
	}
}

// setVariable handles the name of the variable that is assigned.
func (s *statement) setVariable(word []byte) {
	s.set = setName
	name := string(word)
	switch {
	case name == "":
		s.unreadable()
		return
	case s.scope == globalWord:
		return
	case perConnection[name]:
		s.holds(HoldVariable)
	case isolation[name] && s.scope != scopeWord:
		s.holds(HoldNextTransaction) // in some servers, it is for the next one alone
	case name == "CHARACTER_SET_CLIENT":
		s.charset = true
	}
	if len(s.names) == maxNames {
		s.holds(HoldVariable)
		return
	}
	s.names = append(s.names, name)
}

// setQuoted handles a string or a quoted name of SET.
func (s *statement) setQuoted(kind tokenKind) {
	switch {
	case s.set == setItem || s.set == setName:
		s.unreadable()
	case s.set == setValue && s.charset:
		if kind != quotedToken || !safeCharsets[string(s.upper())] {
			s.holds(HoldCharacterSet)
		}
		s.charset = false
	}
}

// setChar handles a character of SET.
func (s *statement) setChar(c byte) {
	switch c {
	case '(':
		s.depth++
	case ')':
		s.depth--
	}
	switch s.set {
	case setItem:
		if c != '.' || s.scope == plain {
			s.unreadable()
		}
	case setName:
		switch {
		case c == '=':
			s.set = setValue
		case c != ':':
			s.unreadable()
		}
	case setValue:
		switch {
		case c == ',' && s.depth == 0:
			if s.charset {
				s.unreadable()
			}
			s.set, s.scope = setItem, plain
		case s.charset && c != '=':
			s.holds(HoldCharacterSet)
			s.charset = false
		}
	}
}
