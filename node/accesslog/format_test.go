package accesslog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
)

// TestFormats reads testdata/formats: records, and their line in each format.
func TestFormats(t *testing.T) {
	datadriven.Walk(t, "testdata/formats", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var fields, names []string
			for _, a := range d.CmdArgs {
				if a.Key == "fields" {
					fields = a.Vals
				} else {
					names = append(names, a.Key)
				}
			}
			r := mustRecord(t, d.Input)
			var b strings.Builder
			for _, name := range names {
				line := mustFormat(t, name, fields...)(nil, r)
				if len(line) == 0 {
					line = []byte("(no line)")
				}
				fmt.Fprintf(&b, "%s\n", line)
			}
			return b.String()
		})
	})
}

// mustRecord reads a record: a field and its value per line, the value in Go's syntax if
// it is quoted.
func mustRecord(t *testing.T, text string) *Record {
	t.Helper()
	values := map[string]any{}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 4<<20)
	q := map[string]any{}
	var failure error
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		var v any = value
		if s, err := strconv.Unquote(value); err == nil {
			v = s
		} else if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			v = n
		} else if d, err := time.ParseDuration(value); err == nil {
			v = d
		}
		switch {
		case key == "Error":
			failure = errors.New(v.(string))
		case key == "Event":
			values[key] = slices.Index([]string{"opened", "open", "closed", "request"}, value)
		case slices.Contains([]string{"Method", "Host", "Path", "Proto", "Status", "Route", "Rule"}, key):
			q[key] = v
		default:
			values[key] = v
		}
	}
	if len(q) > 0 {
		values["Request"] = q
	}
	b, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	r := &Record{At: time.Date(2023, 11, 14, 22, 13, 20, 123456789, time.UTC), ID: 7}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	r.Error = failure
	return r
}

func TestFormatsThatAreRefused(t *testing.T) {
	for want, c := range map[string]struct {
		name   string
		fields []string
	}{
		`"xml": want one of text, json, haproxy, envoy`: {"xml", nil},
		`there is no field "colour"`:                    {"text", []string{"id", "colour"}},
		`field id is given twice`:                       {"json", []string{"id", "id"}},
		`the format haproxy has fields of its own`:      {"haproxy", []string{"id"}},
	} {
		if _, err := NewFormat(c.name, c.fields); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v, want %s", c, err, want)
		}
	}
}

// Each value of a record has a name in Fields, so that it can be picked.
func TestFieldsAreComplete(t *testing.T) {
	r := fullRecord
	r.ClientID, r.Software, r.Principal, r.Hop, r.Via, r.Permission, r.Shadow, r.Requests, r.Sampled = "a", "b", "c", "d", "e", "f", "g", 1, 2
	r.Error, r.Request = errors.New("e"), &Request{Method: "GET", Host: "h", Path: "/", Proto: "HTTP/1.1", Route: "r"}
	r.TraceID[0], r.SpanID[0] = 1, 2
	seen := []string{"time", "level", "msg", "connect"} // a request has no connect
	for _, a := range r.AppendAttrs(nil) {
		seen = append(seen, a.Key)
	}
	want := slices.Clone(Fields)
	slices.Sort(seen)
	slices.Sort(want)
	if !slices.Equal(seen, want) {
		t.Errorf("values %v, names %v", seen, want)
	}
}

var (
	haproxyLine = regexp.MustCompile(`^(?:[0-9a-f.:]+:\d+|unix:0) \[\d\d/\w{3}/\d{4}:[\d:.]{12}\] [!-~]+ [^ /]+/[!-~]+ ` +
		`(?:-?\d+/-?\d+/\+?\d+ \+?\d+ [A-Za-z-]{2} 0/0/0/0/\d+ 0/0|0/-?\d+/-?\d+/-?\d+/\d+ -?\d+ \d+ - - [A-Za-z-]{4} 0/0/0/0/\d+ 0/0 "[ !#-~]*")$`)
	envoyLine = regexp.MustCompile(`^\[[\dTZ:.-]+\] "[ !#-\[\]-~\\]+" \d+ [A-Z-]+ \d+ \d+ \d+ - "-" "-" "-" "[!#-\[\]-~\\ ]+" "[!#-\[\]-~\\ ]+"$`)
)

// FuzzFormats: whatever peers send, a record is one line, of the form of its format.
func FuzzFormats(f *testing.F) {
	f.Add("a\nb", "GET", "/x?\"\x00#<b>", "HTTP/1.1", "edge/8443", "bad\r\n", "client_reset", true, 200)
	f.Add("\xff\u2028\u202e", "", "", "", "", "", "", false, -1)
	f.Add(strings.Repeat("n", 1<<12), "M", "/", "HTTP/2.0", "l", "e", "no_route", false, 0)
	var formats []Format
	for _, name := range FormatNames {
		formats = append(formats, mustFormat(f, name))
	}
	picked, pickedJSON := mustFormat(f, FormatText, "sni", "path", "error", "reason"), mustFormat(f, FormatJSON, "sni", "path", "error", "connect", "time")
	f.Fuzz(func(t *testing.T, sni, method, path, proto, listener, failure, reason string, request bool, status int) {
		listener = listener[:min(len(listener), 253)] // operators choose it
		r := &Record{
			Event: Closed, At: time.Unix(1700000000, 0), Listener: listener, SNI: sni, Reason: reason, Error: errors.New(failure), Service: listener,
			Endpoint: listener, Attempts: 1, Connect: 1, Client: netip.MustParseAddrPort("[::1]:1"), Principal: proto, Identity: path,
		}
		if request {
			r.Event, r.Request = Requested, &Request{Method: method, Host: sni, Path: path, Proto: proto, Status: max(status, 0)}
		}
		r.truncate()
		for i, format := range append(slices.Clone(formats), picked, pickedJSON) {
			line := format(nil, r)
			if len(line) == 0 || len(line) > 64<<10 || bytes.ContainsAny(line, "\n\r\x00\x1b\x7f") || !utf8.Valid(line) {
				t.Errorf("format %d: line of %d bytes: %.300q", i, len(line), line)
			}
		}
		if line := formats[1](nil, r); !json.Valid(line) {
			t.Errorf("no JSON: %.300q", line)
		}
		if line := pickedJSON(nil, r); !json.Valid(line) {
			t.Errorf("no JSON: %.300q", line)
		}
		if line := formats[2](nil, r); !haproxyLine.Match(line) {
			t.Errorf("not HAProxy's: %.300q", line)
		}
		if line := formats[3](nil, r); !envoyLine.Match(line) {
			t.Errorf("not Envoy's: %.300q", line)
		}
	})
}

// A peer that sends a megabyte gets a line of some kilobytes.
func TestLongTextsAreCut(t *testing.T) {
	long := strings.Repeat("\x01", 1<<20)
	for _, name := range FormatNames {
		var out bytes.Buffer
		l := logTo(LinesConfig{Output: To(&out), Format: mustFormat(t, name)})
		l.Write(Record{
			Event: Requested, SNI: long, Identity: long, ClientID: long, Software: long, Principal: long, Reason: "no_answer", Error: errors.New(long),
			Request: &Request{Method: long, Host: long, Path: long, Proto: long},
		})
		l.Close()
		if n := out.Len(); n < 1000 || n > 64<<10 || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
			t.Errorf("%s: %d bytes, %d lines", name, n, bytes.Count(out.Bytes(), []byte("\n")))
		}
	}
}

func TestSampling(t *testing.T) {
	s, err := ParseSampling("client_fin=100, ordinary=10,default=1,answered=3,rate_limited=1000")
	if err != nil {
		t.Fatal(err)
	}
	picks := sampler{of: s}
	for _, c := range []struct {
		r    Record
		of   int
		each int // every so many are picked
	}{
		{Record{Event: Closed, Reason: "client_fin"}, 1000, 100},
		{Record{Event: Closed, Reason: "upstream_fin"}, 1000, 10},
		{Record{Event: Connected}, 100, 10},
		{Record{Event: Requested, Request: &Request{Status: 200}}, 30, 3},
		{Record{Event: Closed, Reason: "no_route"}, 10, 1},
		{Record{Event: Closed, Reason: "rate_limited"}, 2000, 1000},
	} {
		sum, picked := 0, 0
		for range c.of {
			if n := picks.weight(&c.r); n > 0 {
				picked++
				sum += n
			}
		}
		if picked != c.of/c.each || sum != c.of {
			t.Errorf("%s %q: %d of %d are picked, which stand for %d", c.r.Event, c.r.Reason, picked, c.of, sum)
		}
	}
	for text, want := range map[string]string{
		"client_fin": "want REASON=N", "client_fin=0": "N from 1", "client_fin=2000000": "N from 1", "Fin=3": "want a reason", "=3": "want a reason",
		"a=1,a=2": "given twice", "a=1,": "want REASON=N",
	} {
		if _, err := ParseSampling(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A sampled line says how many it stands for, in a copy: other sinks get all records.
func TestSampledLinesSayTheirWeight(t *testing.T) {
	s, err := ParseSampling("client_fin=3")
	if err != nil {
		t.Fatal(err)
	}
	var some, all bytes.Buffer
	l := logTo(LinesConfig{Name: "some", Output: To(&some), Sampling: s})
	l.Add(NewLines(LinesConfig{Name: "all", Output: To(&all)}))
	for range 6 {
		l.Write(fullRecord)
	}
	l.Close()
	if strings.Count(some.String(), " sampled=3\n") != 2 || strings.Count(some.String(), "\n") != 2 {
		t.Errorf("written:\n%s", some.String())
	}
	if strings.Count(all.String(), "\n") != 6 || strings.Contains(all.String(), "sampled") {
		t.Errorf("the other sink has:\n%s", all.String())
	}
}
