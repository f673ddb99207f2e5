package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Bounds of what is read of an answer.
const (
	maxAnswer = 16 << 20 // bytes
	maxLine   = 4 << 10  // longer lines are skipped: none that is wanted has so much
)

// The metrics that are wanted, as TiDB calls them.
const (
	cpuSeconds  = "process_cpu_seconds_total"
	maxProcs    = "tidb_server_maxprocs"
	resident    = "process_resident_memory_bytes"
	memoryQuota = "tidb_server_memory_quota_bytes"
)

var wanted = [...]string{cpuSeconds, maxProcs, resident, memoryQuota}

var (
	errValue  = errors.New("is not a number from 0 up")
	errTooBig = errors.New("the metrics are too large")
)

// Sample is the metrics of a server at one moment. Those that it does not have are
// Missing.
type Sample struct {
	CPUSeconds float64 // used since the server started
	Procs      float64 // cores that it may use
	Resident   float64 // bytes of memory
	Quota      float64 // its limit in bytes; 0: none
}

// Missing is the value of a metric that a server does not have.
const Missing = -1

// Parse reads metrics in the text format of Prometheus until it has all that are wanted.
// It fails if one of these has a malformed value, if there is none of them, or if r does.
func Parse(r io.Reader) (Sample, error) {
	values := [len(wanted)]float64{Missing, Missing, Missing, Missing}
	limited := &io.LimitedReader{R: r, N: maxAnswer}
	lines := bufio.NewReaderSize(limited, maxLine)
	for found := 0; found < len(wanted); {
		line, err := readLine(lines)
		for i, name := range wanted {
			text, ok := valueOf(line, name)
			if !ok || values[i] != Missing {
				continue
			}
			v, bad := strconv.ParseFloat(string(text), 64)
			if bad != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				return Sample{}, fmt.Errorf("%s %w", name, errValue) // without the text, which is the server's
			}
			values[i] = v
			found++
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return Sample{}, err
		case limited.N <= 0:
			return Sample{}, errTooBig
		case found == 0:
			return Sample{}, fmt.Errorf("there is no %s", cpuSeconds)
		default:
			return sampleOf(values), nil
		}
	}
	return sampleOf(values), nil
}

func sampleOf(v [len(wanted)]float64) Sample {
	return Sample{CPUSeconds: v[0], Procs: v[1], Resident: v[2], Quota: v[3]}
}

// readLine returns the next line, nil if it is too long to be of interest.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = r.ReadSlice('\n')
	}
	return nil, err
}

// valueOf returns the value in a line such as `name{label="x"} 1.5 1700000000` if it is of
// that metric.
func valueOf(line []byte, name string) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(name))
	if !ok || len(rest) == 0 {
		return nil, false
	}
	switch rest[0] {
	case ' ', '\t':
	case '{':
		rest = rest[bytes.LastIndexByte(rest, '}')+1:]
	default: // a longer name
		return nil, false
	}
	if fields := bytes.Fields(rest); len(fields) > 0 {
		return fields[0], true
	}
	return nil, true
}
