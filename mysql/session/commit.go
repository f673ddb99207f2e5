package session

import (
	"errors"
	"strings"

	"penstock/mysql/wire"
	"penstock/netio/relay"
)

// A statement that begins a transaction commits the one that is open. A session that is
// to move commits it by itself, to have a safe point, and moves; then the statement goes
// to the new server. If the commit fails, its error is the answer to the statement, as
// it would be without a proxy.

// commitStatement commits whatever completion_type says, which would not concern BEGIN.
const commitStatement = "COMMIT AND NO CHAIN NO RELEASE"

var errCommitAnswer = errors.New("a bad answer to COMMIT")

// commitsFirst commits the transaction if p has a whole command that would, while the
// session waits for a safe point to move at; false: it does not, or it holds more.
func (s *Session) commitsFirst(p []byte) bool {
	if !s.wanted || s.committed || s.status&wire.InTransaction == 0 || s.waiting != nil || s.ended ||
		s.keeps != nil && s.keeps.holds() != nil || !beginsTransaction(p) {
		return false
	}
	s.hold(p)
	s.part = &part{commits: true}
	s.command, s.answer, s.stmt = wire.ComQuery, result, 0
	s.send(relay.Upstream, wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, commitStatement...)))
	return true
}

// committing reports whether the server answers the proxy's COMMIT.
func (s *Session) committing() bool { return s.part != nil && s.part.commits }

// fromCommit takes the answer to the proxy's COMMIT.
func (s *Session) fromCommit(p []byte) {
	c := s.part
	c.answer = append(c.answer, p...)
	err := s.scan(p)
	if err == nil && (s.answer != idle && s.answer != result || len(c.answer) > maxLogin) {
		err = errCommitAnswer
	}
	if err != nil {
		s.badPacket(relay.Upstream, err)
		return
	}
	if !s.settled() {
		return
	}
	s.part, s.committed = nil, true
	if wire.IsError(c.answer[wire.HeaderSize:]) {
		n, _ := wire.ParseHeader(*s.held)
		if *s.held = (*s.held)[wire.HeaderSize+n:]; len(*s.held) == 0 {
			s.held = nil
		}
		s.committed = false
		s.send(relay.Client, c.answer)
	}
	s.answered()
}

// beginsTransaction reports whether p begins with a whole COM_QUERY that is nothing but
// a statement which begins a transaction, and which all servers know. What some refuse,
// or may refuse by their settings, commits nothing there: BEGIN WORK, BEGIN PESSIMISTIC,
// START TRANSACTION READ ONLY.
func beginsTransaction(p []byte) bool {
	const most = 1024 // bytes with comments
	if len(p) <= wire.HeaderSize || wire.Command(p[wire.HeaderSize]) != wire.ComQuery {
		return false
	}
	n, seq := wire.ParseHeader(p)
	if n > most || seq != 0 || len(p) < wire.HeaderSize+n {
		return false
	}
	words, ok := statementWords(string(p[wire.HeaderSize+1 : wire.HeaderSize+n]))
	if !ok {
		return false
	}
	switch strings.ToUpper(strings.Join(words, " ")) {
	case "BEGIN", "START TRANSACTION", "START TRANSACTION READ WRITE", "START TRANSACTION WITH CONSISTENT SNAPSHOT":
		return true
	}
	return false
}

// statementWords returns the words of a statement without comments and its semicolon.
// It is not ok if there is anything but ASCII letters, or a comment that is executed.
func statementWords(text string) (words []string, ok bool) {
	for ended := false; ; {
		text = strings.TrimLeft(text, " \t\r\n\v\f")
		var found bool
		switch {
		case text == "":
			return words, true
		case strings.HasPrefix(text, "/*"):
			// Of these servers execute the content, or take it for a hint: /*! /*M! /*T! /*+
			if text = text[2:]; text != "" && strings.IndexByte("!MT+", text[0]) >= 0 {
				return nil, false
			}
			if _, text, found = strings.Cut(text, "*/"); !found {
				return nil, false
			}
		case text[0] == '#', text == "--", strings.HasPrefix(text, "-- "), strings.HasPrefix(text, "--\t"), strings.HasPrefix(text, "--\n"):
			_, text, _ = strings.Cut(text, "\n")
		case text[0] == ';' && !ended && len(words) > 0:
			ended, text = true, text[1:]
		default:
			n := len(text) - len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
			if n == 0 || ended {
				return nil, false
			}
			words, text = append(words, text[:n]), text[n:]
		}
	}
}
