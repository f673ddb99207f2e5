package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/relay"
)

// fromServer takes bytes of an open session's server.
func (s *Session) fromServer(p []byte) {
	if s.mover != nil && s.mover.asked {
		s.mover.fromServer(p)
		return
	}
	if s.committing() {
		s.fromCommit(p)
		return
	}
	busy := !s.settled()
	switch err := s.scan(p); {
	case errors.Is(err, errMixedTLS):
		s.seq-- // nothing has gone to the client
		s.refuseMixedTLS()
		return
	case err != nil:
		s.badPacket(relay.Upstream, err)
		return
	}
	s.send(relay.Client, p)
	if left := s.server.left; left >= minMove && s.compressed == nil {
		s.conn.MayMove(relay.Upstream, int(left))
	}
	if busy && s.settled() {
		s.answered()
	}
}

// scan reads the packets that begin in bytes of the server.
func (s *Session) scan(p []byte) error {
	for {
		if s.answer == rows {
			s.seq, p = s.server.skipRows(p, s.seq)
		}
		first, length, seq, behind := s.server.next(p)
		if length < 0 {
			return nil
		}
		s.seq = seq
		if s.keeps != nil {
			s.keeps.answered(first)
		}
		if err := s.read(first, length); err != nil {
			return err
		}
		p = behind
	}
}

// answered is called when a command has been answered.
func (s *Session) answered() {
	if s.endIfDone() || s.tryMove() {
		return
	}
	s.done = s.command != wire.ComStmtPrepare && !s.setting
	s.resume()
}

// endIfDone ends the session of a client that has sent its end, once its commands are
// answered, or the last one can no longer be.
func (s *Session) endIfDone() bool {
	lacks := s.answer == infile || s.answer == refused || !s.client.between() // what only the client could send
	done := s.ended && (s.answer == idle || lacks) && s.mover == nil && !s.holds()
	if done {
		s.conn.End(netio.ClientFIN, true)
	}
	return done
}

// resume goes on with what the client sent in the meantime.
func (s *Session) resume() {
	if p := s.held; p != nil {
		s.held, s.owned = nil, true
		s.fromClient(*p)
		s.owned = false
	}
	s.pause()
	s.endIfDone()
}

// read looks at the beginning of a packet of the server.
func (s *Session) read(first []byte, length int) error {
	switch s.answer {
	case idle:
		if !wire.IsError(first) {
			return errors.New("a packet that answers no command")
		}
	case replication:
	case single:
		s.answer = idle
		return s.readSingle(first, length)
	case turns:
		return s.readTurn(first)
	case result:
		return s.readResult(first)
	case columns:
		return s.readColumn(first)
	case rows, fields:
		return s.readRow(first, length)
	case prepare:
		return s.readPrepare(first)
	case defined:
		if s.count--; s.count == 0 {
			s.answer = idle
		}
	case infile:
		// The server refuses the file before it has all of it.
		if !wire.IsError(first) {
			return errors.New("an answer before the end of the client's file")
		}
		s.answer = refused // the server passes over the rest of it
	case refused:
		return errors.New("a second answer to the client's file")
	}
	return nil
}

// readSingle reads an answer of one packet.
func (s *Session) readSingle(first []byte, length int) error {
	switch {
	case s.command == wire.ComStatistics || s.command == wire.ComShutdown || wire.IsError(first):
		return nil
	case s.command == wire.ComStmtReset:
		s.rest(s.stmt)
	case s.command == wire.ComResetConnection:
		s.forget(uint16(s.collation))
	}
	return s.readStatus(first, length)
}

// readTurn reads a packet of the authentication for COM_CHANGE_USER.
func (s *Session) readTurn(first []byte) error {
	change := s.part
	switch {
	case wire.IsError(first):
		s.answer, s.part = idle, nil // MariaDB goes on with the user of before
	case wire.IsOK(first):
		s.answer, s.part, s.user = idle, nil, change.change.User
		c := change.change.Collation
		if c != 0 {
			s.collation = byte(c)
		}
		s.forget(c)
		return s.readStatus(first, len(first))
	case len(first) > 1 && first[0] == 0xfe:
		change.sha2 = strings.HasPrefix(cachingSHA2, string(first[1:])) && len(first) == peek
	case string(first) == sha2Full && change.sha2 && (s.conn.TLS() != nil) != s.tls:
		return errMixedTLS
	}
	return nil
}

// forget forgets what the session held: its server has reset it, with a collation.
func (s *Session) forget(collation uint16) {
	s.waiting, s.stuck = nil, false
	if s.keeps != nil {
		s.keeps.reset(collation)
	}
}

// readStatus reads the status of an OK or EOF packet.
func (s *Session) readStatus(first []byte, length int) error {
	if len(first) == 0 {
		return errors.New("an empty packet in place of OK")
	}
	at := 1
	switch {
	case first[0] == 0xfe && length < 9 && s.caps&wire.DeprecateEOF == 0, first[0] == 0xfe && length == 5:
		at += 2 // the warnings go first
	case first[0] == 0 || first[0] == 0xfe:
		for range 2 {
			_, n, ok := wire.Int(first[at:])
			if !ok {
				return errors.New("an OK packet that is cut off")
			}
			at += n
		}
	default:
		return fmt.Errorf("a packet that begins with %#02x in place of OK", first[0])
	}
	if len(first) < at+2 {
		return errors.New("an OK packet without its status")
	}
	s.status = wire.Status(binary.LittleEndian.Uint16(first[at:]))
	if s.keeps != nil && at == 3 && length == 5 {
		s.keeps.warned(first[1:])
	} else if s.keeps != nil {
		s.keeps.warned(first[at+2:])
	}
	return nil
}

// readResult reads the first packet of a result.
func (s *Session) readResult(first []byte) error {
	if len(first) == 0 {
		return errors.New("an empty packet in place of a result")
	}
	if s.command == wire.ComStmtExecute {
		s.rest(s.stmt) // what it waited for is used up, and an open cursor closed
	}
	switch first[0] {
	case 0xff:
		s.answer = idle
	case 0xfb:
		s.answer = infile
		if s.compressed != nil {
			s.compressed.seq = s.seq
		}
	case 0:
		if err := s.readStatus(first, len(first)); err != nil {
			return err
		}
		s.endResult()
	default:
		n, _, ok := wire.Int(first)
		if !ok || n > 1<<16 {
			return errors.New("a result with a bad number of columns")
		}
		s.answer, s.count = columns, uint32(n)
		if s.caps&wire.DeprecateEOF == 0 {
			s.count++
		}
	}
	return nil
}

// endResult ends a result, behind which another one may follow.
func (s *Session) endResult() {
	s.answer = idle
	if s.status&wire.MoreResults != 0 {
		s.answer = result
	}
}

// readColumn reads a packet among the definitions of columns.
func (s *Session) readColumn(first []byte) error {
	if wire.IsError(first) {
		s.answer = idle
		return nil
	}
	if s.count--; s.count > 0 {
		return nil
	}
	s.answer = rows
	if s.caps&wire.DeprecateEOF != 0 {
		return nil
	}
	if err := s.readStatus(first, len(first)); err != nil {
		return err
	}
	if s.status&wire.CursorExists != 0 && s.command == wire.ComStmtExecute {
		s.wait(s.stmt, false, true)
		s.answer = idle // the rows are fetched later
	}
	return nil
}

// readRow reads a row or the end of rows, or of definitions of fields.
func (s *Session) readRow(first []byte, length int) error {
	if wire.IsError(first) {
		s.answer = idle
		return nil
	}
	if len(first) == 0 || !wire.IsRowsEnd(first[0], length, s.caps) {
		return nil
	}
	if err := s.readStatus(first, length); err != nil {
		return err
	}
	switch s.command {
	case wire.ComStmtFetch:
		if s.status&wire.LastRowSent != 0 {
			s.rest(s.stmt)
		}
	case wire.ComStmtExecute:
		if s.status&wire.CursorExists != 0 && s.status&wire.LastRowSent == 0 {
			s.wait(s.stmt, false, true)
		}
	}
	if s.command == wire.ComStmtFetch {
		s.answer = idle
		return nil
	}
	s.endResult()
	return nil
}

// readPrepare reads the answer to COM_STMT_PREPARE, behind which definitions follow.
func (s *Session) readPrepare(first []byte) error {
	s.answer = idle
	if wire.IsError(first) {
		return nil
	}
	if len(first) < 9 || first[0] != 0 {
		return errors.New("a bad answer to COM_STMT_PREPARE")
	}
	if s.keeps != nil {
		s.keeps.opened(binary.LittleEndian.Uint32(first[1:]))
	}
	s.count = 0
	for _, n := range []uint16{binary.LittleEndian.Uint16(first[5:]), binary.LittleEndian.Uint16(first[7:])} {
		if n == 0 {
			continue
		}
		s.count += uint32(n)
		if s.caps&wire.DeprecateEOF == 0 {
			s.count++
		}
	}
	if s.count > 0 {
		s.answer = defined
	}
	return nil
}
