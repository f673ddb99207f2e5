package load

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const exposition = `# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1234.56
process_cpu_seconds_total_created 1
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1.5e+09 1700000000000
tidb_server_maxprocs{instance="a b} c"} 8
tidb_server_memory_quota_bytes 8e9
tidb_after 1
`

func TestParse(t *testing.T) {
	all := Sample{CPUSeconds: 1234.56, Procs: 8, Resident: 1.5e9, Quota: 8e9}
	long := strings.Repeat("x", 3*maxLine) + "\n"
	for name, tt := range map[string]struct {
		text string
		want Sample
		err  string
	}{
		"all":              {text: exposition, want: all},
		"a long line":      {text: long + "y" + long + exposition, want: all},
		"no last line end": {text: "tidb_server_maxprocs 4", want: Sample{Missing, 4, Missing, Missing}},
		"carriage returns": {text: "tidb_server_maxprocs 4\r\n", want: Sample{Missing, 4, Missing, Missing}},
		"the first counts": {text: "tidb_server_maxprocs 4\ntidb_server_maxprocs 5\n", want: Sample{Missing, 4, Missing, Missing}},
		"nothing":          {text: "", err: "there is no process_cpu_seconds_total"},
		"a page":           {text: "<html>\n<title>hello</title>", err: "there is no process_cpu_seconds_total"},
		"a longer name":    {text: "tidb_server_maxprocs_x 4\n", err: "there is no process_cpu_seconds_total"},
		"inside of a long line": {
			text: strings.Repeat("x", maxLine) + "tidb_server_maxprocs 4\n", err: "there is no process_cpu_seconds_total"},
		"no value":       {text: "tidb_server_maxprocs\t\n", err: "tidb_server_maxprocs is not a number from 0 up"},
		"not a number":   {text: "tidb_server_maxprocs NaN\n", err: "tidb_server_maxprocs is not a number from 0 up"},
		"infinite":       {text: "process_cpu_seconds_total +Inf\n", err: "process_cpu_seconds_total is not a number from 0 up"},
		"negative":       {text: "process_cpu_seconds_total -1\n", err: "process_cpu_seconds_total is not a number from 0 up"},
		"a secret value": {text: "process_cpu_seconds_total hunter2\n", err: "process_cpu_seconds_total is not a number from 0 up"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.text), iotest.OneByteReader(strings.NewReader(tt.text))} {
				got, err := Parse(r)
				text := ""
				if err != nil {
					text = err.Error()
				}
				if got != tt.want || text != tt.err {
					t.Errorf("%+v, error %q; want %+v, %q", got, text, tt.want, tt.err)
				}
			}
		})
	}
}

// endless is metrics without an end, of which it counts the bytes.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "a 1\n"[(e.n+i)%4]
	}
	e.n += len(p)
	return len(p), nil
}

// No more is read than is needed, whatever a server sends.
func TestParseIsBounded(t *testing.T) {
	var after endless
	if _, err := Parse(io.MultiReader(strings.NewReader(exposition), &after)); err != nil || after.n > maxLine {
		t.Errorf("%d bytes were read behind the last wanted metric, error %v", after.n, err)
	}
	var all endless
	if _, err := Parse(&all); !errors.Is(err, errTooBig) || all.n > maxAnswer {
		t.Errorf("error %v after %d bytes", err, all.n)
	}
	lost := errors.New("lost")
	if _, err := Parse(io.MultiReader(strings.NewReader("tidb_server_maxprocs 4\n"), iotest.ErrReader(lost))); !errors.Is(err, lost) {
		t.Errorf("error %v of a connection that is lost", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(exposition)
	f.Add("tidb_server_maxprocs{")
	f.Add("tidb_server_maxprocs 0x1p-2\nprocess_cpu_seconds_total 1_0")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(strings.NewReader(text))
		again, err2 := Parse(iotest.OneByteReader(strings.NewReader(text)))
		if s != again || (err == nil) != (err2 == nil) {
			t.Errorf("%+v, %v; in single bytes %+v, %v", s, err, again, err2)
		}
		for _, v := range []float64{s.CPUSeconds, s.Procs, s.Resident, s.Quota} {
			if v != Missing && !(v >= 0) {
				t.Errorf("%q has the value %v", text, v)
			}
		}
	})
}
