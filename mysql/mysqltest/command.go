package mysqltest

import (
	"bytes"
	"errors"
	"fmt"

	"penstock/mysql/wire"
)

// command reads and serves one command. An error ends the connection.
func (c *conn) command() error {
	payload, err := c.readCommand()
	if err != nil {
		return err
	}
	if len(payload) == 0 {
		return errEnded
	}
	command, body := wire.Command(payload[0]), payload[1:]
	c.server.sawCommand(CommandSeen{Conn: c.id, Command: command, Payload: string(body)})
	if _, replaced, err := c.step(Event{Step: OnCommand, Command: command, Payload: payload}); replaced || err != nil {
		return err
	}
	if command == wire.ComQuit {
		return errEnded
	}
	err = c.dispatch(command, body)
	var refusal wire.Error
	if errors.As(err, &refusal) {
		c.writeError(&refusal)
		err = nil
	}
	if err != nil {
		return err
	}
	return c.flush()
}

// dispatch executes a command and writes the answer. A wire.Error is sent to the
// client; any other error ends the connection.
func (c *conn) dispatch(command wire.Command, body []byte) error {
	switch command {
	case wire.ComQuery:
		return c.query(string(body))
	case wire.ComInitDB:
		c.db = string(body)
		c.writeOK(&wire.OK{Status: c.status()})
	case wire.ComPing:
		c.writeOK(&wire.OK{Status: c.status()})
	case wire.ComStatistics:
		c.write([]byte("Uptime: 1  Threads: 1  Questions: 1"))
	case wire.ComFieldList:
		return c.fieldList(body)
	case wire.ComSetOption:
		if len(body) != 2 {
			return errCommand
		}
		c.multi = body[0] == 0
		c.writeEnd(c.status())
	case wire.ComResetConnection:
		c.reset()
		c.writeOK(&wire.OK{Status: c.status()})
	case wire.ComChangeUser:
		return c.changeUser(body)
	case wire.ComStmtPrepare:
		return c.stmtPrepare(string(body))
	case wire.ComStmtExecute, wire.ComStmtFetch, wire.ComStmtReset, wire.ComStmtClose, wire.ComStmtSendLongData:
		return c.stmtCommand(command, body)
	case wire.ComBinlogDump, wire.ComBinlogDumpGTID:
		for range 3 {
			c.write([]byte("\x00an event of the binlog"))
		}
		c.write(wire.AppendEOF(nil, 0, c.status()))
	default:
		return wire.Error{Code: 1047, State: "08S01", Message: "Unknown command"}
	}
	return nil
}

var errCommand = wire.Error{Code: 1105, State: "HY000", Message: "malformed command"}

func (c *conn) fieldList(body []byte) error {
	name, _, found := bytes.Cut(body, []byte{0})
	if !found {
		return errCommand
	}
	if string(name) != "counter" {
		return wire.Error{Code: 1146, State: "42S02", Message: fmt.Sprintf("Table '%s' doesn't exist", name)}
	}
	for i, column := range []string{"name", "value"} {
		p := definition(c.db, column, []byte{typeVarString, typeLonglong}[i])
		c.write(append(p, 0xfb)) // the default value: NULL
	}
	c.writeEnd(c.status())
	return nil
}

func (c *conn) changeUser(body []byte) error {
	change, err := wire.ParseChangeUser(append([]byte{byte(wire.ComChangeUser)}, body...), c.caps)
	if err != nil {
		return wire.Error{Code: 1043, State: "08S01", Message: "Bad handshake: " + err.Error()}
	}
	c.login.User, c.login.Database, c.login.Plugin = change.User, change.Database, change.Plugin
	c.login.Auth, c.login.Attributes = change.Auth, change.Attributes
	if c.login.Plugin == "" {
		c.login.Plugin = nativePlugin
	}
	c.rollback()
	c.reset()
	return c.authenticate(true)
}

// query executes statements that semicolons separate, and answers each.
func (c *conn) query(text string) error {
	p, err := parse(text)
	if err != nil {
		return err
	}
	if len(p.rest()) > 1 && !c.multi && c.caps&wire.MultiStatements == 0 {
		return p.fault()
	}
	c.warnings = nil
	for {
		r, err := c.execute(p, nil)
		if err != nil {
			return err
		}
		if r.infile != "" {
			if err := c.loadFile(r); err != nil || r.answered {
				return err
			}
		}
		more := wire.Status(0)
		if p.separator() {
			more = wire.MoreResults
		}
		if err := c.answerText(r, more); err != nil || more == 0 {
			return err
		}
	}
}

// answerText answers a statement in the text protocol.
func (c *conn) answerText(r *result, more wire.Status) error {
	switch {
	case r.answered:
		return nil
	case r.columns == nil:
		c.answerOK(r, more)
		return nil
	}
	c.writeColumns(r)
	if c.caps&wire.DeprecateEOF == 0 {
		c.writeEnd(c.status() | more)
	}
	return c.writeRows(r, textRow, more)
}

func (c *conn) answerOK(r *result, more wire.Status) {
	ok := r.ok
	ok.Status, ok.Warnings = c.status()|more, uint16(len(c.warnings))
	c.writeOK(&ok)
}

// loadFile asks the client for a file and adds the number of its lines to the
// counter that r names.
func (c *conn) loadFile(r *result) error {
	if c.caps&wire.LocalFiles == 0 {
		return wire.Error{Code: 3948, State: "42000", Message: "Loading local data is disabled"}
	}
	c.write(append([]byte{0xfb}, r.infile...))
	if err := c.flush(); err != nil {
		return err
	}
	var lines int64
	for {
		p, err := c.read()
		if err == nil && !r.answered {
			seq := c.seq
			if _, r.answered, err = c.step(Event{Step: OnFile, Command: wire.ComQuery, Payload: p}); r.answered {
				c.seq = seq // a client that has not read the answer counts on
			}
		}
		if err != nil {
			return err
		}
		if len(p) == 0 {
			break
		}
		lines += int64(bytes.Count(p, []byte("\n")))
	}
	c.add(r.ok.Info, lines)
	r.ok = wire.OK{AffectedRows: uint64(lines), Info: fmt.Sprintf("Records: %d  Deleted: 0  Skipped: 0  Warnings: 0", lines)}
	return nil
}
