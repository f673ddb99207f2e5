package strict

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

const ok11 = "GET / HTTP/1.1\r\nHost: x\r\n"

// cases are requests with what is wrong with them; nil: nothing.
var cases = []struct {
	name, text string
	want       error
}{
	{"a request", ok11 + "\r\n", nil},
	{"several", ok11 + "\r\n" + ok11 + "\r\n", nil},
	{"a length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\na\nb\x00c" + ok11 + "\r\n", nil},
	{"the same length twice", ok11 + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na" + ok11 + "\r\n", nil},
	{"chunks", ok11 + "Transfer-Encoding: Chunked \r\n\r\n1;x=y\r\na\r\nA\r\n\n123456789\r\n0\r\nT: v\r\n\r\n" + ok11 + "\r\n", nil},
	{"an empty line before", "\r\n" + ok11 + "\r\n", nil},
	{"what follows a switch", ok11 + "Upgrade: websocket\r\n\r\n\n\n\x00", nil},
	{"a query of any bytes", "GET /?\xff\"<> HTTP/1.1\r\nHost: x\r\n\r\n", nil},
	{"an empty value", ok11 + "A:\r\nB: \t\r\n\r\n", nil},

	{"a first line with LF", "GET / HTTP/1.1\nHost: x\r\n\r\n", ErrLineEnd},
	{"a header with LF", "GET / HTTP/1.1\r\nHost: x\n\r\n", ErrLineEnd},
	{"an end with LF", "GET / HTTP/1.1\r\nHost: x\r\n\n", ErrLineEnd},
	{"LF before", "\n" + ok11 + "\r\n", ErrLineEnd},
	{"CR in a value", ok11 + "A: b\rC: d\r\n\r\n", ErrLineEnd},
	{"CR in the first line", "GET / \rHTTP/1.1\r\nHost: x\r\n\r\n", ErrLineEnd},
	{"a name with LF", ok11 + "A\nB: c\r\n\r\n", ErrLineEnd},
	{"a fold", ok11 + "A: b\r\n c\r\n\r\n", ErrFold},
	{"a fold by a tab", ok11 + "A: b\r\n\tc\r\n\r\n", ErrFold},
	{"a fold first", "GET / HTTP/1.1\r\n A: b\r\nHost: x\r\n\r\n", ErrFold},
	{"a blank before the colon", ok11 + "Content-Length : 5\r\n\r\n", ErrName},
	{"no name", ok11 + ": 5\r\n\r\n", ErrName},
	{"no colon", ok11 + "abc\r\n\r\n", ErrName},
	{"NUL in a name", ok11 + "A\x00: b\r\n\r\n", ErrName},
	{"NUL in a value", ok11 + "A: \x00\r\n\r\n", ErrNUL},
	{"NUL in the first line", "GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", ErrNUL},
	{"two blanks", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", ErrLine},
	{"a blank in the path", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", ErrLine},
	{"a tab for a blank", "GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n", ErrLine},
	{"no HTTP", "INVALID CONNECTION PREFACE\r\n\r\n", ErrVersion},
	{"no HTTP later", ok11 + "\r\nINVALID CONNECTION PREFACE\r\n\r\n", nil},
	{"HTTP/0.9", "GET /\r\n\r\n", ErrLine},
	{"lengths that differ", ok11 + "Content-Length: 1\r\nContent-Length: 2\r\n\r\naa", ErrLength},
	{"a list of lengths", ok11 + "Content-Length: 1, 1\r\n\r\na", ErrLength},
	{"a length with a sign", ok11 + "Content-Length: +1\r\n\r\na", ErrLength},
	{"an empty length", ok11 + "Content-Length:\r\n\r\n", ErrLength},
	{"a huge length", ok11 + "Content-Length: 99999999999999999999999999\r\n\r\n", ErrLength},
	{"a length in hex", ok11 + "Content-Length: 0x1\r\n\r\na", ErrLength},
	{"length and chunks", ok11 + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ErrBoth},
	{"chunks and length", ok11 + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", ErrBoth},
	{"another encoding", ok11 + "Transfer-Encoding: gzip, chunked\r\n\r\n", ErrEncoding},
	{"encodings twice", ok11 + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", ErrEncoding},
	{"an odd blank in an encoding", ok11 + "Transfer-Encoding: \vchunked\r\n\r\n", ErrEncoding},
	{"a long encoding", ok11 + "Transfer-Encoding: chunked" + strings.Repeat(" ", 30) + "x\r\n\r\n", ErrEncoding},
	{"chunks in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ErrEncoding},
	{"a chunk's size with LF", ok11 + "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", ErrLineEnd},
	{"an extension with LF", ok11 + "Transfer-Encoding: chunked\r\n\r\n1;a\na\r\n0\r\n\r\n", ErrLineEnd},
	{"a chunk without its end", ok11 + "Transfer-Encoding: chunked\r\n\r\n1\r\naa\r\n0\r\n\r\n", ErrChunk},
	{"a chunk that ends in LF", ok11 + "Transfer-Encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n", ErrChunk},
	{"a chunk without a size", ok11 + "Transfer-Encoding: chunked\r\n\r\n\r\n", ErrChunk},
	{"a huge chunk", ok11 + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", ErrChunk},
	{"a trailer with LF", ok11 + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n", ErrLineEnd},
	{"a trailer that folds", ok11 + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n", ErrFold},
	{"the second of two", ok11 + "\r\n" + ok11 + " a\r\n\r\n", ErrFold},
}

func TestRequests(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		for _, piece := range []int{len(c.text), 1, 7} {
			var s Scanner
			if _, err := scanIn(&s, c.text, piece); !errors.Is(err, c.want) {
				t.Errorf("%s, %d bytes at once: %v, want %v", c.name, piece, err, c.want)
			}
		}
	}
}

// scanIn scans in pieces, and gives how much was in order.
func scanIn(s *Scanner, text string, piece int) (int, error) {
	for at := 0; at < len(text); at += piece {
		n, err := s.Scan([]byte(text[at:min(at+piece, len(text))]))
		if err != nil {
			return at + n, err
		}
	}
	return len(text), nil
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 Very well\r\n"
	for _, c := range []struct {
		text string
		want error
	}{
		{head + "Content-Length: 1\r\n\r\n\n\n\n", nil},
		{"HTTP/1.1 204\r\n\r\n", nil},
		{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n\n\n", nil},
		{"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + head + "A: b\r\n\r\n\n", nil},
		{"HTTP/1.1 100 Continue\r\n\r\n" + head + "A: b\n\r\n", ErrLineEnd},
		{head + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", ErrBoth},
		{head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", ErrLength},
		{head + "A: b\r\n c\r\n\r\n", ErrFold},
		{head + "A : b\r\n\r\n", ErrName},
		{"HTTP/1.1 200 Very\twell\r\n\r\n", nil}, // RFC 9112, section 4
		{"HTTP/1.1\t200 OK\r\n\r\n", ErrLine},
		{"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ErrEncoding},
		{"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", nil},
	} {
		for _, piece := range []int{len(c.text), 1} {
			s := Scanner{Answers: true}
			if _, err := scanIn(&s, c.text, piece); !errors.Is(err, c.want) {
				t.Errorf("%q: %v, want %v", c.text, err, c.want)
			}
		}
	}
}

func TestScanningAllocatesNothing(t *testing.T) {
	text := []byte(ok11 + "Content-Length: 2\r\nAccept: */*\r\nUser-Agent: something that is longer than what is kept\r\n\r\nab")
	var s Scanner
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Scan(text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzScan holds that pieces make no difference, and that what passes is cut
// into the same requests and bodies by net/http, if that takes it.
func FuzzScan(f *testing.F) {
	for _, c := range cases {
		f.Add([]byte(c.text), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		var whole, pieces Scanner
		n, err := scanIn(&whole, string(text), max(len(text), 1))
		if m, other := scanIn(&pieces, string(text), 1+max(piece, 0)%9); m != n || !errors.Is(other, err) {
			t.Fatalf("%d %v in one, %d %v in pieces", n, err, m, other)
		}
		if err != nil || whole.state != start {
			return
		}
		// All of it are whole requests: net/http must come to its end as well.
		in := bufio.NewReader(bytes.NewReader(text))
		for {
			for {
				if b, err := in.Peek(2); err != nil || string(b) != "\r\n" {
					break
				}
				_, _ = in.Discard(2)
			}
			r, err := http.ReadRequest(in)
			if errors.Is(err, io.EOF) {
				return
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("net/http misses the end of a request: %q", text)
			}
			if err != nil {
				return // net/http refuses it
			}
			if _, err := io.Copy(io.Discard, r.Body); errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("net/http misses the end of a body: %q", text)
			} else if err != nil {
				return
			}
		}
	})
}
