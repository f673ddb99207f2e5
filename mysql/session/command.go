package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

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
	turns                     // turns of authentication
	replication               // everything: a stream without an end
)

var errNoCommand = errors.New("a command without a byte")

// fromClient takes bytes of an open session's client.
func (s *Session) fromClient(p []byte) {
	if len(s.held) > 0 {
		s.held = append(s.held, p...)
		return
	}
	for len(p) > 0 && s.phase == open {
		between := s.client.between()
		switch {
		case s.mover != nil, between && s.answer != infile && s.answer != replication && s.answer != turns && !s.settled():
			s.held = append(s.held, p...) // until the answer is complete
			return
		case between && s.answer == idle && (len(s.change) > 0 || len(p) <= wire.HeaderSize || wire.Command(p[wire.HeaderSize]) == wire.ComChangeUser):
			p = s.collect(p)
		default:
			p = s.feedClient(p)
		}
	}
}

// settled reports whether the last command has been answered completely.
func (s *Session) settled() bool { return s.answer == idle && s.server.between() }

// collect collects a command that has to be seen whole, and returns what is behind it:
// COM_CHANGE_USER, and any command of which the first byte has not come.
func (s *Session) collect(p []byte) []byte {
	s.change = append(s.change, p...)
	if len(s.change) <= wire.HeaderSize {
		if len(s.change) == wire.HeaderSize {
			if length, _ := wire.ParseHeader(s.change); length == 0 {
				s.badPacket(relay.Client, errNoCommand)
			}
		}
		return nil
	}
	if wire.Command(s.change[wire.HeaderSize]) != wire.ComChangeUser {
		p, s.change = s.change, nil
		return s.feedClient(p)
	}
	payload, seq, rest, err := packet(s.change)
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
	s.change = nil
	s.command, s.answer, s.seq, s.user = wire.ComChangeUser, turns, 0, c.User
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
			rest = s.client.finish(rest)
		} else {
			first, length, seq, behind := s.client.next(rest)
			if length < 0 { // only the beginning of a packet
				s.relayCommand(p)
				return nil
			}
			if s.answer == idle {
				if seq != 0 {
					s.badPacket(relay.Client, fmt.Errorf("a command with packet number %d instead of 0", seq))
					return nil
				}
				if !s.begin(first, length) {
					return nil
				}
			}
			s.seq = seq
			if s.answer == infile && length == 0 {
				s.answer = result // what follows answers the file, and other results may follow that
			}
			rest = s.client.finish(behind)
		}
		switch {
		case !s.client.between() || len(rest) == 0:
			s.relayCommand(p)
			return nil
		case s.answer != infile && s.answer != turns && s.answer != replication:
			s.relayCommand(p[:len(p)-len(rest)])
			return rest
		}
	}
}

// relayCommand sends a part of a command to the server.
func (s *Session) relayCommand(p []byte) {
	s.send(relay.Upstream, p)
	if left := s.client.left; left >= minMove {
		s.conn.MayMove(relay.Client, int(left))
	}
	if s.client.left == 0 {
		s.commandSent()
	}
}

// commandSent is called when no more of a packet of the client is to come.
func (s *Session) commandSent() {
	if s.quit && s.client.between() {
		s.streams[relay.Upstream].CloseWrite()
	}
}

// begin notes a command, of which first is the beginning; false: it is not relayed.
func (s *Session) begin(first []byte, length int) bool {
	if length == 0 {
		s.badPacket(relay.Client, errNoCommand)
		return false
	}
	s.command, s.stmt = wire.Command(first[0]), 0
	if len(first) >= 5 {
		s.stmt = binary.LittleEndian.Uint32(first[1:])
	}
	switch s.command {
	case wire.ComQuit:
		s.quit = true
	case wire.ComStmtClose:
		s.rest(s.stmt)
	case wire.ComStmtSendLongData:
		s.wait(s.stmt, waiting{longData: true})
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

// wait notes that a statement waits for its execution or for being fetched.
func (s *Session) wait(id uint32, w waiting) {
	w.id = id
	for i := range s.waiting {
		if o := &s.waiting[i]; o.id == id {
			o.longData, o.fetch = o.longData || w.longData, o.fetch || w.fetch
			return
		}
	}
	if len(s.waiting) >= maxWaiting {
		s.stuck = true
		return
	}
	s.waiting = append(s.waiting, w)
}

// rest notes that a statement waits for nothing any more.
func (s *Session) rest(id uint32) {
	s.waiting = slices.DeleteFunc(s.waiting, func(w waiting) bool { return w.id == id })
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
}
