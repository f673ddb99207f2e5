package tlsstream

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// A tls.Conn reads records into a buffer that grows to a whole record and
// never shrinks: 27 KB for each connection that ever moved bulk data. The
// fields that hold it are not exported, so their places are looked up by name
// and type when the program starts. Where a version of Go has them otherwise,
// everything works without: records are copied in, and the memory stays.

// layout is where a tls.Conn keeps what it reads.
type layout struct {
	known    bool
	rawInput uintptr // bytes.Buffer: records as they came
	input    uintptr // bytes.Reader: plaintext in rawInput that was not read yet
	hand     uintptr // bytes.Buffer: handshake messages
}

// tlsLayout is the layout for the version of Go that this was built with.
var tlsLayout = findLayout(reflect.TypeFor[tls.Conn]())

func findLayout(conn reflect.Type) layout {
	find := func(name string, typ reflect.Type) (offset uintptr, ok bool) {
		f, ok := conn.FieldByName(name)
		return f.Offset, ok && f.Type == typ && len(f.Index) == 1
	}
	var l layout
	var ok [3]bool
	l.rawInput, ok[0] = find("rawInput", reflect.TypeFor[bytes.Buffer]())
	l.input, ok[1] = find("input", reflect.TypeFor[bytes.Reader]())
	l.hand, ok[2] = find("hand", reflect.TypeFor[bytes.Buffer]())
	l.known = ok == [3]bool{true, true, true}
	return l
}

// lend makes record the input of conn, which decrypts it in place. It returns
// false when it cannot; then conn has to be given the record by Read.
func (l *layout) lend(conn *tls.Conn, record []byte) bool {
	if !l.known {
		return false
	}
	raw := (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(conn), l.rawInput))
	if raw.Len() != 0 {
		return false
	}
	// With its capacity cut off, nothing is ever written behind the record.
	*raw = *bytes.NewBuffer(record[:len(record):len(record)])
	return true
}

// release drops the buffers of conn that hold nothing.
func (l *layout) release(conn *tls.Conn) {
	if !l.known {
		return
	}
	input := (*bytes.Reader)(unsafe.Add(unsafe.Pointer(conn), l.input))
	if input.Len() != 0 {
		return // it points into rawInput
	}
	*input = bytes.Reader{}
	for _, offset := range [...]uintptr{l.rawInput, l.hand} {
		b := (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(conn), offset))
		if b.Len() == 0 {
			*b = bytes.Buffer{}
		}
	}
}
