package http

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll returns the events of a stream as text, and the reader at its end.
func readAll(in io.Reader, maxBytes int) (events []string, r *eventReader, err error) {
	r = newEventReader(in, maxBytes)
	for {
		e, err := r.next()
		if err != nil {
			return events, r, err
		}
		events = append(events, fmt.Sprintf("%s|%s|%s", e.kind, e.id, e.data))
	}
}

func TestEventStreams(t *testing.T) {
	for _, test := range []struct{ stream, want string }{
		{"", ""},
		{"data: a\n\n", `["||a"]`},
		{"data:a\n\ndata:  b\n\n", `["||a" "|| b"]`},
		{"data: a\r\n\r\ndata: b\r\n\r\n", `["||a" "||b"]`},
		{"data: a\r\rdata: b\r\r", `["||a" "||b"]`},
		{"data: a\n\r\ndata: b\r\n\n", `["||a" "||b"]`},
		{"data: a\ndata: b\ndata:\ndata: c\n\n", `["||a\nb\n\nc"]`},
		{"data\n\n", `["||"]`},
		{": keep-alive\n\n:\n\ndata: a\n: x\n\n", `["||a"]`},
		{"event: ping\n\ndata: a\n\n", `["||a"]`},
		{"event: ping\ndata: a\n\ndata: b\n\n", `["ping||a" "||b"]`},
		{"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", `["|7|a" "|7|b" "||c"]`},
		{"id: 7\n\ndata: b\n\n", `["|7|b"]`},
		{"id: 7\ndata: a\n\nid: a\x00b\ndata: b\n\n", `["|7|a" "|7|b"]`},
		{"id: " + strings.Repeat("1", maxID+1) + "\ndata: a\n\n", `["||a"]`},
		{"id: a\x7f\ndata: a\n\n", `["||a"]`},
		{"\ufeffdata: a\n\n", `["||a"]`},
		{"\ufeff\ufeffdata: a\n\ndata: b\n\n", `["||b"]`},
		{"Data: a\ndatas: b\n data: c\ndata : d\n\n", ``},
		{"data: a\n", ``},
		{"data: a\n\ndata: b", `["||a"]`},
	} {
		for _, in := range []io.Reader{strings.NewReader(test.stream), iotest.OneByteReader(strings.NewReader(test.stream))} {
			events, _, err := readAll(in, 2000)
			got := ""
			if events != nil {
				got = fmt.Sprintf("%q", events)
			}
			if got != test.want || err != io.EOF {
				t.Errorf("%q\ngot  %s, %v\nwant %s", test.stream, got, err, test.want)
			}
		}
	}
}

func TestRetryOfEventStreams(t *testing.T) {
	for value, want := range map[string]string{
		"1500": "1.5s", "0": "0s", "-1": "0s", "+1": "0s", "1.5": "0s", "1_000": "0s", "": "0s", "99999999999999999999": "0s",
	} {
		_, r, _ := readAll(strings.NewReader("retry: "+value+"\n\n"), 100)
		if r.retry.String() != want {
			t.Errorf("retry: %q is %v, want %v", value, r.retry, want)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	for stream, ok := range map[string]bool{
		"data: 123\n\n":   true,
		"data: 12345\n\n": false,
		":234567890\n\n:234567890\n\ndata: 1\n\n":  true,
		":2345678901\n\n":                          false,
		strings.Repeat("data\n", 7) + "\n":         true,
		strings.Repeat("data\n", 8) + "\n":         false,
		strings.Repeat("data: 123\n\n", 100):       true,
		"data: 1\n" + strings.Repeat(":\n", 10000): true,
	} {
		if _, _, err := readAll(strings.NewReader(stream), 10); (err == io.EOF) != ok {
			t.Errorf("%.40q: %v", stream, err)
		}
	}
}

// FuzzEvents checks that it does not matter how a stream is cut, and the bounds.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"data: a\r\n\r\ndata: b\n\n", "id: 1\nretry: 10\nevent: x\ndata: a\ndata: b\n\n", "\ufeffdata\r\r", ":\n\n",
		"data: a\n\r\n\r", "id: \x00\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 64
		events, r, err := readAll(strings.NewReader(string(data)), most)
		cut, other, cutErr := readAll(iotest.OneByteReader(strings.NewReader(string(data))), most)
		if fmt.Sprint(events, err, r.retry) != fmt.Sprint(cut, cutErr, other.retry) {
			t.Fatalf("whole: %q %v %v\ncut: %q %v %v", events, err, r.retry, cut, cutErr, other.retry)
		}
		if len(r.line)+len(r.data) > most+1 {
			t.Fatalf("%d bytes are held", len(r.line)+len(r.data))
		}
		if strings.ContainsAny(r.id, "\x00\r\n") {
			t.Fatalf("id %q", r.id)
		}
	})
}
