package http

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// maxID bounds the ID of an event, which goes back to the server in a header.
const maxID = 1024

var errEventTooLarge = errors.New("too large")

// event is a complete event of a stream.
type event struct {
	kind string // its type; "" is "message"
	data []byte // valid until the next event
	id   string // the last ID of the stream so far
}

// eventReader parses an event stream as the WHATWG's HTML standard says, section
// "Server-sent events".
type eventReader struct {
	r     *bufio.Reader
	max   int // bytes of an event
	retry time.Duration
	// comment is called for each comment, if set.
	comment func()

	line, data []byte
	begun      bool // the first line was read
	afterCR    bool // a LF would belong to the last line's end
	id         string
}

func newEventReader(r io.Reader, maxBytes int) *eventReader {
	return &eventReader{r: bufio.NewReader(r), max: maxBytes}
}

// next returns the next event with data. What the stream has of an event at its
// end is dropped.
func (r *eventReader) next() (event, error) {
	var e event
	r.data = r.data[:0]
	id := r.id
	for {
		if err := r.readLine(); err != nil {
			return event{}, err
		}
		if len(r.line) == 0 {
			r.id = id
			if len(r.data) == 0 {
				e.kind = ""
				continue
			}
			e.id, e.data = id, r.data[:len(r.data)-1]
			return e, nil
		}
		name, value, _ := bytes.Cut(r.line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "":
			if r.comment != nil {
				r.comment()
			}
		case "data":
			r.data = append(append(r.data, value...), '\n')
		case "event":
			e.kind = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id = usableID(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// usableID returns an ID, or "" if it cannot be sent back: the stream is then
// read from its beginning after a reconnection.
func usableID(id []byte) string {
	if len(id) > maxID || !utf8.Valid(id) || !httpguts.ValidHeaderFieldValue(string(id)) {
		return ""
	}
	return string(id)
}

// readLine reads a line, which LF, CR or CR LF ends, into r.line.
func (r *eventReader) readLine() error {
	r.line = r.line[:0]
	for {
		c, err := r.r.ReadByte()
		switch {
		case err != nil:
			return err
		case c == '\n' && r.afterCR:
			r.afterCR = false
			continue
		}
		r.afterCR = c == '\r'
		if c == '\n' || c == '\r' {
			break
		}
		if len(r.line)+len(r.data) >= r.max {
			return errEventTooLarge
		}
		r.line = append(r.line, c)
	}
	if !r.begun {
		r.begun = true
		r.line = bytes.TrimPrefix(r.line, []byte("\ufeff"))
	}
	return nil
}
