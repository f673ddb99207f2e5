package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	rtmetrics "runtime/metrics"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"

	"penstock/node/api"
	"penstock/node/rpc"
)

// debugger has the method for what is needed to find out what is wrong with a node.
type debugger struct {
	peers    *Peers
	settings []api.Setting
	metrics  func() prometheus.Gatherer
	// busy has room for the one request that is being answered: a CPU profile is the
	// process's, and a part takes memory.
	busy chan struct{}
}

func newDebugger(peers *Peers, cfg *Config) *debugger {
	return &debugger{peers, cfg.Settings, cfg.Metrics, make(chan struct{}, 1)}
}

func (d *debugger) register(s *rpc.Server) {
	rpc.HandleStream(s, api.MethodDebug, api.RoleAdmin, d.debug, rpc.Audited())
}

// debugPiece is the size of the pieces in which a part is sent, in bytes.
const debugPiece = 256 << 10

// debug sends the parts in order. One that cannot be made is sent with the error.
func (d *debugger) debug(ctx context.Context, r *api.DebugRequest, send func(*api.DebugPart) error) error {
	if r.CPU < 0 || r.CPU > api.MaxDebugProfile {
		return api.Errorf(api.Invalid, "cpu: %v is not between 0s and %v", r.CPU, api.MaxDebugProfile)
	}
	if passed, err := d.peers.Forward(ctx, r.Node); passed {
		return err
	}
	select {
	case d.busy <- struct{}{}:
		defer func() { <-d.busy }()
	default:
		return api.Errorf(api.Busy, "%s is answering another request of this kind: try again later", d.peers.self.Name)
	}
	parts := []struct {
		name string
		to   func(io.Writer) error
	}{
		{api.DebugAbout, d.about},
		{api.DebugSettings, func(w io.Writer) error { return writeJSON(w, d.settings) }},
		{api.DebugMetrics, d.gather},
		// Level 1, and not 2, which has the arguments of functions.
		{api.DebugGoroutines, func(w io.Writer) error { return pprof.Lookup("goroutine").WriteTo(w, 1) }},
		{api.DebugHeap, func(w io.Writer) error { return pprof.Lookup("heap").WriteTo(w, 0) }},
		{api.DebugCPU, func(w io.Writer) error { return profileCPU(ctx, w, r.CPU) }},
	}
	for _, p := range parts {
		if p.name == api.DebugCPU && r.CPU == 0 {
			continue
		}
		w := &partWriter{left: api.MaxDebugPart}
		err := p.to(w)
		if stopped := ctx.Err(); stopped != nil {
			return stopped
		}
		if w.cut {
			err = fmt.Errorf("cut off after %d bytes", api.MaxDebugPart)
		}
		if err := sendPart(ctx, p.name, w.Bytes(), err, send); err != nil {
			return err
		}
	}
	return nil
}

// sendPart sends a part in pieces.
func sendPart(ctx context.Context, name string, data []byte, failed error, send func(*api.DebugPart) error) error {
	for {
		piece := data[:min(len(data), debugPiece)]
		data = data[len(piece):]
		part := &api.DebugPart{Name: name, Data: piece, Last: len(data) == 0}
		if part.Last && failed != nil {
			part.Error = failed.Error()
		}
		if err := rpc.LargeResponse(ctx); err != nil {
			return err
		}
		if err := send(part); err != nil || part.Last {
			return err
		}
	}
}

// partWriter keeps what is written to it, up to a bound.
type partWriter struct {
	bytes.Buffer
	left int
	cut  bool
}

// Write implements io.Writer. It accepts everything, so that what writes a part also
// ends it properly.
func (w *partWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.left)
	w.left -= n
	w.cut = w.cut || n < len(b)
	w.Buffer.Write(b[:n])
	return len(b), nil
}

// profileCPU records a CPU profile of the process.
func profileCPU(ctx context.Context, w io.Writer, over time.Duration) error {
	if err := pprof.StartCPUProfile(w); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	timer := time.NewTimer(over)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gather writes the metrics.
func (d *debugger) gather(w io.Writer) error {
	families, err := d.metrics().Gather()
	for _, f := range families { // those that could be gathered
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return err
}

// about describes the process and the machine.
func (d *debugger) about(w io.Writer) error {
	self := &d.peers.self
	sample := []rtmetrics.Sample{{Name: "/gc/gogc:percent"}}
	rtmetrics.Read(sample)
	a := api.AboutNode{
		Name: self.Name, ID: self.ID, Version: self.Version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0), Started: self.Started, At: time.Now(),
		MemoryLimit: debug.SetMemoryLimit(-1), GCPercent: sample[0].Value.Uint64(),
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err == nil {
		a.Kernel = strings.TrimSpace(unix.ByteSliceToString(kernel.Sysname[:]) + " " + unix.ByteSliceToString(kernel.Release[:]))
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		a.Files = files.Cur
	}
	return writeJSON(w, &a)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
