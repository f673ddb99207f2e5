package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"penstock/mysql/wire"
	"penstock/netio/relay"
)

// answer is what is expected of the server.
type answer uint8

const (
	idle        answer = iota // nothing: no command is being answered
	single                    // one packet: OK, EOF, an error, or text
	result                    // the first packet of a result
	columns                   // definitions of columns, and then rows
	rows                      // rows up to their end
	fields                    // definitions up to EOF
	prepare                   // the first packet of a prepared statement
	defined                   // its definitions
	infile                    // the client sends a file
	refused                   // the rest of a file that the server has answered with an error
	turns                     // turns of authentication
	replication               // everything: a stream without an end
)

var errNoCommand = errors.New("a command without a byte")

// fromClient takes bytes of an open session's client.
func (s *Session) fromClient(p []byte) {
	if s.held != nil {
		s.hold(p)
		return
	}
	for len(p) > 0 && s.phase == open {
		switch {
		case s.mustWait():
			s.hold(p)
			return
		case s.client.between() && s.answer == idle && s.commitsFirst(p):
			return
		case s.client.between() && s.answer == idle && (s.part != nil || len(p) <= wire.HeaderSize || wire.Command(p[wire.HeaderSize]) == wire.ComChangeUser):
			p = s.collect(p)
		default:
			p = s.feedClient(p)
		}
	}
}

// hold keeps bytes until the last command is answered.
func (s *Session) hold(p []byte) {
	if s.held == nil {
		s.held = new([]byte)
		if s.owned {
			*s.held = p // a part of what was held: many commands may come at once
			return
		}
	}
	*s.held = append(*s.held, p...)
}

// mustWait reports whether the client's next byte has to wait: for the end of a move, or
// if it begins a command, for the answer to the last one.
func (s *Session) mustWait() bool {
	return s.mover != nil ||
		s.client.between() && !s.clientMaySend() && !s.settled()
}

// clientMaySend reports whether packets of the client are a part of the command that is
// being answered.
func (s *Session) clientMaySend() bool {
	return s.answer == infile || s.answer == refused || s.answer == turns || s.answer == replication
}

// settled reports whether the last command has been answered completely.
func (s *Session) settled() bool { return s.answer == idle && s.server.between() }

// collect collects a command that has to be seen whole, and returns what is behind it:
// COM_CHANGE_USER, and any command of which the first byte has not come.
func (s *Session) collect(p []byte) []byte {
	if s.part == nil {
		s.part = new(part)
	}
	s.part.command = append(s.part.command, p...)
	whole := s.part.command
	if len(whole) < wire.HeaderSize {
		return nil
	}
	length, _ := wire.ParseHeader(whole)
	if length > 0 && len(whole) == wire.HeaderSize {
		return nil
	}
	if length == 0 || wire.Command(whole[wire.HeaderSize]) != wire.ComChangeUser {
		s.part = nil
		return s.feedClient(whole)
	}
	payload, seq, rest, err := packet(whole)
	if payload == nil && err == nil {
		return nil
	}
	var c wire.ChangeUser
	if err == nil && seq != 0 {
		err = fmt.Errorf("a command with packet number %d instead of 0", seq)
	}
	if err == nil {
		c, err = wire.ParseChangeUser(payload, s.caps)
	}
	if err != nil {
		s.badPacket(relay.Client, err)
		return nil
	}
	s.part, s.setting = &part{change: &wire.ChangeUser{User: c.User, Collation: c.Collation}}, false
	s.command, s.answer, s.seq = wire.ComChangeUser, turns, 0
	// The client answers the salt of its first greeting, which the server does not
	// know: with this plugin the server sends its own.
	c.Plugin = unknownPlugin
	s.send(relay.Upstream, wire.AppendPacket(nil, 0, wire.AppendChangeUser(nil, &c, s.caps)))
	return rest
}

// feedClient relays bytes up to the end of one command, and returns those behind.
func (s *Session) feedClient(p []byte) []byte {
	rest := p
	for {
		if s.client.begun() {
			if s.keeps != nil {
				s.keeps.more(rest)
			}
			rest = s.client.finish(rest)
		} else {
			first, length, seq, behind := s.client.next(rest)
			if length < 0 { // only the beginning of a packet
				s.relayCommand(p)
				return nil
			}
			isCommand := s.answer == idle
			if isCommand {
				if seq != 0 {
					s.badPacket(relay.Client, fmt.Errorf("a command with packet number %d instead of 0", seq))
					return nil
				}
				if !s.begin(first, length) {
					return nil
				}
			}
			s.seq = seq
			switch {
			case s.answer == infile && length == 0:
				s.answer = result // what follows answers the file, and other results may follow that
			case s.answer == refused && length == 0:
				s.answer = idle
			}
			if s.keeps != nil && isCommand {
				s.keeps.command(first, behind[:min(uint32(len(behind)), s.client.left)], length, s.status)
			}
			rest = s.client.finish(behind)
		}
		switch {
		case !s.client.between() || len(rest) == 0:
			s.relayCommand(p)
			return nil
		case !s.clientMaySend():
			s.relayCommand(p[:len(p)-len(rest)])
			return rest
		}
	}
}

// relayCommand sends a part of a command to the server.
func (s *Session) relayCommand(p []byte) {
	if s.keeps != nil && s.keeps.lost {
		s.rowsLost()
		return
	}
	s.send(relay.Upstream, p)
	if left := s.client.left; left >= minMove && s.compressed == nil && (s.keeps == nil || !s.keeps.reading) {
		s.conn.MayMove(relay.Client, int(left))
	}
	if s.client.left == 0 {
		s.commandSent()
	}
}

// commandSent is called when no more of a packet of the client is to come.
func (s *Session) commandSent() {
	switch {
	case !s.client.between():
	case s.quit:
		s.streams[relay.Upstream].CloseWrite()
	case s.command == wire.ComStmtClose:
		if s.keeps != nil {
			s.tryMove() // no answer follows
		}
	case s.command != wire.ComStmtSendLongData && s.settled():
		s.answered() // the server did not wait for the end
	}
}

// begin notes a command, of which first is the beginning; false: it is not relayed.
func (s *Session) begin(first []byte, length int) bool {
	if length == 0 {
		s.badPacket(relay.Client, errNoCommand)
		return false
	}
	s.command, s.stmt = wire.Command(first[0]), 0
	s.setting, s.done, s.committed = isSet(first), false, false
	if len(first) >= 5 {
		s.stmt = binary.LittleEndian.Uint32(first[1:])
	}
	switch s.command {
	case wire.ComQuit:
		s.quit = true
	case wire.ComStmtClose:
		s.rest(s.stmt)
	case wire.ComStmtSendLongData:
		s.wait(s.stmt, true, false)
	case wire.ComQuery, wire.ComStmtExecute, wire.ComProcessInfo, wire.ComStmtBulkExecute:
		s.answer = result
	case wire.ComStmtFetch:
		s.answer = rows
	case wire.ComFieldList:
		s.answer = fields
	case wire.ComStmtPrepare:
		s.answer = prepare
	case wire.ComBinlogDump, wire.ComBinlogDumpGTID, wire.ComTableDump, wire.ComRegisterSlave:
		s.answer, s.stuck = single, true
		if s.command != wire.ComRegisterSlave {
			s.answer = replication
		}
	case wire.ComInitDB, wire.ComCreateDB, wire.ComDropDB, wire.ComRefresh, wire.ComShutdown, wire.ComStatistics, wire.ComConnect,
		wire.ComProcessKill, wire.ComDebug, wire.ComPing, wire.ComTime, wire.ComDelayedInsert, wire.ComStmtReset, wire.ComSetOption,
		wire.ComResetConnection, wire.ComSleep, wire.ComConnectOut, wire.ComDaemon:
		s.answer = single
	default:
		// Nobody knows how its answer ends.
		s.seq = 0
		s.sayError(&wire.Error{Code: codeUnknownCom, State: "08S01", Message: "Penstock: unknown command " + s.command.String()})
		s.conn.Fail(BadPacket, fmt.Errorf("unknown command %d", byte(s.command)), true)
		return false
	}
	return true
}

// isSet reports whether a command is SET as drivers write it.
func isSet(first []byte) bool {
	return wire.Command(first[0]) == wire.ComQuery && len(first) > 4 && bytes.EqualFold(first[1:5], []byte("SET "))
}

// wait notes that a statement waits for its execution or for being fetched.
func (s *Session) wait(id uint32, longData, fetch bool) {
	n := 0
	for w := s.waiting; w != nil; w = w.next {
		if w.id == id {
			w.longData, w.fetch = w.longData || longData, w.fetch || fetch
			return
		}
		n++
	}
	if n >= maxWaiting {
		s.stuck = true
		return
	}
	s.waiting = &waiting{next: s.waiting, id: id, longData: longData, fetch: fetch}
}

// rest notes that a statement waits for nothing any more.
func (s *Session) rest(id uint32) {
	for at := &s.waiting; *at != nil; at = &(*at).next {
		if (*at).id == id {
			*at = (*at).next
			return
		}
	}
}

// rowsLost ends the session: it would get the number of rows of another statement.
func (s *Session) rowsLost() {
	s.seq = 0
	s.sayError(&wire.Error{Code: codeUnknown, State: "HY000", Message: "Penstock: the session has moved since the statement of which FOUND_ROWS() or ROW_COUNT() would tell"})
	s.conn.Fail(RowsLost, errors.New("FOUND_ROWS() or ROW_COUNT() behind a move"), true)
}
