package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// OK is the packet that ends a command, or where DeprecateEOF, its rows.
type OK struct {
	AffectedRows, LastInsertID uint64
	Status                     Status
	Warnings                   uint16
	Info                       string // for people
	Changes                    []byte // of the session, as they came; nil without SessionStateChanged
	// EndsRows selects the first byte that ends rows where DeprecateEOF.
	EndsRows bool
}

// IsOK reports whether p is an OK packet in answer to a command without rows.
func IsOK(p []byte) bool { return len(p) > 0 && p[0] == headerOK }

// IsError reports whether p is an error packet.
func IsError(p []byte) bool { return len(p) > 0 && p[0] == headerError }

// IsRowsEnd reports whether a packet of length bytes that begins with first ends
// the rows of a result, or the definitions of columns: EOF or, where DeprecateEOF,
// OK. It does not for an error, which ends rows too.
func IsRowsEnd(first byte, length int, caps Capabilities) bool {
	if caps&DeprecateEOF != 0 {
		return first == headerEOF && length < MaxPayload
	}
	return first == headerEOF && length < maxEOF
}

// ParseOK parses an OK packet with either first byte, from a server with the
// capabilities caps. It allocates for Info and Changes alone.
func ParseOK(p []byte, caps Capabilities) (OK, error) {
	f := fields{packet: "OK", b: p}
	var o OK
	switch f.uint8("the first byte") {
	case headerOK:
	case headerEOF:
		o.EndsRows = true
	default:
		f.fail("the first byte", "is that of another packet")
	}
	o.AffectedRows = f.int("the number of affected rows")
	o.LastInsertID = f.int("the last insert ID")
	o.Status = Status(f.uint16("the status"))
	o.Warnings = f.uint16("the number of warnings")
	switch {
	case caps&SessionTrack == 0:
		o.Info = string(f.rest())
	case len(f.b) > 0:
		o.Info = string(f.string("the information"))
		if o.Status&SessionStateChanged != 0 {
			o.Changes = bytes.Clone(f.string("the changes of the session"))
		}
	}
	if err := f.done(); err != nil {
		return OK{}, err
	}
	return o, nil
}

// AppendOK appends an OK packet for a client with the capabilities caps.
func AppendOK(dst []byte, o *OK, caps Capabilities) []byte {
	first := byte(headerOK)
	if o.EndsRows {
		first = headerEOF
	}
	dst = AppendInt(AppendInt(append(dst, first), o.AffectedRows), o.LastInsertID)
	status := o.Status &^ SessionStateChanged
	if caps&SessionTrack != 0 && len(o.Changes) > 0 {
		status |= SessionStateChanged
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(status))
	dst = binary.LittleEndian.AppendUint16(dst, o.Warnings)
	switch {
	case caps&SessionTrack == 0:
		dst = append(dst, o.Info...)
	case status&SessionStateChanged != 0:
		dst = AppendString(AppendString(dst, o.Info), o.Changes)
	case o.Info != "":
		dst = AppendString(dst, o.Info)
	}
	return dst
}

// ParseEOF parses an EOF packet.
func ParseEOF(p []byte) (warnings uint16, status Status, err error) {
	f := fields{packet: "EOF", b: p}
	if first := f.uint8("the first byte"); f.err == nil && first != headerEOF {
		f.fail("the first byte", "is that of another packet")
	}
	warnings = f.uint16("the number of warnings")
	status = Status(f.uint16("the status"))
	if err := f.done(); err != nil {
		return 0, 0, err
	}
	return warnings, status, nil
}

// AppendEOF appends an EOF packet.
func AppendEOF(dst []byte, warnings uint16, status Status) []byte {
	dst = binary.LittleEndian.AppendUint16(append(dst, headerEOF), warnings)
	return binary.LittleEndian.AppendUint16(dst, uint16(status))
}

// Error is an error packet. The message may hold parts of a statement.
type Error struct {
	Code    uint16
	State   string // SQL state, five characters; "" in a refusal before the login
	Message string
}

// Error returns code, state and message.
func (e Error) Error() string {
	if e.State == "" {
		return fmt.Sprintf("error %d: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("error %d (%s): %s", e.Code, e.State, e.Message)
}

// ParseError parses an error packet, with an SQL state or without.
func ParseError(p []byte) (Error, error) {
	f := fields{packet: "error", b: p}
	if first := f.uint8("the first byte"); f.err == nil && first != headerError {
		f.fail("the first byte", "is that of another packet")
	}
	e := Error{Code: f.uint16("the code")}
	if len(f.b) > 0 && f.b[0] == '#' {
		f.span(1, "the state")
		e.State = string(f.span(stateSize, "the state"))
	}
	e.Message = string(f.rest())
	if err := f.done(); err != nil {
		return Error{}, err
	}
	return e, nil
}

// AppendError appends an error packet. A state of another length than five
// characters is left out, except that a message that begins with "#" always has
// one: HY000, the general error.
func AppendError(dst []byte, e *Error) []byte {
	dst = binary.LittleEndian.AppendUint16(append(dst, headerError), e.Code)
	switch {
	case len(e.State) == stateSize:
		dst = append(append(dst, '#'), e.State...)
	case len(e.Message) > 0 && e.Message[0] == '#':
		dst = append(dst, "#HY000"...)
	}
	return append(dst, e.Message...)
}

// AuthSwitch is a server's request to go on with another plugin
// (Protocol::AuthSwitchRequest).
type AuthSwitch struct {
	Plugin string
	Data   []byte // the plugin's first data, often a salt of 20 bytes and a NUL
}

// ParseAuthSwitch parses the request of a server to switch plugins.
func ParseAuthSwitch(p []byte) (AuthSwitch, error) {
	f := fields{packet: "auth switch", b: p}
	if first := f.uint8("the first byte"); f.err == nil && first != headerEOF {
		f.fail("the first byte", "is that of another packet")
	}
	if f.err == nil && len(f.b) == 0 {
		return AuthSwitch{}, fmt.Errorf("auth switch: the server asks for a password from before 4.1: %w", ErrTooOld)
	}
	s := AuthSwitch{Plugin: string(f.nul("the plugin"))}
	s.Data = bytes.Clone(f.rest())
	if err := f.done(); err != nil {
		return AuthSwitch{}, err
	}
	return s, nil
}

// AppendAuthSwitch appends a request to switch plugins.
func AppendAuthSwitch(dst []byte, s *AuthSwitch) []byte {
	return append(appendNUL(append(dst, headerEOF), s.Plugin), s.Data...)
}
